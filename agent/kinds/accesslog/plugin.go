// Package accesslog is the plugin of MeshAccessLog with the backends that it refers to: which connections and requests a
// proxy logs, where to, and in what words.
//
// A file is written by Envoy itself. The lines for a TCP collector go through a FIFO in the agent's run directory, one
// for each proxy and collector, from which the agent forwards them: [Destinations] lists the FIFOs of a proxy with what
// lies behind them. An OpenTelemetry collector gets its records from Envoy.
//
// What a policy writes is checked when it is written: formats by Envoy's own grammar, so that a slip in one of them
// costs the policy and not the listener. What can be seen only beside other resources, such as a reference that leads
// nowhere, costs the backend alone and is a warning that names the policy.
package accesslog

import (
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshAccessLog"

const (
	kindBackend       = "MeshAccessLogBackend"
	kindGlobalBackend = "GlobalAccessLogBackend"
)

// Plugin declares the kinds and their effect, beside the kinds that they replace.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshaccesslogs", "mal", resource.PolicyShape{
			Top:         toolkit.Proxies("MeshGateway"),
			TopFromOnly: []string{"MeshHTTPRoute", "MeshGatewayRoute"},
			MeshName:    true,
			From:        toolkit.Clients(),
			To:          toolkit.Destinations("MeshHTTPRoute"),
			NewConf:     func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Refers: []resource.Descriptor{
			{Kind: kindBackend, Plural: "meshaccesslogbackends", Scope: resource.ScopeMesh, New: newBackendSpec},
			{Kind: kindGlobalBackend, Plural: "globalaccesslogbackends", Scope: resource.ScopeGlobal, New: newBackendSpec},
		},
		Shapes: []match.Level{match.LevelAccessLog},
		Apply:  apply,
	}
}
