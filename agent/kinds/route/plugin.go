// Package route is the plugin of the kinds that say where requests and connections go: MeshHTTPRoute, MeshTCPRoute, and
// TrafficRoute, which they replace.
//
// It makes the filter chains of the outbounds that a policy concerns. Requests are MeshHTTPRoute's, connections
// MeshTCPRoute's; a MeshHTTPRoute takes precedence over a MeshTCPRoute where both speak of a service of HTTP. As soon as a policy
// of the new kinds selects a proxy, TrafficRoute has nothing more to say about what that kind routes.
//
// A destination that cannot be used is left out with a warning, and a rule without any other destination with it: the
// requests then go where the next rule leads them. An outbound always has a way to its own service.
package route

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	KindHTTP = "MeshHTTPRoute"
	KindTCP  = "MeshTCPRoute"

	kindMesh    = "Mesh"
	kindGateway = "MeshGateway"
	kindSubset  = "MeshServiceSubset"
)

// Plugin declares the kinds and their effect.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	proxies, services := toolkit.Proxies(kindGateway), toolkit.Destinations()
	return policy.Plugin{
		Kinds: []resource.Descriptor{
			resource.PolicyDescriptor(KindHTTP, "meshhttproutes", "mhttpr", resource.PolicyShape{
				Top: proxies, To: services, Inline: true, Check: checkHTTP,
				NewConf: func() resource.Conf { return new(HTTPConf) },
			}),
			resource.PolicyDescriptor(KindTCP, "meshtcproutes", "mtcpr", resource.PolicyShape{
				Top: proxies, To: services, Inline: true, Check: checkTCP,
				NewConf: func() resource.Conf { return new(TCPConf) },
			}),
		},
		Legacy:       legacy,
		Behind:       behind(legacy),
		Suggest:      suggest,
		Outbound:     outbound,
		Destinations: destinations,
	}
}
