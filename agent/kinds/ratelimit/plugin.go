// Package ratelimit is the plugin of MeshRateLimit: how many requests and connections an inbound takes in a span of
// time. Each proxy counts by itself; clients are not told apart.
package ratelimit

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshRateLimit"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshratelimits", "mrl", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check: func(p *resource.Policy, v *resource.Validator) {
				toolkit.ToOfGateways(p, v, "MeshGateway or MeshHTTPRoute")
			},
		})},
		Apply: apply,
	}
}
