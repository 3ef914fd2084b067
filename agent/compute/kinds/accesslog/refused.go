package accesslog

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// The formats of refused connections in logs that name none. No upstream has taken part, so they
// have what the client asked for: the address that it dialled, the server name that it gave, and
// what the TLS inspector says where it saw no TLS. The word is no_filter_chain where nothing
// matched, and closed where nothing may pass; Envoy's own word for it stands before.
const (
	defaultUnmatched = refusedHead + "no_filter_chain" + refusedTail
	defaultShut      = refusedHead + "closed" + refusedTail

	refusedHead = `[%START_TIME%] %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->` +
		`%DOWNSTREAM_LOCAL_ADDRESS%(%KUMA_DESTINATION_SERVICE%) refused: `
	refusedTail = `, sni %REQUESTED_SERVER_NAME%, tls %DYNAMIC_METADATA(envoy.filters.listener.tls_inspector:failure_reason)%, client %DOWNSTREAM_REMOTE_ADDRESS%`
)

// flagUnmatched is what Envoy notes of a connection that no filter chain takes.
const flagUnmatched = "NR"

// refused logs the connections to a listener that none of its filter chains takes: no chain has a
// log of them, the listener itself has. What a chain has taken is in the log of the chain, and has
// another flag. Listeners with a chain that takes everything are left as they are.
func (w *writer) refused(l *draft.Listener, p *plan, v *values) {
	if w.rules == nil || p == nil || len(p.loggers) == 0 || takesAll(l) {
		return
	}
	w.add(&l.Message.AccessLog, unmatched, p, v, &accesslogv3.AccessLogFilter{
		FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{flagUnmatched}},
		},
	})
}

var matchesAll = &listenerv3.FilterChainMatch{}

// takesAll reports whether some chain of a listener takes every connection.
func takesAll(l *draft.Listener) bool {
	if l.Message.GetDefaultFilterChain() != nil || len(l.Chains) == 0 {
		return true
	}
	for _, ch := range l.Chains {
		if m := ch.Message.GetFilterChainMatch(); m == nil || proto.Equal(m, matchesAll) {
			return true
		}
	}
	return false
}

// closedClusters are those of the passthrough that have no endpoint: what is sent there is closed.
func closedClusters(d *draft.Draft) map[string]bool {
	out := map[string]bool{}
	for _, c := range d.Clusters {
		if m := c.Message; c.Kind == draft.PassthroughCluster && m.GetType() == clusterv3.Cluster_STATIC &&
			len(m.GetLoadAssignment().GetEndpoints()) == 0 {
			out[m.GetName()] = true
		}
	}
	return out
}
