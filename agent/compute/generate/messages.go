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

// Defaults that the reference gives proxies, in force until a timeout policy says otherwise.
const (
	localConnectTimeout       = 10 * time.Second
	localIdleTimeout          = 2 * time.Hour
	inboundStreamIdleTimeout  = time.Hour
	passthroughConnectTimeout = 5 * time.Second
)

// Addresses from which a transparent proxy dials its workload, so that the redirection lets them
// through.
const (
	inboundSourceV4 = "127.0.0.6"
	inboundSourceV6 = "::6"
)

const tagsHeader = "x-kuma-tags"

// Messages that many drafts share. Who wants another value replaces the pointer; the messages are
// never changed.
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

// inboundListener is a listener that others dial at an address.
func inboundListener(addr netip.Addr, port uint32) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:             "inbound:" + hostPort(addr, port),
		Address:          socketAddress(addr.String(), port),
		TrafficDirection: corev3.TrafficDirection_INBOUND,
		EnableReusePort:  sharedFalse,
	}
}

// tcpTo hands connections on to a cluster; idle is nil for Envoy's own limit.
func tcpTo(stat, cluster string, idle *durationpb.Duration) *tcpv3.TcpProxy {
	return &tcpv3.TcpProxy{StatPrefix: draft.StatName(stat), ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster},
		IdleTimeout: idle}
}

// routesOf are routes for every host.
func routesOf(name, host string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: name, ValidateClusters: sharedFalse,
		VirtualHosts: []*routev3.VirtualHost{{Name: host, Domains: anyDomain, Routes: routes}},
	}
}

// assignmentOf are the endpoints that a cluster holds itself.
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

// originalDst is a cluster that dials the address the workload dialled.
func originalDst(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: clusterType(clusterv3.Cluster_ORIGINAL_DST),
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       seconds(passthroughConnectTimeout),
	}
}

// httpOptions are the upstream options of a cluster whose endpoints speak a protocol themselves.
func httpOptions(c *draft.Cluster, p mesh.Protocol) {
	switch p {
	case mesh.ProtocolHTTP:
		c.HTTP = draft.HTTP1Options
	case mesh.ProtocolHTTP2, mesh.ProtocolGRPC:
		c.HTTP = draft.HTTP2Options
	}
}

// endpointTags are the tags that others see of an endpoint.
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
