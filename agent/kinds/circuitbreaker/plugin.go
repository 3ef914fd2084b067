// Package circuitbreaker is the plugin of MeshCircuitBreaker: how many connections and requests a cluster may have at a
// time, and when an endpoint that fails is left out for a while.
//
// Its policies act on the clusters of outbounds and on those that lead to the workload.
package circuitbreaker

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshCircuitBreaker"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshcircuitbreakers", "mcb", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations(),
			NewConf:   func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Shapes: []match.Level{match.LevelCluster},
		Apply:  apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	memo := map[*Conf]*Breaker{}
	of := func(r *policy.Rule) *Breaker { return toolkit.Once(memo, toolkit.Conf[Conf](r), BreakerOf) }
	for cl := range toolkit.Clusters(d, draft.InboundCluster) {
		of(k.InboundAll(cl.Inbound)).Put(cl.Message)
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		of(k.Outbound(cl.Service)).Put(cl.Message)
	}
}
