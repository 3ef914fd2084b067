package check

import (
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// The good names and values are valid in every field, and there are few of them, so that duplicates
// occur. The bad ones break a rule in at least one field.
var (
	goodNames = []string{"a", "b", "svc-1", "svc-2", "x.y", "web.com", "outbound:10.0.0.1:80"}
	badNames  = []string{"A", "*", "*.x", "x*", "", "xdstp://x", "xdstp://a/t/x", "with space", "%", "%NO%", "\u00e4",
		"\xff", "a\nb", "a\x00b", ":path", "WEB.com", "Web.com", strings.Repeat("x", 300)}
	addresses = []string{"10.0.0.1", "10.0.0.2", "127.0.0.1"}
	badHosts  = []string{"::1", "::", "x", "", "::ffff:10.0.0.1"}
	ports     = []uint32{1, 80, 65535}
	badPorts  = []uint32{0, 65536, 1 << 20}
)

// script draws resources and records its choices. A replay repeats these choices except for one
// name or value, which it draws again.
type script struct {
	t       *rapid.T
	choices []int
	at      int
	replay  bool
	replace int   // index of the choice that differs
	names   []int // indexes of the choices of names and values
}

func (s *script) pick(n int, what string) int {
	if !s.replay {
		s.choices = append(s.choices, rapid.IntRange(0, n-1).Draw(s.t, what))
	}
	s.at++
	return s.choices[s.at-1]
}

func pickOf[T any](s *script, what string, good, bad []T) T {
	if !s.replay {
		s.names = append(s.names, len(s.choices))
	}
	if s.replay && s.at == s.replace {
		s.at++
		return rapid.SampledFrom(append(append([]T(nil), bad...), good...)).Draw(s.t, "another "+what)
	}
	return good[s.pick(len(good), what)]
}

func (s *script) name(what string) string { return pickOf(s, what, goodNames, badNames) }
func (s *script) rarely(what string) bool { return s.pick(8, what) == 7 }

func mustPack(m proto.Message) *anypb.Any {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		b = nil // the message contains invalid UTF-8
	}
	return &anypb.Any{TypeUrl: envoy.TypePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

func socketAddressOf(s *script) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       pickOf(s, "address", addresses, badHosts),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: pickOf(s, "port", ports, badPorts)},
		Ipv4Compat:    s.rarely("compat") && s.rarely("compat, again"),
	}}}
}

var routerFilter = &hcmv3.HttpFilter{Name: "router",
	ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: match.RouterURL}}}

func drawListener(s *script) proto.Message {
	log := &filelogv3.FileAccessLog{Path: "/x",
		AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{
				TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s.name("format")}},
			},
		}}}
	logs := []*accesslogv3.AccessLog{{Name: "x",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: mustPack(log)}}}
	var config proto.Message
	switch s.pick(3, "filter") {
	case 0:
		config = &tcpv3.TcpProxy{StatPrefix: s.name("stat"), AccessLog: logs,
			ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: s.name("cluster")}}
	case 1:
		config = &hcmv3.HttpConnectionManager{StatPrefix: s.name("stat"), HttpFilters: []*hcmv3.HttpFilter{routerFilter},
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
				RouteConfigName: s.name("rds"), ConfigSource: &corev3.ConfigSource{
					ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
				},
			}}}
	default:
		m := &hcmv3.HttpConnectionManager{StatPrefix: s.name("stat"), AccessLog: logs,
			HttpFilters: []*hcmv3.HttpFilter{routerFilter}}
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: drawRoutes(s).(*routev3.RouteConfiguration)}
		config = m
	}
	l := &listenerv3.Listener{
		Name: s.name("name"), StatPrefix: s.name("listener stat"), Address: socketAddressOf(s),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "f",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustPack(config)}}}}},
	}
	if s.rarely("additional") {
		l.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: socketAddressOf(s)}}
	}
	l.Metadata = drawMetadata(s)
	return l
}

