package envoy_test

import (
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	cdnloopv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cdn_loop/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	modulesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	locallimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	mcprouterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/mcp_router/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	metadataformatv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/metadata/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func httpCases() []ruleCase {
	const (
		manager = "/filterChains/0/filters/0/typedConfig"
		routes  = manager + "/routeConfig"
		route   = routes + "/virtualHosts/0/routes/0"
	)
	return []ruleCase{
		{31, "TCP to nowhere", finding.Unusable, "", "/filterChains/1/filters/0/typedConfig/cluster",
			`"gone" does not exist`, func(b *base) { b.tcp.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: "gone"} }},
		{31, "a route to nowhere", finding.Warning, "", route + "/route/cluster", `"gone"`,
			func(b *base) { b.action().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: "gone"} }},
		{31, "a cluster that is held back", finding.Unusable, "", "/filterChains/1/filters/0/typedConfig/cluster",
			"is withheld", func(b *base) { b.static.ConnectTimeout = durationpb.New(-1) }},
		{40, "a filter behind the router", finding.Reject, "", manager + "/httpFilters/0", "move it to the end",
			func(b *base) {
				b.hcm.HttpFilters = append(b.hcm.HttpFilters, httpFilter("cors", &corsv3.Cors{}))
			}},
		{41, "no router", finding.Reject, "", manager + "/httpFilters/0", "router after it",
			func(b *base) { b.hcm.HttpFilters = []*hcmv3.HttpFilter{httpFilter("cors", &corsv3.Cors{})} }},
		{40, "an MCP router in front", finding.Reject, "", manager + "/httpFilters/0", "move it to the end",
			func(b *base) { b.prepend(httpFilter("mcp", &mcprouterv3.McpRouter{})) }},
		{41, "a filter that is used seldom", finding.Reject, "", manager + "/httpFilters/0", "router after it",
			func(b *base) {
				b.hcm.HttpFilters = []*hcmv3.HttpFilter{httpFilter("loop", &cdnloopv3.CdnLoopConfig{CdnId: "x"})}
			}},
		{42, "no filters", finding.Unusable, "", manager + "/httpFilters",
			"router", func(b *base) { b.hcm.HttpFilters = nil }},
		{43, "no routes", finding.Reject, "", manager + "/routeSpecifier",
			"required", func(b *base) { b.hcm.RouteSpecifier = nil }},
		{44, "an upgrade twice", finding.Reject, "", manager + "/upgradeConfigs/1", "twice", func(b *base) {
			b.hcm.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"},
				{UpgradeType: "WebSocket"}}
		}},
		{45, "an upgrade without a router", finding.Reject, "", manager + "/upgradeConfigs/0/filters/0",
			"router", func(b *base) {
				b.hcm.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket",
					Filters: []*hcmv3.HttpFilter{httpFilter("cors", &corsv3.Cors{})}}}
			}},
		{47, "both", finding.Reject, "", manager + "/stripMatchingHostPort", "set one", func(b *base) {
			b.hcm.StripMatchingHostPort = true
			b.hcm.StripPortMode = &hcmv3.HttpConnectionManager_StripAnyHostPort{StripAnyHostPort: true}
		}},
		{49, "not an address", finding.Reject, "", manager + "/internalAddressConfig/cidrRanges/0", "not an IP",
			func(b *base) {
				b.hcm.InternalAddressConfig = &hcmv3.HttpConnectionManager_InternalAddressConfig{
					CidrRanges: []*corev3.CidrRange{{AddressPrefix: "x"}},
				}
			}},
		{50, "of a local reply", finding.Reject, "", manager + "/localReplyConfig/bodyFormat/textFormatSource", "%REQ",
			func(b *base) {
				b.hcm.LocalReplyConfig = &hcmv3.LocalReplyConfig{BodyFormat: &corev3.SubstitutionFormatString{
					Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("%req(x)%")},
				}}
			}},
		{51, "no tracer", finding.Reject, "", manager + "/tracing/provider/typedConfig", "no tracer", func(b *base) {
			b.hcm.Tracing = &hcmv3.HttpConnectionManager_Tracing{Provider: &tracev3.Tracing_Http{Name: "x",
				ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: pack(&corsv3.Cors{})}}}
		}},
		{51, "no collector", finding.Reject, "", manager + "/tracing/provider/typedConfig/collectorCluster", `"gone"`,
			func(b *base) {
				b.hcm.Tracing = &hcmv3.HttpConnectionManager_Tracing{Provider: &tracev3.Tracing_Http{Name: "x",
					ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: pack(
						&tracev3.ZipkinConfig{CollectorCluster: "gone", CollectorEndpoint: "/",
							CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON})}}}
			}},
		{52, "of another filter", finding.Warning, "", route + "/typedPerFilterConfig/cors", "not a config for",
			func(b *base) {
				b.prepend(httpFilter("cors", &corsv3.Cors{}))
				b.route().TypedPerFilterConfig = map[string]*anypb.Any{"cors": pack(&httprbacv3.RBACPerRoute{})}
			}},
		{52, "no config of a filter", finding.Reject, "", routes + "/typedPerFilterConfig/x", "no config of an HTTP filter",
			func(b *base) {
				b.inline().TypedPerFilterConfig = map[string]*anypb.Any{"x": pack(wrapperspb.String("x"))}
			}},
		{52, "of no filter", finding.Lint, "", routes + "/virtualHosts/0/typedPerFilterConfig/x", "no HTTP filter",
			func(b *base) {
				b.inline().VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{"x": pack(&corsv3.CorsPolicy{})}
			}},
		{53, "a domain twice", finding.Reject, "", routes + "/virtualHosts/1/domains/1", `"web.com"`, func(b *base) {
			b.inline().VirtualHosts[1].Domains = []string{"*", "web.com"}
		}},
		{53, "in another case", finding.Reject, "rds", "/virtualHosts/0/domains/1", `"WEB.com"`,
			func(b *base) { b.routes.VirtualHosts[0].Domains = []string{"web.com", "WEB.com"} }},
		{54, "two stars", finding.Reject, "", routes + "/virtualHosts/1/domains/0", "any domain",
			func(b *base) { b.inline().VirtualHosts[0].Domains = []string{"*"} }},
		{55, "a name twice", finding.Warning, "", routes + "/virtualHosts/1/name", "is used twice",
			func(b *base) { b.inline().VirtualHosts[1].Name = "web" }},
		{56, "two stars in a domain", finding.Warning, "", routes + "/virtualHosts/0/domains/0", "as a wildcard",
			func(b *base) { b.inline().VirtualHosts[0].Domains = []string{"*.web.com:*"} }},
		{57, "not RE2", finding.Reject, "", route + "/match/safeRegex/regex", "RE2",
			func(b *base) { b.route().Match = regexPath("(?=a)") }},
		{57, "in a header", finding.Reject, "", route + "/match/headers/0/stringMatch/safeRegex/regex", "RE2", func(b *base) {
			b.route().Match.Headers = []*routev3.HeaderMatcher{{Name: "x",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
					MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "("}},
				}}}}
		}},
		{58, "above the limit", finding.Reject, "", route + "/match/safeRegex/regex",
			"max_program_size", func(b *base) { b.route().Match = regexPath(bigRegex) }},
		{58, "near the limit", finding.Warning, "", route + "/match/safeRegex/regex", "may be above", func(b *base) {
			b.route().Match = regexPath(bigRegex)
			b.facts.RE2Limit = 300
		}},
		{59, "a slash at the end", finding.Reject, "", route + "/match/pathSeparatedPrefix", "", func(b *base) {
			b.route().Match.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/a/"}
		}},
		{60, "nothing", finding.Reject, "", route + "/route/weightedClusters/clusters", "sum up to 0",
			func(b *base) { b.action().ClusterSpecifier = weighted(0, 0) }},
		{61, "too much", finding.Reject, "", route + "/route/weightedClusters/clusters", "4294967296",
			func(b *base) { b.action().ClusterSpecifier = weighted(1<<32-1, 1) }},
		{62, "both", finding.Reject, "", route + "/route/weightedClusters/clusters/0", "either", func(b *base) {
			w := weighted(1)
			w.WeightedClusters.Clusters[0].ClusterHeader = "x"
			b.action().ClusterSpecifier = w
		}},
		{63, "validated", finding.Reject, "", route + "/route/cluster", "validate_clusters", func(b *base) {
			b.inline().ValidateClusters = nil
			b.action().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: "gone"}
		}},
		{63, "a mirror", finding.Warning, "", route + "/route/requestMirrorPolicies/0/cluster", "mirrored", func(b *base) {
			b.action().RequestMirrorPolicies = []*routev3.RouteAction_RequestMirrorPolicy{{Cluster: "gone"}}
		}},
		{64, "a long body", finding.Reject, "", route + "/directResponse/body", "4097", func(b *base) {
			b.route().Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200,
				Body: inlineText(strings.Repeat("x", 4097))}}
		}},
		{65, "two rewrites", finding.Reject, "", route + "/route", "keep one", func(b *base) {
			b.action().PrefixRewrite = "/x"
			b.action().RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "a"},
				Substitution: "b"}
		}},
		{66, "max below base", finding.Reject, "", route + "/route/retryPolicy/retryBackOff/maxInterval",
			"below", func(b *base) {
				b.action().RetryPolicy = &routev3.RetryPolicy{
					RetryOn: "5xx",
					RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(2e9),
						MaxInterval: durationpb.New(1e9)},
				}
			}},
		{67, "an unknown word", finding.Warning, "", route + "/route/retryPolicy/retryOn", `"6xx"`,
			func(b *base) { b.action().RetryPolicy = &routev3.RetryPolicy{RetryOn: "5xx, 6xx"} }},
		{68, "a pseudo-header", finding.Reject, "", routes + "/virtualHosts/0/requestHeadersToAdd/0/header/key",
			"rewrite", func(b *base) {
				b.inline().VirtualHosts[0].RequestHeadersToAdd = header(":path", "/")
			}},
		{68, "Host is removed", finding.Reject, "", route + "/requestHeadersToRemove/0", "cannot be removed",
			func(b *base) { b.route().RequestHeadersToRemove = []string{"Host"} }},
		{68, "a lone percent sign", finding.Reject, "", route + "/responseHeadersToAdd/0/header/value", "%%",
			func(b *base) { b.route().ResponseHeadersToAdd = header("x", "100%") }},
		{69, "a matcher and routes", finding.Reject, "", routes + "/virtualHosts/0/matcher", "not both",
			func(b *base) { b.inline().VirtualHosts[0].Matcher = ports("80", "x") }},
		{70, "an empty range", finding.Warning, "", route + "/match/headers/0/rangeMatch", "no number", func(b *base) {
			b.route().Match.Headers = []*routev3.HeaderMatcher{{Name: "x",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: 5, End: 5}}}}
		}},
		{71, "below zero", finding.Reject, "", route + "/route/timeout", "not a duration",
			func(b *base) { b.action().Timeout = &durationpb.Duration{Seconds: -1} }},
		{71, "too long", finding.Reject, "", route + "/route/timeout", "not a duration",
			func(b *base) { b.action().Timeout = &durationpb.Duration{Seconds: 315_576_000_001} }},
		{99, "no principals", finding.Reject, "", manager + "/httpFilters/0/typedConfig/rules/policies/p/principals",
			"at least 1", func(b *base) {
				rules := allowAll()
				rules.Policies["p"].Principals = nil
				b.prepend(httpFilter("rbac", &httprbacv3.RBAC{Rules: rules}))
			}},
		{100, "a header", finding.Reject, "", "/filterChains/1/filters/0/typedConfig/rules/policies/p/principals/0/header",
			"the HTTP RBAC filter", func(b *base) {
				rules := allowAll()
				rules.Policies["p"].Principals = []*rbacv3.Principal{
					{Identifier: &rbacv3.Principal_Header{Header: &routev3.HeaderMatcher{Name: "x"}}},
				}
				b.network(&netrbacv3.RBAC{StatPrefix: "x", Rules: rules})
			}},
		{100, "no stat prefix", finding.Reject, "", "/filterChains/1/filters/0/typedConfig/statPrefix",
			"at least 1", func(b *base) { b.network(&netrbacv3.RBAC{Rules: allowAll()}) }},
		{101, "an empty port range", finding.Reject, "", manager +
			"/httpFilters/0/typedConfig/rules/policies/p/permissions/0/destinationPortRange", "no port", func(b *base) {
			b.permission(&rbacv3.Permission{
				Rule: &rbacv3.Permission_DestinationPortRange{DestinationPortRange: &typev3.Int32Range{Start: 80, End: 80}},
			})
		}},
		{101, "no address", finding.Reject, "", manager +
			"/httpFilters/0/typedConfig/rules/policies/p/principals/0/orIds/ids/0/remoteIp", "not an IP", func(b *base) {
			b.principal(
				&rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: []*rbacv3.Principal{
					{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: &corev3.CidrRange{AddressPrefix: "x"}}},
				}}}})
		}},
		{101, "not RE2", finding.Reject, "", manager +
			"/httpFilters/0/typedConfig/rules/policies/p/principals/0/authenticated/principalName/safeRegex/regex", "RE2",
			func(b *base) {
				b.principal(&rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{
					Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: &matcherv3.StringMatcher{
						MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "("}},
					}}}})
			}},
		{102, "rules and a matcher", finding.Warning, "", manager + "/httpFilters/0/typedConfig/rules", "keep one",
			func(b *base) {
				b.prepend(httpFilter("rbac", &httprbacv3.RBAC{Rules: allowAll(), Matcher: ports("80", "x")}))
			}},
		{103, "a status that Envoy cannot send", finding.Reject, "", manager + "/httpFilters/0/typedConfig/abort/httpStatus",
			"", func(b *base) { b.prepend(httpFilter("fault", abort(100))) }},
		{103, "no delay", finding.Reject, "", manager + "/httpFilters/0/typedConfig/delay/fixedDelay", "greater than 0s",
			func(b *base) {
				b.prepend(httpFilter("fault", &faultv3.HTTPFault{Delay: &commonfaultv3.FaultDelay{
					FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(0)},
				}}))
			}},
		{104, "above the whole", finding.Warning, "", manager + "/httpFilters/0/typedConfig/abort/percentage/numerator",
			"always", func(b *base) {
				f := abort(503)
				f.Abort.Percentage.Numerator = 101
				b.prepend(httpFilter("fault", f))
			}},
		{105, "vector 37", finding.Reject, "", manager + "/accessLog/0/typedConfig/logFormat/textFormatSource",
			"at position 0", func(b *base) {
				b.file.GetLogFormat().
					Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("%req(x)%")}
			}},
		{105, "vector 38", finding.Reject, "", manager + "/accessLog/0/typedConfig/logFormat/textFormatSource",
			"at position 10", func(b *base) {
				b.file.GetLogFormat().
					Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("%DURATION%%")}
			}},
		{105, "in JSON", finding.Reject, "", manager + "/accessLog/0/typedConfig/logFormat/jsonFormat/k~11/x/1", "%NO%",
			func(b *base) {
				b.json(structpb.NewStructValue(&structpb.Struct{
					Fields: map[string]*structpb.Value{"x": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
						structpb.NewNumberValue(1), structpb.NewStringValue("%NO%"),
					}})}}))
			}},
		{105, "null", finding.Warning, "", manager + "/accessLog/0/typedConfig/logFormat/jsonFormat/k~11", "older Envoys",
			func(b *base) { b.json(structpb.NewNullValue()) }},
		{105, "a number for OpenTelemetry", finding.Reject, "", manager +
			"/accessLog/0/typedConfig/attributes/values/0/value", "use a string", func(b *base) {
			b.log(&otelv3.OpenTelemetryAccessLogConfig{GrpcService: grpcService("static"), LogName: "x",
				Attributes: &commonv1.KeyValueList{Values: []*commonv1.KeyValue{
					{Key: "k", Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: 1}}},
				}}})
		}},
		{105, "a format for OpenTelemetry", finding.Reject, "", manager +
			"/accessLog/0/typedConfig/body/kvlistValue/values/0/value/stringValue", "%", func(b *base) {
			b.log(&otelv3.OpenTelemetryAccessLogConfig{GrpcService: grpcService("static"), LogName: "x",
				Body: &commonv1.AnyValue{Value: &commonv1.AnyValue_KvlistValue{KvlistValue: &commonv1.KeyValueList{
					Values: []*commonv1.KeyValue{{Key: "k",
						Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: "100%"}}}},
				}}}})
		}},
		{106, "no path", finding.Reject, "", manager + "/accessLog/0/typedConfig/path", "at least 1",
			func(b *base) { b.file.Path = "" }},
		{106, "no directory", finding.Reject, "", manager + "/accessLog/0/typedConfig/path", "no such directory",
			func(b *base) {
				b.facts.Host = &finding.Host{Unwritable: map[string]string{"/var/log/a.log": "no such directory"}}
			}},
		{107, "a filter that says nothing", finding.Reject, "", manager + "/accessLog/0/filter/filterSpecifier",
			"required", func(b *base) { b.hcm.AccessLog[0].Filter = &accesslogv3.AccessLogFilter{} }},
		{107, "and of one", finding.Reject, "", manager + "/accessLog/0/filter/andFilter/filters", "at least 2",
			func(b *base) {
				one := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_NotHealthCheckFilter{
					NotHealthCheckFilter: &accesslogv3.NotHealthCheckFilter{},
				}}
				b.hcm.AccessLog[0].Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
					AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{one}},
				}}
			}},
		{205, "a bucket that is filled too often",
			finding.Reject, "", manager + "/httpFilters/0/typedConfig/tokenBucket/fillInterval", "below 50ms", func(b *base) {
				b.prepend(httpFilter("limit", &locallimitv3.LocalRateLimit{StatPrefix: "x",
					TokenBucket: &typev3.TokenBucket{MaxTokens: 1, FillInterval: durationpb.New(10 * time.Millisecond)}}))
			}},
		{205, "Lua without an end", finding.Reject, "", manager + "/httpFilters/0/typedConfig/defaultSourceCode",
			"end is missing", func(b *base) {
				b.prepend(httpFilter("lua", &luav3.Lua{DefaultSourceCode: inlineText("function f()")}))
			}},
		{206, "a plugin that is not there", finding.Reject, "", manager +
			"/routeConfig/virtualHosts/0/routes/0/route/clusterSpecifierPlugin", `no "x"`, func(b *base) {
			b.action().ClusterSpecifier = &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "x"}
		}},
		{108, "no collector", finding.Warning, "", manager +
			"/accessLog/0/typedConfig/commonConfig/grpcService/envoyGrpc/clusterName", `"gone"`, func(b *base) {
			b.log(&grpclogv3.HttpGrpcAccessLogConfig{CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{LogName: "x",
				GrpcService: grpcService("gone")}})
		}},
	}
}

