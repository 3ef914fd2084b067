// Package retry is the plugin of MeshRetry: which requests a proxy tries again, how often and after which pause, and how
// often it dials for a connection.
//
// Its policies act on the routes of HTTP and gRPC outbounds and on the TCP proxies of the others. Where conditions are
// not given, those of Kuma are in force.
package retry

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind = "MeshRetry"

	kindHTTPRoute = "MeshHTTPRoute"
	kindGateway   = "MeshGateway"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshretries", "mr", resource.PolicyShape{
			Top:       []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"},
			TopToOnly: []string{kindGateway, kindHTTPRoute},
			To:        []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService", kindHTTPRoute},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     check,
		})},
		Apply: apply,
	}
}
