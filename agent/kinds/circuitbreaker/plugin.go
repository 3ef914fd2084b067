// Package circuitbreaker is the plugin of MeshCircuitBreaker, and of CircuitBreaker, which it replaces: how many
// connections and requests a cluster may have at a time, and when an endpoint that fails is left out for a while.
//
// Its policies act on the clusters of outbounds and (MeshCircuitBreaker) on those that lead to the workload. The two
// halves, limits and outlier detection, are independent: what CircuitBreaker says about one of them ends when a
// MeshCircuitBreaker that selects the proxy speaks of it.
package circuitbreaker

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "MeshCircuitBreaker"
	legacyKind = "CircuitBreaker"

	kindHTTPRoute = "MeshHTTPRoute"
	kindTCPRoute  = "MeshTCPRoute"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshcircuitbreakers", "mcb", resource.PolicyShape{
			Top:       []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"},
			TopToOnly: []string{"MeshGateway"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService"},
			NewConf:   func() resource.Conf { return new(Conf) },
		})},
		// Replaced half by half, which this plugin sees to.
		Legacy: []policy.LegacyKind{{Descriptor: resource.LegacyDescriptor(legacyKind, "circuit-breakers", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(LegacyConf) }, ConfRequired: true,
		}), SupersededBy: ended, Migrate: migrate}},
		Apply: apply,
	}
}
