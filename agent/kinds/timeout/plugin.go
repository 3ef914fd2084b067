// Package timeout is the plugin of MeshTimeout: how long connections and requests may take or stay idle.
//
// Its policies act on outbounds and their clusters, on single routes, and on inbounds and the clusters that lead to the
// workload. What a MeshTimeout leaves open gets the defaults of Kuma as soon as a MeshTimeout selects the proxy. A proxy
// that no policy selects is not changed.
package timeout

import (
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshTimeout"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtimeouts", "mt", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations("MeshHTTPRoute"),
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     func(p *resource.Policy, v *resource.Validator) { toolkit.RouteItems(p, v, (*Conf).checkRoute) },
		})},
		Legacy: legacy,
		Shapes: []match.Level{match.LevelRoute, match.LevelCluster},
		Apply:  apply,
	}
}
