package passthrough

import (
	"net/netip"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// origin is what patches of Envoy's config know the clusters by.
const origin = "meshpassthrough"

const connectTimeout = 5 * time.Second

// pinned reports whether the proxy itself resolves the domain that a client names.
func (r *rule) pinned() bool { return r.kind == domainTarget && r.port != 0 }

// resourceName is the name of a cluster or chain, as the dashboards of the reference know it.
func resourceName(p protocol, value string, port uint32) string {
	if p == mysql {
		p = tcp
	}
	on := "*"
	if port != 0 {
		on = strconv.FormatUint(uint64(port), 10)
	}
	if value != "" {
		value += "_"
	}
	return "meshpassthrough_" + p.String() + "_" + value + on
}

// newCluster makes the cluster of a rule.
func newCluster(r *rule, dp *resource.Dataplane) *draft.Cluster {
	out := &draft.Cluster{Kind: draft.PassthroughCluster, Origin: origin, Message: openCluster(r.name, r.stat)}
	if r.pinned() {
		pin(out.Message, r, dp)
	}
	if r.protocol == http2 || r.protocol == grpc {
		out.HTTP = draft.HTTP2Options
	}
	return out
}

// openCluster leads to the address that the workload dialled.
func openCluster(name, stat string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          stat,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       durationpb.New(connectTimeout),
	}
}

// closedCluster has no endpoints: what is sent there is closed, on purpose and visibly, instead of by a reference that
// leads nowhere.
func closedCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          toolkit.StatName(name),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment:       &endpointv3.ClusterLoadAssignment{ClusterName: name},
	}
}

// pin makes a cluster lead to what the domain of a rule resolves to, whatever address was dialled.
func pin(c *clusterv3.Cluster, r *rule, dp *resource.Dataplane) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	c.WaitForWarmOnInit = wrapperspb.Bool(false) // the mesh is not held up by a name outside that does not resolve
	if a, err := netip.ParseAddr(dp.Networking.Address); err != nil || a.Is4() {
		c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY // a proxy without an IPv6 address cannot dial one
	}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: r.domain, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: r.port},
				}}},
			}},
		}}}},
	}
}
