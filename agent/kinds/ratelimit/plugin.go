// Package ratelimit is the plugin of MeshRateLimit: how many requests and connections an inbound takes in a span of
// time. Each proxy counts by itself; clients are not told apart.
package ratelimit

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshRateLimit"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshratelimits", "mrl", resource.PolicyShape{
			Top:       []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"},
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     check,
		})},
		Apply: apply,
	}
}

// check refuses to where the policy is about no gateway: it is about the listeners of built-in gateways.
func check(p *resource.Policy, v *resource.Validator) {
	if len(p.To) == 0 || p.TargetRef == nil {
		return
	}
	switch t := p.TargetRef; t.Kind {
	case "MeshService", "MeshServiceSubset", "Dataplane":
		v.Field("to").Faultf("a policy on %s has no to, which is about the listeners of gateways: write from instead, or give a targetRef of MeshGateway or MeshHTTPRoute", t.Kind)
	default:
		if len(t.ProxyTypes) > 0 && !slices.Contains(t.ProxyTypes, "Gateway") {
			v.Field("to").Faultf("a policy without gateways has no to, which is about their listeners: write from instead, or add Gateway to targetRef.proxyTypes")
		}
	}
}
