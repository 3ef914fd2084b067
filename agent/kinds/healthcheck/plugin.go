// Package healthcheck is the plugin of MeshHealthCheck: proxies that probe the endpoints of a service and leave out those
// that do not answer as they should.
//
// Its policies act on the clusters of outbounds. The protocol of the service picks the check: http for HTTP and HTTP/2,
// grpc for gRPC, tcp for the rest; where the first two are disabled, tcp stands in.
package healthcheck

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshHealthCheck"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshhealthchecks", "mhc", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			To:      []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService"},
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Apply: apply,
	}
}
