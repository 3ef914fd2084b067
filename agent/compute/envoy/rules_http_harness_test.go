package envoy_test

import (
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func httpFilter(name string, m proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(m)}}
}

func weighted(weights ...uint32) *routev3.RouteAction_WeightedClusters {
	w := &routev3.WeightedCluster{}
	for _, n := range weights {
		w.Clusters = append(w.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: "static", Weight: wrapperspb.UInt32(n)})
	}
	return &routev3.RouteAction_WeightedClusters{WeightedClusters: w}
}

func header(name, value string) []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, Value: value}}}
}

func regexPath(p string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: p}}}
}

func inlineText(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func (b *base) action() *routev3.RouteAction { return b.route().GetRoute() }

func (b *base) prepend(f *hcmv3.HttpFilter) {
	b.hcm.HttpFilters = append([]*hcmv3.HttpFilter{f}, b.hcm.HttpFilters...)
}

func (b *base) log(m proto.Message) {
	b.hcm.AccessLog[0].ConfigType = &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(m)}
}

func (b *base) json(v *structpb.Value) {
	b.file.AccessLogFormat = &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{
			JsonFormat: &structpb.Struct{Fields: map[string]*structpb.Value{"k/1": v}},
		},
	}}
}

func (b *base) principal(p *rbacv3.Principal) {
	rules := allowAll()
	rules.Policies["p"].Principals = []*rbacv3.Principal{p}
	b.prepend(httpFilter("rbac", &httprbacv3.RBAC{Rules: rules}))
}

func (b *base) permission(p *rbacv3.Permission) {
	rules := allowAll()
	rules.Policies["p"].Permissions = []*rbacv3.Permission{p}
	b.prepend(httpFilter("rbac", &httprbacv3.RBAC{Rules: rules}))
}

func (b *base) network(m *netrbacv3.RBAC) {
	b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
		return append([]*listenerv3.Filter{filter("rbac", m)}, f...)
	}
}

func grpcService(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}},
	}
}

func abort(status uint32) *faultv3.HTTPFault {
	return &faultv3.HTTPFault{Abort: &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: status},
		Percentage: &typev3.FractionalPercent{Numerator: 1}}}
}

// bigRegex compiles to a program of several hundred instructions.
var bigRegex = strings.Repeat("(a|b)c", 60)

func safeRegex(pattern string) *routev3.RouteMatch {
	return &routev3.RouteMatch{
		PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: pattern}},
	}
}
