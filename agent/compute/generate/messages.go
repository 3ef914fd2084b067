package generate

import (
	"net"
	"net/netip"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// These are Kuma's defaults, which timeout policies override.
const (
	localConnectTimeout       = 10 * time.Second
	localIdleTimeout          = 2 * time.Hour
	inboundStreamIdleTimeout  = time.Hour
	passthroughConnectTimeout = 5 * time.Second
)

// A transparent proxy connects to its workload from these addresses, which redirection lets
// through.
const (
	inboundSourceV4 = "127.0.0.6"
	inboundSourceV6 = "::6"
)

const tagsHeader = "x-kuma-tags"

// Many drafts share these messages. They are never modified; replace the pointer to use another
// value.
var (
	sharedTrue  = wrapperspb.Bool(true)
	sharedFalse = wrapperspb.Bool(false)
	anyDomain   = []string{"*"}
	noTags      = map[string]string{}
)

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// inboundListener returns a listener for connections to an address.
func inboundListener(addr netip.Addr, port uint32) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:             "inbound:" + hostPort(addr, port),
		Address:          socketAddress(addr.String(), port),
		TrafficDirection: corev3.TrafficDirection_INBOUND,
		EnableReusePort:  sharedFalse,
	}
}

// tcpTo returns a TCP proxy for a cluster. idle is nil for Envoy's default timeout.
func tcpTo(stat, cluster string, idle *durationpb.Duration) *tcpv3.TcpProxy {
	return &tcpv3.TcpProxy{StatPrefix: draft.StatName(stat), ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster},
		IdleTimeout: idle}
}

// routesOf returns routes for a host.
func routesOf(name, host string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: name, ValidateClusters: sharedFalse,
		VirtualHosts: []*routev3.VirtualHost{{Name: host, Domains: anyDomain, Routes: routes}},
	}
}

// assignmentOf returns the endpoints of a cluster that holds them itself.
func assignmentOf(cluster string, list ...*endpointv3.LbEndpoint) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(list) > 0 {
		out.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: list}}
	}
	return out
}

func clusterType(t clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster_Type {
	return &clusterv3.Cluster_Type{Type: t}
}

func hostPort(addr netip.Addr, port uint32) string {
	return net.JoinHostPort(addr.String(), strconv.FormatUint(uint64(port), 10))
}

func seconds(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func bindTo(host string) *corev3.BindConfig {
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// originalDst returns a cluster that connects to the address that the workload dialed.
func originalDst(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: clusterType(clusterv3.Cluster_ORIGINAL_DST),
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       seconds(passthroughConnectTimeout),
	}
}

// httpOptions sets the upstream options of a cluster by the protocol of its endpoints.
func httpOptions(c *draft.Cluster, p mesh.Protocol) {
	switch p {
	case mesh.ProtocolHTTP:
		c.HTTP = draft.HTTP1Options
	case mesh.ProtocolHTTP2, mesh.ProtocolGRPC:
		c.HTTP = draft.HTTP2Options
	}
}

// endpointTags returns the tags of an endpoint that other proxies see.
func endpointTags(e *mesh.Endpoint) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	e.EachTag(func(k, v string) { s.Fields[k] = structpb.NewStringValue(v) })
	return s
}

func lbEndpoint(e *mesh.Endpoint) *endpointv3.LbEndpoint {
	out := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(e.Address,
			e.Port)}},
	}
	if s := endpointTags(e); len(s.Fields) > 0 {
		out.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": s, "envoy.transport_socket_match": s,
		}}
	}
	out.LoadBalancingWeight = wrapperspb.UInt32(1)
	return out
}
