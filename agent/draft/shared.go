package draft

import (
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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

// HTTP1Options and HTTP2Options are the HTTP options of most clusters. They are shared: compare with them, never
// change them.
var (
	HTTP1Options = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
	})
	HTTP2Options = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
	})
)

func explicit(c *httpv3.HttpProtocolOptions_ExplicitHttpConfig) *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: c}}
}

// The filters without options of their own, and the common options, packed once.
var (
	router    = packed(anypb.New(&routerv3.Router{}))
	grpcStats = packed(anypb.New(&grpcstatsv3.FilterConfig{EmitFilterState: true}))

	routerFilter    = httpFilter(NameRouter, router)
	grpcStatsFilter = httpFilter(NameGRPCStats, grpcStats)

	http1Only = map[string]*anypb.Any{NameHTTPOptions: packed(anypb.New(HTTP1Options))}
	http2Only = map[string]*anypb.Any{NameHTTPOptions: packed(anypb.New(HTTP2Options))}
)

// packed drops the error of packing a constant; TestConstantsPack shows that there is none.
func packed(a *anypb.Any, _ error) *anypb.Any { return a }

// Router is the terminal HTTP filter.
func Router() Extension { return Extension{Name: NameRouter, Packed: router} }

// GRPCStats counts gRPC calls.
func GRPCStats() Extension { return Extension{Name: NameGRPCStats, Packed: grpcStats} }
