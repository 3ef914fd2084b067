package toolkit

import (
	"iter"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Listeners returns the draft's listeners of a kind.
func Listeners(d *draft.Draft, kind draft.ListenerKind) iter.Seq[*draft.Listener] {
	return func(yield func(*draft.Listener) bool) {
		for _, l := range d.Listeners {
			if l.Kind == kind && !yield(l) {
				return
			}
		}
	}
}

// Clusters returns the draft's clusters of a kind.
func Clusters(d *draft.Draft, kind draft.ClusterKind) iter.Seq[*draft.Cluster] {
	return func(yield func(*draft.Cluster) bool) {
		for _, c := range d.Clusters {
			if c.Kind == kind && !yield(c) {
				return
			}
		}
	}
}

// Routes returns the inline routes of an HTTP connection manager.
func Routes(h *draft.HTTP) iter.Seq[*routev3.Route] {
	return func(yield func(*routev3.Route) bool) {
		for _, host := range h.Routes.GetVirtualHosts() {
			for _, r := range host.GetRoutes() {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// BeforeRouter inserts filters before the router, which is the last filter.
func BeforeRouter(h *draft.HTTP, filters ...draft.Extension) {
	at := max(0, len(h.Filters)-1)
	h.Filters = slices.Concat(h.Filters[:at], filters, h.Filters[at:])
}

// EditLoadBalancing returns the cluster's common load balancing config for editing. It replaces the
// message by a copy, because the message may be shared.
func EditLoadBalancing(c *clusterv3.Cluster) *clusterv3.Cluster_CommonLbConfig {
	c.CommonLbConfig = copyOf(c.CommonLbConfig)
	return c.CommonLbConfig
}

// EditConnections returns the cluster's connection options for editing.
func EditConnections(c *draft.Cluster) *corev3.HttpProtocolOptions {
	http := c.EditHTTP()
	if http.CommonHttpProtocolOptions == nil {
		http.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	return http.CommonHttpProtocolOptions
}

// EditClientConnections is like [EditConnections] for connections from clients. It replaces the
// message by a copy, because the message may be shared.
func EditClientConnections(h *draft.HTTP) *corev3.HttpProtocolOptions {
	h.Message.CommonHttpProtocolOptions = copyOf(h.Message.CommonHttpProtocolOptions)
	return h.Message.CommonHttpProtocolOptions
}

// copyOf returns a copy of a message, or an empty message for nil.
func copyOf[T any, M interface {
	*T
	proto.Message
}](m M) M {
	if m == nil {
		return new(T)
	}
	return proto.Clone(m).(M)
}
