package envoy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/config/ratelimit/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	_ "github.com/nearside-mesh/nearside/agent/compute/kinds" // links all message types of Envoy's API
)

func packAny(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err)
	}
	return a
}

// filtered returns a listener with network filters.
func filtered(filters ...proto.Message) *listenerv3.Listener {
	chain := &listenerv3.FilterChain{}
	for _, m := range filters {
		chain.Filters = append(chain.Filters,
			&listenerv3.Filter{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packAny(m)}})
	}
	return &listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{chain}}
}

// managerOf returns a connection manager with HTTP filters.
func managerOf(filters ...proto.Message) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{}
	for _, f := range filters {
		m.HttpFilters = append(m.HttpFilters,
			&hcmv3.HttpFilter{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packAny(f)}})
	}
	return m
}

func routed(a *routev3.RouteAction) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "h",
		Routes: []*routev3.Route{{Action: &routev3.Route_Route{Route: a}}}}}}
}

func viaGRPC(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}}}
}

func secured(names ...string) *corev3.TransportSocket {
	c := &tlsv3.CommonTlsContext{}
	for _, name := range names {
		c.TlsCertificateSdsSecretConfigs = append(c.TlsCertificateSdsSecretConfigs, &tlsv3.SdsSecretConfig{Name: name})
	}
	c.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
		ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "ca"}}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packAny(&tlsv3.UpstreamTlsContext{CommonTlsContext: c})}}
}

// refsOf formats the references of a resource. "*" is any cluster.
func refsOf(t *testing.T, m proto.Message) string {
	t.Helper()
	r, err := envoy.NewResource(m)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for k, short := range []string{"secret", "cluster", "endpoint", "listener", "route"} {
		names := r.Refs().Names(envoy.Kind(k))
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%q are not sorted or not unique", names)
		}
		for _, name := range names {
			if out = append(out, short+" "+name); !r.Refs().Has(envoy.Kind(k), name) {
				t.Errorf("%s is not found", name)
			}
		}
	}
	if r.Refs().AnyCluster() {
		out = append(out, "*")
	}
	return strings.Join(out, ", ")
}

