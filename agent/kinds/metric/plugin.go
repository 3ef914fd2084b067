// Package metric is the plugin of MeshMetric: the metrics of a proxy for Prometheus.
//
// There is no process beside the proxy that could collect, filter or push metrics: what Envoy serves by itself is what
// there is. A Prometheus backend is a listener that leads one path to the statistics of Envoy's admin interface and
// nothing else of it. Where the admin interface is says networking.admin.port of the Dataplane, for an Envoy with a
// bootstrap of its own; otherwise it is the socket that the agent's bootstrap names.
//
// Profiles and include become a filter over Envoy's names of statistics, which serves all that is asked for and may
// serve more: those names hold those of clusters and listeners, which Prometheus has as labels. These have no effect,
// and their owner is told:
//   - applications: nothing merges their metrics into those of the proxy; let Prometheus scrape them.
//   - OpenTelemetry backends: Envoy takes sinks of metrics in its bootstrap alone.
//   - exclude, and include by regular expression: Envoy's filter names what is served, by other names.
//   - tls.mode ProvidedTLS: nothing tells the agent where certificate and key lie. Such a backend is not served, since
//     plain text where TLS was asked for would be worse.
//   - clientId names the listener; there is no service through which Prometheus discovers proxies.
package metric

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshMetric"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshmetrics", "mm", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Apply: apply,
	}
}
