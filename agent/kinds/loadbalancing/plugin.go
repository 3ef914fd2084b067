// Package loadbalancing is the plugin of MeshLoadBalancingStrategy: how a proxy chooses among the endpoints of a service.
//
// It sets the algorithm of the outbound clusters, what requests are hashed by on the routes (and connections, where a
// service speaks TCP), and where endpoints are preferred to be: the proxy's own zone before others, within the zone by
// affinity tags, and which zones take over when endpoints fail. Whatever a policy says about a service, endpoints of
// other zones come second unless localityAwareness is disabled.
package loadbalancing

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshLoadBalancingStrategy"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshloadbalancingstrategies", "mlbs", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			To:      toolkit.Destinations(),
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Apply: apply,
	}
}
