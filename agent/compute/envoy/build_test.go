package envoy_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// The helpers in this file build listeners as MeshPassthrough does, in a shorter form.

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func filter(name string, m proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(m)}}
}

func listenerFilter(name string, m proto.Message, off ...uint32) *listenerv3.ListenerFilter {
	f := &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(m)}}
	for _, port := range off {
		p := portPredicate(port)
		if f.FilterDisabled == nil {
			f.FilterDisabled = p
			continue
		}
		f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
				OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{
					Rules: []*listenerv3.ListenerFilterChainMatchPredicate{f.FilterDisabled, p},
				},
			}}
	}
	return f
}

func tcpProxy(cluster string) *listenerv3.Filter {
	return filter("tcp", &tcpv3.TcpProxy{StatPrefix: "s", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
}

func router() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "envoy.filters.http.router",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}
}

func manager(hosts ...*routev3.VirtualHost) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:  "s",
		HttpFilters: []*hcmv3.HttpFilter{router()},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "r",
			VirtualHosts: hosts, ValidateClusters: wrapperspb.Bool(false)}},
	}
}

func host(name, cluster string, domains ...string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: domains, Routes: []*routev3.Route{toCluster("", "/", cluster)}}
}

func toCluster(name, prefix, cluster string) *routev3.Route {
	return &routev3.Route{
		Name:  name,
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{
			Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}},
		},
	}
}

func cidr(s string) *corev3.CidrRange {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a := netip.MustParseAddr(s)
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// chain builds a filter chain from words: "tls api.example.com :443", "tcp 10.0.0.0/8", "http
// 10.0.0.1 :80". The cluster has the chain's name. An http chain routes to the given virtual hosts,
// or else to a catch-all host.
func chain(name, words string, hosts ...*routev3.VirtualHost) *listenerv3.FilterChain {
	m := &listenerv3.FilterChainMatch{}
	c := &listenerv3.FilterChain{Name: name, FilterChainMatch: m, Filters: []*listenerv3.Filter{tcpProxy(name)}}
	for i, w := range strings.Fields(words) {
		port, isPort := strings.CutPrefix(w, ":")
		switch {
		case i == 0 && w == "tls":
			m.TransportProtocol = "tls"
		case i == 0:
			m.TransportProtocol = "raw_buffer"
			if w == "http" {
				m.ApplicationProtocols = []string{"http/1.1", "h2c"}
				if hosts == nil {
					hosts = []*routev3.VirtualHost{host("any", name, "*")}
				}
				c.Filters = []*listenerv3.Filter{filter("hcm", manager(hosts...))}
			}
		case isPort:
			n, err := strconv.Atoi(port)
			if err != nil {
				panic(err)
			}
			m.DestinationPort = wrapperspb.UInt32(uint32(n))
		case w[0] >= '0' && w[0] <= '9' || strings.Contains(w, ":"):
			m.PrefixRanges = append(m.PrefixRanges, cidr(w))
		default:
			m.ServerNames = append(m.ServerNames, w)
		}
	}
	return c
}

// passthrough returns the listener to which outbound connections are redirected.
func passthrough(chains ...*listenerv3.FilterChain) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: "outbound:passthrough:ipv4", Address: address("0.0.0.0", 15001), UseOriginalDst: wrapperspb.Bool(true),
		ListenerFilters: []*listenerv3.ListenerFilter{
			listenerFilter("original_dst", &originaldstv3.OriginalDst{}),
			listenerFilter("tls_inspector", &tlsinspectorv3.TlsInspector{}),
			listenerFilter("http_inspector", &httpinspectorv3.HttpInspector{}),
		},
		FilterChains: chains,
	}
}

func originalDst(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(5e9),
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}}
}

// snapshot encodes the messages as a snapshot.
func snapshot(t testing.TB, messages ...proto.Message) *envoy.Snapshot {
	t.Helper()
	s := &envoy.Snapshot{}
	for _, m := range messages {
		r, err := envoy.NewResource(m)
		if err != nil {
			t.Fatal(err)
		}
		for k := range envoy.NumKinds {
			if k.URL() == "type.googleapis.com/"+string(m.ProtoReflect().Descriptor().FullName()) {
				s[k] = append(s[k], r)
			}
		}
	}
	return s
}

// through returns a connection to dst that is redirected to the passthrough listener.
func through(dst string, first match.FirstBytes, sni string) *match.Conn {
	d := netip.MustParseAddrPort(dst)
	entry := netip.MustParseAddrPort("127.0.0.1:15001")
	if d.Addr().Is6() {
		entry = netip.MustParseAddrPort("[::1]:15001")
	}
	return &match.Conn{Dst: d, Src: netip.MustParseAddrPort("10.9.9.9:40000"), Entry: entry, First: first, SNI: sni}
}

func portPredicate(port uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	return &listenerv3.ListenerFilterChainMatchPredicate{
		Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
			DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1},
		}}
}
