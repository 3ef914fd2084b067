package envoy_test

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3" // protojson needs it, see below
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/path/rewrite/uri_template/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// of decodes a message from JSON.
func of[T proto.Message](m T, text string) T {
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		panic(text + ": " + err.Error())
	}
	return m
}

// filterOf returns an HTTP filter with the given fields. Its type is in
// envoy.extensions.filters.http.
func filterOf(typeName, fields string) *hcmv3.HttpFilter {
	return of(&hcmv3.HttpFilter{},
		`{"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.`+typeName+`", `+
			fields+`}}`)
}

// partCases returns the cases of rules that apply to several kinds of filters, routes, clusters,
// and listeners.
func partCases() []ruleCase {
	const manager = "/filterChains/0/filters/0/typedConfig"
	const filter = manager + "/httpFilters/0/typedConfig"
	const route = manager + "/routeConfig/virtualHosts/0/routes/0"
	var out []ruleCase
	for _, c := range []struct {
		name, typeName, fields string
		at, words              string
	}{
		{"JWT: no such provider", "jwt_authn.v3.JwtAuthentication",
			`"rules": [{"match": {"prefix": "/"}, "requires": {"requiresAny": {"requirements": [{"providerName": "a"}]}}}]`,
			"/rules/0/requires/requiresAny/requirements/0/providerName", `no provider "a"`},
		{"JWT: no such requirement", "jwt_authn.v3.JwtAuthentication",
			`"rules": [{"match": {"prefix": "/"}, "requirementName": "a"}]`, "/rules/0/requirementName", `no "a"`},
		{"JWT: no key set", "jwt_authn.v3.JwtAuthentication", `"providers": {"a": {"localJwks": {"inlineString": "{}"}}}`,
			"/providers/a/localJwks", "Key Set"},
		{"JWT: no URI", "jwt_authn.v3.JwtAuthentication",
			`"providers": {"a": {"remoteJwks": {"httpUri": {"uri": "a.com", "cluster": "static", "timeout": "1s"}}}}`,
			"/providers/a/remoteJwks/httpUri/uri", "https://"},
		{"Wasm: no module", "wasm.v3.Wasm",
			`"config": {"vmConfig": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"inlineString": "x"}}}}`,
			"/config/vmConfig/code/local", "not a Wasm module"},
		{"Wasm: an empty module", "wasm.v3.Wasm",
			`"config": {"vmConfig": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"inlineBytes": "AGFzbQEAAAA="}}}}`,
			"/config/vmConfig/code/local", "is empty"},
		{"Wasm: nothing compiled in", "wasm.v3.Wasm",
			`"config": {"vmConfig": {"runtime": "envoy.wasm.runtime.null", "code": {"local": {"inlineString": "x"}}}}`,
			"/config/vmConfig/runtime", "no compiled-in code"},
		{"Lua: a syntax error", "lua.v3.Lua", `"inlineCode": "x = = 1"`, "/inlineCode", "is unexpected"},
		{"Wasm: no runtime", "wasm.v3.Wasm",
			`"config": {"vmConfig": {"runtime": "odd", "code": {"local": {"inlineString": "x"}}}}`,
			"/config/vmConfig/runtime", "no Wasm runtime"},
		{"Lua: two codes", "lua.v3.Lua", `"inlineCode": "x = 1", "defaultSourceCode": {"inlineString": "x = 1"}`,
			"/inlineCode", "cannot be combined"},
		{"token bucket: of a descriptor", "local_ratelimit.v3.LocalRateLimit",
			`"statPrefix": "a", "descriptors": [{"entries": [{"key": "a", "value": "b"}], "tokenBucket": {"maxTokens": 1, "fillInterval": "0.010s"}}]`,
			"/descriptors/0/tokenBucket/fillInterval", "below 50ms"},
		{"token bucket: a descriptor twice", "local_ratelimit.v3.LocalRateLimit",
			`"statPrefix": "a", "descriptors": [{"entries": [{"key": "a", "value": "b"}], "tokenBucket": {"maxTokens": 1, "fillInterval": "1s"}}, {"entries": [{"key": "a", "value": "b"}], "tokenBucket": {"maxTokens": 1, "fillInterval": "1s"}}]`,
			"/descriptors/1", "is listed twice"},
		{"authorization: a prefix without a slash", "ext_authz.v3.ExtAuthz",
			`"httpService": {"serverUri": {"uri": "http://a", "cluster": "static", "timeout": "1s"}, "pathPrefix": "a"}, "transportApiVersion": "V3"`,
			"/httpService/pathPrefix", "must begin with /"},
		{"health: cached, but not passed through",
			"health_check.v3.HealthCheck", `"passThroughMode": false, "cacheTime": "1s"`, "/cacheTime", "pass_through_mode"},
		{"headers to metadata: a header without a rule", "header_to_metadata.v3.Config",
			`"requestRules": [{"header": "a"}]`, "/requestRules/0", "on_header_missing"},
		{"users: none", "basic_auth.v3.BasicAuth", `"users": {"inlineString": ""}`, "/users", "empty"},
		{"keys: one twice", "api_key_auth.v3.ApiKeyAuth",
			`"credentials": [{"key": "k", "client": "a"}, {"key": "k", "client": "b"}], "keySources": [{"header": "a"}]`,
			"/credentials/1", "is listed twice"},
		{"transcoder: no such service", "grpc_json_transcoder.v3.GrpcJsonTranscoder",
			`"protoDescriptorBin": "eHg=", "services": ["a"]`, "/services/0", `no service "a"`},
	} {
		out = append(out, ruleCase{205, c.name, finding.Reject, "", filter + c.at, c.words,
			func(b *base) { b.prepend(filterOf(c.typeName, c.fields)) }})
	}
	for _, c := range []struct {
		rule           int
		name, resource string
		at, words      string
		fields         string
	}{
		{44, "on a route", "", route + "/route/upgradeConfigs/1", "twice",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static", "upgradeConfigs": [{"upgradeType": "websocket"}, {"upgradeType": "WebSocket"}]}}`},
		{44, "connect_config without CONNECT", "", route + "/route/upgradeConfigs/0/connectConfig", "CONNECT",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static", "upgradeConfigs": [{"upgradeType": "websocket", "connectConfig": {}}]}}`},
		{206, "a URI template without a slash", "", route + "/match/pathMatchPolicy/typedConfig/pathTemplate", "slash",
			`{"match": {"pathMatchPolicy": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig", "pathTemplate": "a"}}}, "route": {"cluster": "static"}}`},
		{206, "a URI template that is not matched by one", "", route + "/route/pathRewritePolicy", "path_match_policy",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static", "pathRewritePolicy": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig", "pathTemplateRewrite": "/a"}}}}`},
		{62, "a mirror without a cluster", "", route + "/route/requestMirrorPolicies/0", "",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static", "requestMirrorPolicies": [{}]}}`},
		{62, "a mirror with both", "", route + "/route/requestMirrorPolicies/0", "",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static", "requestMirrorPolicies": [{"cluster": "static", "clusterHeader": "x-a"}]}}`},
		{50, "the name of a span", "", route + "/tracing/operation",
			"position", `{"match": {"prefix": "/"}, "route": {"cluster": "static"}, "tracing": {"operation": "%NO%"}}`},
		{50, "the name of an upstream span", "", route + "/tracing/upstreamOperation", "position",
			`{"match": {"prefix": "/"}, "route": {"cluster": "static"}, "tracing": {"upstreamOperation": "%REQ(a%"}}`},
	} {
		out = append(out, ruleCase{c.rule, c.name, finding.Reject, c.resource, c.at, c.words,
			func(b *base) { b.inline().VirtualHosts[0].Routes[0] = of(&routev3.Route{}, c.fields) }})
	}
	for _, c := range []struct {
		rule            int
		name, at, words string
		fields          string
	}{
		{23, "a custom check that is none", "/healthChecks/0/customHealthCheck", "health check",
			`{"healthChecks": [{"timeout": "1s", "interval": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "customHealthCheck": {"name": "odd", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}}}]}`},
		{204, "statuses in reverse", "/healthChecks/0/httpHealthCheck/expectedStatuses/0", "statuses",
			`{"healthChecks": [{"timeout": "1s", "interval": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "httpHealthCheck": {"path": "/", "expectedStatuses": [{"start": 300, "end": 200}]}}]}`},
		{203, "a policy that is not given", "/loadBalancingPolicy",
			"load_balancing_policy", `{"lbPolicy": "LOAD_BALANCING_POLICY_CONFIG"}`},
		{203, "a bind address that is a name", "/upstreamBindConfig/sourceAddress",
			"not an IP address", `{"upstreamBindConfig": {"sourceAddress": {"address": "a.com", "portValue": 0}}}`},
		{203, "times in reverse", "/dnsFailureRefreshRate/maxInterval",
			"below", `{"dnsFailureRefreshRate": {"baseInterval": "2s", "maxInterval": "1s"}}`},
	} {
		out = append(out, ruleCase{c.rule, c.name, finding.Reject, "static", c.at, c.words,
			func(b *base) { proto.Merge(b.static, of(&clusterv3.Cluster{}, c.fields)) }})
	}
	return append(out, []ruleCase{
		{203, "two categories to drop", finding.Reject, "eds", "/policy/dropOverloads", "accepts only one", func(b *base) {
			b.assigned.Policy = of(&endpointv3.ClusterLoadAssignment_Policy{},
				`{"dropOverloads": [{"category": "a"}, {"category": "b"}]}`)
		}},
		{78, "no address by EDS", finding.Reject, "eds", "/endpoints/0/lbEndpoints/0/endpoint/address",
			"no address", func(b *base) {
				b.assigned.Endpoints[0].LbEndpoints[0].GetEndpoint().Address = nil
			}},
		{95, "another name without its oid", finding.Reject, "ca", "/validationContext/matchTypedSubjectAltNames/0/oid",
			"oid", func(b *base) {
				b.ca.GetValidationContext().MatchTypedSubjectAltNames = uriNames()
				b.ca.GetValidationContext().MatchTypedSubjectAltNames[0].SanType = 5
			}},
		{1, "a pipe with a long path", finding.Reject, "zz", "/address/pipe/path", "107", func(b *base) {
			b.more = append(b.more,
				secondListener("zz", of(&corev3.Address{}, `{"pipe": {"path": "/`+strings.Repeat("x", 107)+`"}}`)))
		}},
		{1, "an abstract pipe with a mode", finding.Reject, "zz", "/address/pipe/mode", "no mode", func(b *base) {
			b.more = append(b.more, secondListener("zz", of(&corev3.Address{}, `{"pipe": {"path": "@x", "mode": 384}}`)))
		}},
		{25, "an IPv4 address in IPv6 form", finding.Reject, "zz", "/address/socketAddress/address",
			"use 10.0.0.1", func(b *base) {
				b.more = append(b.more, secondListener("zz", address("::ffff:10.0.0.1", 1)))
			}},
		{16, "reuse_port", finding.Reject, "zz", "/enableReusePort", "no socket", func(b *base) {
			l := secondListener("zz", nil)
			proto.Merge(l, of(&listenerv3.Listener{}, `{"internalListener": {}, "enableReusePort": true}`))
			b.more = append(b.more, l)
		}},
		{23, "an API listener", finding.Unusable, "zz", "/apiListener", "gRPC", func(b *base) {
			b.more = append(b.more, &listenerv3.Listener{Name: "zz", ApiListener: &listenerv3.ApiListener{}})
		}},
		{2, "chains that are discovered, and nothing chooses", finding.Reject, "", "/fcdsConfig",
			"filter_chain_matcher", func(b *base) {
				proto.Merge(b.listener, of(&listenerv3.Listener{}, `{"fcdsConfig": {"name": "x"}}`))
			}},
		{50, "the name of a span of all routes", finding.Reject, "", manager + "/tracing/operation",
			"position", func(b *base) {
				b.hcm.Tracing = of(&hcmv3.HttpConnectionManager_Tracing{}, `{"operation": "%NO%"}`)
			}},
		{206, "early data without a bound", finding.Reject, "", "/filterChains/1/filters/0/typedConfig/maxEarlyDataBytes",
			"ON_DOWNSTREAM_DATA", func(b *base) {
				b.tcp.UpstreamConnectMode = tcpv3.UpstreamConnectMode_ON_DOWNSTREAM_DATA
			}},
		{105, "CEL that is none", finding.Reject, "", manager + "/accessLog/0/typedConfig/logFormat/textFormatSource",
			"CEL", func(b *base) {
				b.file.GetLogFormat().
					Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText("%CEL(request.)%")}
			}},
	}...)
}