// TestRefs checks each kind of reference, and that a name in any other field is not a reference.
func TestRefs(t *testing.T) {
	weighted := &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: &tcpv3.TcpProxy_WeightedCluster{
		Clusters: []*tcpv3.TcpProxy_WeightedCluster_ClusterWeight{{Name: "b"}, {Name: "a"}, {Name: "b"}}}}
	byRDS := managerOf()
	byRDS.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "outbound:x"}}
	inline := managerOf()
	inline.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routed(&routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "inline"}})}
	traced := managerOf()
	traced.Tracing = &hcmv3.HttpConnectionManager_Tracing{Provider: &tracev3.Tracing_Http{
		ConfigType: &tracev3.Tracing_Http_TypedConfig{
			TypedConfig: packAny(&tracev3.ZipkinConfig{CollectorCluster: "zipkin"}),
		}}}
	logged := filtered()
	logged.AccessLog = []*accesslogv3.AccessLog{{ConfigType: &accesslogv3.AccessLog_TypedConfig{
		TypedConfig: packAny(&grpclogv3.TcpGrpcAccessLogConfig{
			CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{GrpcService: viaGRPC("logs")}})}}}
	secure := filtered()
	secure.FilterChains[0].TransportSocket = secured("cert")
	byDefault := filtered()
	byDefault.DefaultFilterChain = filtered(
		&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "d"}}).FilterChains[0]
	perRoute := routed(&routev3.RouteAction{})
	perRoute.VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{"auth": packAny(&extauthzv3.ExtAuthzPerRoute{
		Override: &extauthzv3.ExtAuthzPerRoute_CheckSettings{CheckSettings: &extauthzv3.CheckSettings{
			ServiceOverride: &extauthzv3.CheckSettings_GrpcService{GrpcService: viaGRPC("auth")}}}})}
	unrelated := routed(&routev3.RouteAction{HashPolicy: []*routev3.RouteAction_HashPolicy{{
		PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: "backend"}}}}})
	unrelated.RequestHeadersToAdd = []*corev3.HeaderValueOption{{
		Header: &corev3.HeaderValue{Key: "backend", Value: "backend"}}}
	unrelated.VirtualHosts[0].Name = "backend"
	named := filtered(&tcpv3.TcpProxy{StatPrefix: "backend"}, &hcmv3.HttpConnectionManager{StatPrefix: "backend"})
	named.StatPrefix = "backend"
	named.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"backend": {
		Fields: map[string]*structpb.Value{"backend": structpb.NewStringValue("backend")}}}}
	jwt := &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{"p": {
		JwksSourceSpecifier: &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: &jwtv3.RemoteJwks{HttpUri: &corev3.HttpUri{
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "keys"}}}}}}}
	limited := &httplimitv3.RateLimit{RateLimitService: &ratelimitv3.RateLimitServiceConfig{GrpcService: viaGRPC("limit")}}

	for what, c := range map[string]struct {
		m    proto.Message
		want string
	}{
		"TCP proxy": {filtered(&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "a"}}),
			"cluster a"},
		"weighted TCP":      {filtered(&tcpv3.TcpProxy{ClusterSpecifier: weighted}), "cluster a, cluster b"},
		"default chain":     {byDefault, "cluster d"},
		"RDS":               {filtered(byRDS), "route outbound:x"},
		"inline routes":     {filtered(inline), "cluster inline"},
		"tracing":           {filtered(traced), "cluster zipkin"},
		"access log":        {logged, "cluster logs"},
		"JWT keys":          {filtered(managerOf(jwt)), "cluster keys"},
		"rate limit":        {filtered(managerOf(limited)), "cluster limit"},
		"listener secrets":  {secure, "secret ca, secret cert"},
		"override of route": {perRoute, "cluster auth"},
		"authorization": {filtered(managerOf(&extauthzv3.ExtAuthz{
			Services: &extauthzv3.ExtAuthz_GrpcService{GrpcService: viaGRPC("auth")}})), "cluster auth"},
		//lint:ignore SA1019 Envoy still reads it
		"Lua": {filtered(managerOf(&luav3.Lua{InlineCode: "x"})), "*"},
		"API listener": {&listenerv3.Listener{Name: "l",
			ApiListener: &listenerv3.ApiListener{ApiListener: packAny(byRDS)}}, "route outbound:x"},
		"route": {routed(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"}}), "cluster a"},
		"weighted route": {routed(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{
			WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "b"},
				{Name: "a"}}}}}), "cluster a, cluster b"},
		"mirror": {routed(&routev3.RouteAction{RequestMirrorPolicies: []*routev3.RouteAction_RequestMirrorPolicy{{
			Cluster: "shadow"}}}), "cluster shadow"},
		"header": {routed(&routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"}}), "*"},
		"plugin": {routed(&routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}), "*"},
		"unrelated names in routes":     {unrelated, ""},
		"unrelated names in a listener": {named, ""},
		"endpoints of the same name": {&clusterv3.Cluster{Name: "c",
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{}}, "endpoint c"},
		"endpoints of another name": {&clusterv3.Cluster{Name: "c",
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}}, "endpoint s"},
		"static cluster": {&clusterv3.Cluster{Name: "c", AltStatName: "a"}, ""},
		"cluster secrets": {&clusterv3.Cluster{Name: "c", TransportSocket: secured("one"),
			TransportSocketMatches: []*clusterv3.Cluster_TransportSocketMatch{{Name: "m", TransportSocket: secured("two")}}},
			"secret ca, secret one, secret two"},
		"aggregate": {&clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{
			ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "aggregate",
				TypedConfig: packAny(&aggregatev3.ClusterConfig{Clusters: []string{"b", "a"}})}}}, "cluster a, cluster b"},
		"endpoints": {&endpointv3.ClusterLoadAssignment{ClusterName: "c"}, ""},
		"secret":    {&tlsv3.Secret{Name: "s"}, ""},
	} {
		if got := refsOf(t, c.m); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestRefsOfPacked checks that a packed resource has its own references and shares equal ones.
func TestRefsOfPacked(t *testing.T) {
	encode := func(cluster, stat string) ([]byte, *envoy.Refs) {
		m := filtered(&tcpv3.TcpProxy{StatPrefix: stat + strings.Repeat("x", 300),
			ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
		r, err := envoy.NewResource(m)
		if err != nil {
			t.Fatal(err)
		}
		return r.Body(), r.Refs()
	}
	body, refs := encode("a", "1")
	base := envoy.Whole("l", "1", body, refs).Base()
	for cluster, shared := range map[string]bool{"a": true, "b": false} {
		body, refs := encode(cluster, "2")
		r := envoy.Packed("l", "2", body, refs, base)
		if r == nil || !slices.Equal(r.Refs().Names(envoy.KindCluster), []string{cluster}) {
			t.Fatalf("%s: packed as %v", cluster, r)
		}
		if r.Refs() == refs && shared {
			t.Errorf("%s: the references are stored twice", cluster)
		}
	}
}

// notReferences lists the fields whose names contain "cluster", in messages of listeners, route
// configurations, and clusters, that do not refer to an xDS cluster.
var notReferences = []string{
	"envoy.config.bootstrap.", "envoy.config.core.v3.Node.", "envoy.config.endpoint.", "envoy.config.metrics.",
	"envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig.cluster_name", // the name of an implementation
	"envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster",       // a condition
	"envoy.extensions.filters.network.reverse_tunnel.",                        // identifiers of peers
	"envoy.service.", "envoy.data.", "envoy.admin.", "envoy.api.v2.",
}

// TestRefFields checks that every field of Envoy's API that may refer to a resource is known.
func TestRefFields(t *testing.T) {
	count := 0
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			name := string(f.FullName())
			ignored := slices.ContainsFunc(notReferences, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if !strings.HasPrefix(name, "envoy.") || f.Kind() != protoreflect.StringKind || ignored {
				continue
			}
			last := string(f.Name())
			if strings.Contains(last, "cluster") || last == "route_config_name" || last == "route_configuration_name" {
				if count++; !envoy.IsReference(f.FullName()) {
					t.Errorf("%s is not among the fields that refer to resources", name)
				}
			}
		}
		return true
	})
	if count < 30 {
		t.Errorf("only %d fields were looked at", count)
	}
	for name := range envoy.References() {
		if _, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLogTargets checks that LogTargets finds the files and collectors of all loggers of a
// listener.
func TestLogTargets(t *testing.T) {
	file := func(path string) []*accesslogv3.AccessLog {
		return []*accesslogv3.AccessLog{{ConfigType: &accesslogv3.AccessLog_TypedConfig{
			TypedConfig: packAny(&filelogv3.FileAccessLog{Path: path})}}}
	}
	collector := viaGRPC("c")
	collector.GetEnvoyGrpc().Authority = "route.otlp"
	m := managerOf()
	m.AccessLog = append(file("/http"), &accesslogv3.AccessLog{ConfigType: &accesslogv3.AccessLog_TypedConfig{
		TypedConfig: packAny(&grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{GrpcService: collector}})}})
	l := filtered(m, &tcpv3.TcpProxy{StatPrefix: "/stat", AccessLog: file("/tcp")})
	l.AccessLog = file("/listener")
	r, err := envoy.NewResource(l)
	if err != nil {
		t.Fatal(err)
	}
	got := envoy.LogTargets([]*envoy.Resource{r})
	if want := "map[/http:true /listener:true /tcp:true route.otlp:true]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// FuzzRefs checks that the search for references handles any body.
func FuzzRefs(f *testing.F) {
	//lint:ignore SA1019 Envoy still reads it
	for _, m := range []proto.Message{filtered(managerOf(&luav3.Lua{InlineCode: "x"})), routed(&routev3.RouteAction{})} {
		r, err := envoy.NewResource(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(envoy.KindListener), r.Body())
	}
	nested := &anypb.Any{}
	for range 300 {
		nested = packAny(nested)
	}
	l := filtered()
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: nested}}
	if r, err := envoy.NewResource(l); err == nil {
		f.Add(byte(envoy.KindListener), r.Body())
	}
	var finder envoy.RefFinder
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		k := envoy.Kind(kind) % envoy.NumKinds
		refs := finder.Find(k, "n", body)
		for i := range envoy.NumKinds {
			for _, name := range refs.Names(i) {
				if name != "n" && !strings.Contains(string(body), name) {
					t.Errorf("%q is not in the body", name)
				}
			}
		}
	})
}