func drawMetadata(s *script) *corev3.Metadata {
	if s.pick(2, "no metadata") == 0 {
		return nil
	}
	var v *structpb.Value
	switch s.pick(6, "value") {
	case 0:
		v = structpb.NewNumberValue(1)
	case 1:
		v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNullValue()}})
	default:
		v = structpb.NewStringValue(s.name("value"))
	}
	return &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{s.name("key"): {Fields: map[string]*structpb.Value{s.name("field"): v}}},
	}
}

func drawRoutes(s *script) proto.Message {
	rc := &routev3.RouteConfiguration{Name: s.name("routes")}
	for range 1 + s.pick(4, "hosts")/3 {
		h := &routev3.VirtualHost{Name: s.name("vhost")}
		for range 1 + s.pick(3, "domains")/2 {
			h.Domains = append(h.Domains, s.name("domain"))
		}
		for range s.pick(3, "routes") {
			h.Routes = append(h.Routes, &routev3.Route{
				Name: s.name("route"), Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier:      &routev3.RouteAction_Cluster{Cluster: s.name("cluster")},
					RequestMirrorPolicies: drawMirror(s),
				}},
			})
		}
		rc.VirtualHosts = append(rc.VirtualHosts, h)
	}
	if s.pick(2, "validates") == 0 {
		rc.ValidateClusters = wrapperspb.Bool(s.pick(2, "validate") == 0)
	}
	return rc
}

// drawMirror returns a cluster reference in a field that is part of the shape. The referenced name
// may also occur in fields outside of the shape.
func drawMirror(s *script) []*routev3.RouteAction_RequestMirrorPolicy {
	if !s.rarely("mirror") {
		return nil
	}
	return []*routev3.RouteAction_RequestMirrorPolicy{{Cluster: goodNames[s.pick(3, "mirror cluster")]}}
}

func drawCluster(s *script) proto.Message {
	c := &clusterv3.Cluster{
		Name: s.name("name"), AltStatName: s.name("alt"), ConnectTimeout: durationpb.New(1e9), Metadata: drawMetadata(s),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: s.name("service"), EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			},
		},
	}
	if s.pick(3, "endpoints") == 0 {
		// The rules for a static cluster are stricter than those for a cluster with DNS.
		kind := []clusterv3.Cluster_DiscoveryType{clusterv3.Cluster_STATIC, clusterv3.Cluster_STRICT_DNS}[s.pick(2, "type")]
		host := []string{"address", "name"}[s.pick(2, "host")]
		a := &corev3.SocketAddress{PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}}
		if host == "name" {
			a.Address = pickOf(s, "host", goodNames, append(badHosts, badNames...))
		} else {
			a.Address = pickOf(s, "host", append(addresses, "::1"), badNames)
		}
		c.ClusterDiscoveryType, c.EdsClusterConfig = &clusterv3.Cluster_Type{Type: kind}, nil
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: s.name("assigned"),
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{
					{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
						Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: a}},
					}}}},
			}}}
	}
	if s.pick(2, "tls") == 0 {
		c.TransportSocket = &corev3.TransportSocket{Name: "tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: mustPack(&tlsv3.UpstreamTlsContext{
				Sni: s.name("sni"),
				CommonTlsContext: &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						DefaultValidationContext: &tlsv3.CertificateValidationContext{
							MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
								SanType: tlsv3.SubjectAltNameMatcher_URI,
								Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s.name("san")}},
							}}},
						ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "a", SdsConfig: &corev3.ConfigSource{
							ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
						}},
					},
				}},
			})}}
	}
	return c
}

func drawAssignment(s *script) proto.Message {
	return &endpointv3.ClusterLoadAssignment{ClusterName: s.name("name"), Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddressOf(s)}},
			Metadata:            drawMetadata(s),
			LoadBalancingWeight: wrapperspb.UInt32([]uint32{1, 1, 1, 1, 1, 1, 0, 1<<32 - 1}[s.pick(8, "weight")]),
		}},
	}}}
}
