// Package timeout is the plugin of MeshTimeout, and of Timeout, which it replaces: how long connections and requests may
// take or stay idle.
//
// Its policies act on outbounds and their clusters, on single routes, and (MeshTimeout) on inbounds and the clusters
// that lead to the workload. What MeshTimeout leaves open gets the defaults of Kuma as soon as a MeshTimeout selects
// the proxy; what Timeout leaves open stays as it is. A proxy that no policy selects is not changed.
package timeout

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "MeshTimeout"
	legacyKind = "Timeout"

	kindHTTPRoute = "MeshHTTPRoute"
	kindTCPRoute  = "MeshTCPRoute"
	kindGateway   = "MeshGateway"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtimeouts", "mt", resource.PolicyShape{
			Top:       []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"},
			TopToOnly: []string{kindGateway, kindHTTPRoute},
			From:      []string{"Mesh"},
			To:        []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService", kindHTTPRoute},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     check,
		})},
		Legacy: []policy.LegacyKind{{
			Descriptor: resource.LegacyDescriptor(legacyKind, "timeouts", "", resource.LegacyShape{
				NewConf: func() resource.Conf { return new(LegacyConf) }, ConfRequired: true,
			}),
			ReplacedBy:   []string{kind},
			SupersededBy: ended,
			Migrate:      migrate,
		}},
		Apply: apply,
	}
}