func httpGoodCases() []goodCase {
	return []goodCase{
		{41, "an MCP router",
			func(b *base) { b.hcm.HttpFilters = []*hcmv3.HttpFilter{httpFilter("mcp", &mcprouterv3.McpRouter{})} }},
		{41, "code that is loaded", func(b *base) {
			b.hcm.HttpFilters = []*hcmv3.HttpFilter{httpFilter("code", &modulesv3.DynamicModuleFilter{})}
		}},
		{50, "a doubled percent sign", func(b *base) {
			b.hcm.LocalReplyConfig = &hcmv3.LocalReplyConfig{BodyFormat: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("100%%")},
			}}
		}},
		{52, "of its filter, and wrapped", func(b *base) {
			b.prepend(httpFilter("cors", &corsv3.Cors{}))
			b.route().TypedPerFilterConfig = map[string]*anypb.Any{"cors": pack(&corsv3.CorsPolicy{})}
			b.inline().VirtualHosts[1].TypedPerFilterConfig = map[string]*anypb.Any{
				"cors": pack(&routev3.FilterConfig{Disabled: true}),
			}
		}},
		{53, "a domain and its wildcard", func(b *base) {
			b.inline().VirtualHosts[0].Domains = []string{"web.com", "*.web.com", "web.*", "web.com:80"}
		}},
		{56, "a star for the port", func(b *base) { b.inline().VirtualHosts[0].Domains = []string{"web.com:*"} }},
		{58, "below the limit", func(b *base) {
			b.route().Match = regexPath(bigRegex)
			b.facts.RE2Limit = 1<<32 - 1
		}},
		{61, "just right", func(b *base) { b.action().ClusterSpecifier = weighted(1<<32-2, 1) }},
		{63, "of the bootstrap", func(b *base) {
			b.inline().ValidateClusters = wrapperspb.Bool(true)
			b.action().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: "xds"}
		}},
		{64, "as long as is allowed", func(b *base) {
			b.route().Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200,
				Body: inlineText(strings.Repeat("x", 4096))}}
		}},
		{67, "all words", func(b *base) {
			b.action().RetryPolicy = &routev3.RetryPolicy{RetryOn: "5xx,gateway-error, retriable-status-codes,cancelled"}
		}},
		{68, "a format",
			func(b *base) { b.route().RequestHeadersToAdd = header("x-a", "%DOWNSTREAM_REMOTE_ADDRESS% 100%%") }},
		{71, "zero and the longest", func(b *base) {
			b.action().Timeout, b.action().IdleTimeout = durationpb.New(0),
				&durationpb.Duration{Seconds: 9_223_372_035, Nanos: 999_999_999}
		}},
		{104, "the whole", func(b *base) {
			f := abort(503)
			f.Abort.Percentage = &typev3.FractionalPercent{Numerator: 10_000, Denominator: typev3.FractionalPercent_TEN_THOUSAND}
			b.prepend(httpFilter("fault", f))
		}},
		{105, "vector 38, doubled", func(b *base) {
			b.file.GetLogFormat().
				Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("100%%")}
		}},
		{105, "what a formatter brings", func(b *base) {
			f := b.file.GetLogFormat()
			f.Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("%METADATA(ROUTE:a:b)%")}
			f.Formatters = []*corev3.TypedExtensionConfig{{Name: "m", TypedConfig: pack(&metadataformatv3.Metadata{})}}
		}},
		{57, "a text that is not ended", func(b *base) { b.route().Match = safeRegex(`\Qa`) }},
		{57, "any byte", func(b *base) { b.route().Match = safeRegex(`/\C*`) }},
		{108, "a collector of the bootstrap", func(b *base) {
			b.log(&grpclogv3.HttpGrpcAccessLogConfig{CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{LogName: "x",
				GrpcService: grpcService("xds")}})
		}},
	}
}
