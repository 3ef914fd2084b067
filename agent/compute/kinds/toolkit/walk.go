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

// Listeners returns the listeners of a draft that are of a kind.
func Listeners(d *draft.Draft, kind draft.ListenerKind) iter.Seq[*draft.Listener] {
	return func(yield func(*draft.Listener) bool) {
		for _, l := range d.Listeners {
			if l.Kind == kind && !yield(l) {
				return
			}
		}
	}
}

// Clusters returns the clusters of a draft that are of a kind.
func Clusters(d *draft.Draft, kind draft.ClusterKind) iter.Seq[*draft.Cluster] {
	return func(yield func(*draft.Cluster) bool) {
		for _, c := range d.Clusters {
			if c.Kind == kind && !yield(c) {
				return
			}
		}
	}
}

// Routes returns the inline routes of a connection manager.
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

// BeforeRouter puts filters in front of the router, which comes last.
func BeforeRouter(h *draft.HTTP, filters ...draft.Extension) {
	at := max(0, len(h.Filters)-1)
	h.Filters = slices.Concat(h.Filters[:at], filters, h.Filters[at:])
}

// EditLoadBalancing returns what is common to all algorithms of a cluster, for changing. What
// stands in the cluster may be shared, so it is replaced by a copy.
func EditLoadBalancing(c *clusterv3.Cluster) *clusterv3.Cluster_CommonLbConfig {
	c.CommonLbConfig = copyOf(c.CommonLbConfig)
	return c.CommonLbConfig
}

// EditConnections returns the options of a cluster's connections, for changing.
func EditConnections(c *draft.Cluster) *corev3.HttpProtocolOptions {
	http := c.EditHTTP()
	if http.CommonHttpProtocolOptions == nil {
		http.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	return http.CommonHttpProtocolOptions
}

// EditClientConnections is [EditConnections] for the connections of clients. What stands there may
// be shared, so it is replaced by a copy.
func EditClientConnections(h *draft.HTTP) *corev3.HttpProtocolOptions {
	h.Message.CommonHttpProtocolOptions = copyOf(h.Message.CommonHttpProtocolOptions)
	return h.Message.CommonHttpProtocolOptions
}

// copyOf copies a message; an absent one becomes an empty one.
func copyOf[T any, M interface {
	*T
	proto.Message
}](m M) M {
	if m == nil {
		return new(T)
	}
	return proto.Clone(m).(M)
}
