package toolkit

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// connectTimeout is how long a cluster that a plugin adds waits for a connection.
const connectTimeout = 5 * time.Second

// Address is a host, or an IP address, and a port.
func Address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// StaticCluster is a cluster of one endpoint that a plugin adds. origin is how patches match it.
func StaticCluster(name, origin string, at *corev3.Address) *draft.Cluster {
	return &draft.Cluster{Kind: draft.OtherCluster, Origin: origin, Message: &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          StatName(name),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
			}}}},
		},
	}}
}

// HostCluster is a [StaticCluster] that leads to a collector by name or address. Envoy resolves names. A proxy without an IPv6
// address asks for IPv4 addresses alone.
func HostCluster(name, origin string, at Collector, proxyAddress string) *draft.Cluster {
	c := StaticCluster(name, origin, Address(at.Host, at.Port))
	if _, err := netip.ParseAddr(at.Host); err != nil {
		c.Message.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		if a, err := netip.ParseAddr(proxyAddress); err != nil || a.Is4() {
			c.Message.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
		}
	}
	return c
}
