// Package trace is the plugin of MeshTrace: which requests are traced, and where the spans are sent.
//
// The HTTP connection managers of inbounds and outbounds get a tracer, and the proxy one cluster that leads to the
// collector. Envoy has one tracer for a connection manager, so a policy has one backend, or none: an empty list
// switches tracing off for what it selects. The certificate of a collector reached by https is not verified, as the
// policy has no place to name an authority.
package trace

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshTrace"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtraces", "mtr", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Apply: apply,
	}
}
