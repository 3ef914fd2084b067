package accesslog

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Default formats for refused connections.
const (
	defaultUnmatched = logline.DefaultUnmatched
	defaultClosed    = logline.DefaultClosed
)

// flagUnmatched is Envoy's response flag for a connection without a matching filter chain.
const flagUnmatched = "NR"

// refused logs the connections to a listener that match none of its filter chains, in the access
// log of the listener itself. Connections with a chain are in the log of the chain and have another
// flag. Listeners with a chain for all connections are not changed.
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

// takesAll reports whether some chain of a listener matches every connection.
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

// closedClusters returns the passthrough clusters without endpoints, which close all connections.
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