// partGoodCases returns configs that Envoy accepts and that an earlier version of the check
// reported.
func partGoodCases() []goodCase {
	return []goodCase{
		{10, "its own further address twice", func(b *base) {
			l := secondListener("zz", address("127.0.0.1", 9001))
			for range 2 {
				l.AdditionalAddresses = append(l.AdditionalAddresses,
					&listenerv3.AdditionalAddress{Address: address("127.0.0.2", 9001)})
			}
			b.more = append(b.more, l)
		}},
		{25, "an IPv4 address in IPv6 form that is meant", func(b *base) {
			l := secondListener("zz", address("::ffff:10.0.0.1", 1))
			l.Address.GetSocketAddress().Ipv4Compat = true
			b.more = append(b.more, l)
		}},
		{0, "the config of a filter that another listener has", func(b *base) {
			b.route().TypedPerFilterConfig = map[string]*anypb.Any{"cors": pack(&corsv3.CorsPolicy{})}
		}},
		{79, "a pipe of a cluster by DNS", func(b *base) {
			b.static.ClusterDiscoveryType = typed(clusterv3.Cluster_STRICT_DNS)
			b.static.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address = of(&corev3.Address{},
				`{"pipe": {"path": "/run/x"}}`)
		}},
		{83, "weights of a static cluster", func(b *base) {
			of(b.static.LoadAssignment, `{"clusterName": "static", "endpoints": [{"loadBalancingWeight": 4294967295}, {"loadBalancingWeight": 4294967295}]}`)
		}},
		{87, "old and new options together", func(b *base) {
			//lint:ignore SA1019 Envoy still reads it
			b.eds.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
		}},
		{108, "an authorization service that is not there", func(b *base) {
			b.prepend(filterOf("ext_authz.v3.ExtAuthz",
				`"grpcService": {"envoyGrpc": {"clusterName": "any"}}, "transportApiVersion": "V3"`))
		}},
	}
}
