package draft

import (
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of Envoy's extensions.
const (
	NameHCM         = "envoy.filters.network.http_connection_manager"
	NameTCPProxy    = "envoy.filters.network.tcp_proxy"
	NameRouter      = "envoy.filters.http.router"
	NameGRPCStats   = "envoy.filters.http.grpc_stats"
	NameHTTPOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	NameTLS         = "envoy.transport_sockets.tls"
)

// websocket is the value of the Upgrade header for WebSockets.
const websocket = "websocket"

// A proxy has thousands of listeners and clusters that differ only in a few names. They point to
// shared values, which are validated and encoded once. To use another value, replace the pointer.
// Never change the shared values.
var (
	// HTTP1Options and HTTP2Options are the HTTP options of most clusters; see Cluster.EditHTTP.
	HTTP1Options = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
		},
	})
	HTTP2Options = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		},
	})
	// ADS is the config source of all discovered resources.
	ADS = &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
	// EDS is the config of clusters whose endpoints are discovered under the name of the cluster.
	EDS = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ADS}
	// InternalAddresses are the addresses of peers whose x-envoy headers are trusted.
	InternalAddresses = &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: []*corev3.CidrRange{
		{AddressPrefix: "10.0.0.0", PrefixLen: wrapperspb.UInt32(8)},
		{AddressPrefix: "192.168.0.0", PrefixLen: wrapperspb.UInt32(16)},
		{AddressPrefix: "172.16.0.0", PrefixLen: wrapperspb.UInt32(12)},
		{AddressPrefix: "127.0.0.1", PrefixLen: wrapperspb.UInt32(32)},
	}}
	// WebSockets enables WebSocket upgrades.
	WebSockets = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: websocket}}
	// NoWebSockets disables WebSocket upgrades for a route.
	NoWebSockets = []*routev3.RouteAction_UpgradeConfig{{UpgradeType: websocket, Enabled: wrapperspb.Bool(false)}}
	// ExtendedCONNECT enables upgrades over HTTP/2 (RFC 8441).
	ExtendedCONNECT = &corev3.Http2ProtocolOptions{AllowConnect: true}
	// HTTP10 accepts HTTP/1.0 requests, which Envoy answers with 426 by default.
	HTTP10 = &corev3.Http1ProtocolOptions{AcceptHttp_10: true}
	// PlainFilters and GRPCFilters are the HTTP filters of a listener without policies. append
	// copies them.
	PlainFilters = []Extension{{Name: NameRouter, Packed: router}}
	GRPCFilters  = []Extension{{Name: NameGRPCStats,
		Packed: packed(anypb.New(&grpcstatsv3.FilterConfig{EmitFilterState: true}))}, PlainFilters[0]}

	router = packed(anypb.New(&routerv3.Router{}))
)

// The shared values as encoded fields of the messages that contain them.
var (
	http1Field = field(&clusterv3.Cluster{
		TypedExtensionProtocolOptions: map[string]*anypb.Any{NameHTTPOptions: packed(anypb.New(HTTP1Options))},
	})
	http2Field = field(&clusterv3.Cluster{
		TypedExtensionProtocolOptions: map[string]*anypb.Any{NameHTTPOptions: packed(anypb.New(HTTP2Options))},
	})
	downstreamField = field(
		&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		}})
	edsField      = field(&clusterv3.Cluster{EdsClusterConfig: EDS})
	internalField = field(&hcmv3.HttpConnectionManager{InternalAddressConfig: InternalAddresses})
	plainField    = field(&hcmv3.HttpConnectionManager{HttpFilters: httpFilters(PlainFilters)})
	grpcField     = field(&hcmv3.HttpConnectionManager{HttpFilters: httpFilters(GRPCFilters)})
)

func explicit(c *httpv3.HttpProtocolOptions_ExplicitHttpConfig) *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: c},
	}
}

// packed and field ignore the error of encoding a constant. TestConstants checks that there is
// none.
func packed(a *anypb.Any, _ error) *anypb.Any { return a }

func field(m proto.Message) []byte {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return b
}

func httpFilters(list []Extension) []*hcmv3.HttpFilter {
	out := make([]*hcmv3.HttpFilter, len(list))
	for i, e := range list {
		out[i] = e.httpFilter(e.Packed)
	}
	return out
}

const (
	// VirtualCluster is the cluster without endpoints for connections to virtual addresses that no
	// listener has.
	VirtualCluster = "outbound:passthrough:virtual"
	// VirtualListener and an address family are the name of a listener that receives only connections
	// to virtual addresses.
	VirtualListener = "outbound:virtual"
)

// Inspection times of plain TCP behind a listener filter.
var (
	patience      = durationpb.New(time.Hour)
	serverFirstIn = durationpb.New(time.Second)
)

// AwaitClient sets how long the listener filters of a plain TCP inbound wait for the first bytes of
// a client. Normally they wait for an hour, the idle timeout of TCP connections, and then close the
// connection: time does not decide whether it is plain. If the server sends first, a connection
// without bytes of the client is plain after a second.
func AwaitClient(l *listenerv3.Listener, serverFirst bool) {
	l.ListenerFiltersTimeout, l.ContinueOnListenerFiltersTimeout = patience, false
	if serverFirst {
		l.ListenerFiltersTimeout, l.ContinueOnListenerFiltersTimeout = serverFirstIn, true
	}
}

// Headers are request headers that many route configurations add. They are validated and encoded
// once.
type Headers struct {
	field []byte
}

// Bytes returns the wire form of the headers; nil for none.
func (h *Headers) Bytes() []byte {
	if h == nil {
		return nil
	}
	return h.field
}

// NewHeaders returns encoded headers. It fails if a name or value is invalid.
func NewHeaders(list ...*corev3.HeaderValueOption) (*Headers, error) {
	b, err := appendMessage(nil, &routev3.RouteConfiguration{RequestHeadersToAdd: list}, strict)
	if err != nil {
		return nil, err
	}
	return &Headers{field: b}, nil
}

// ClosedStatName returns the statistics prefix of a TCP filter chain whose cluster has no endpoints
// because of policies. It differs from that of the open chain, so that Envoy replaces the chain and
// drains the open connections, which a change of the cluster would not affect.
func ClosedStatName(s string) string { return StatName(s) + "_closed" }

// StatName converts the name of a cluster or listener to a valid statistics name as the reference
// does: Envoy splits names at dots, and its tag patterns do not match colons.
func StatName(s string) string {
	if !strings.ContainsAny(s, ".:[]") {
		return s
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(".:[]", r) {
			return '_'
		}
		return r
	}, s)
}
