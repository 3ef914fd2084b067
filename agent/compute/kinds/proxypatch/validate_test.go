package proxypatch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// patch returns a MeshProxyPatch with one modification.
func patch(mod string) string {
	return `{"type":"MeshProxyPatch","mesh":"default","name":"p","spec":{"default":{"appendModifications":[` + mod + `]}}}`
}

// with returns a modification with a text value.
func with(target, op, match, value string) string {
	text, _ := json.Marshal(value)
	m := `{"operation":"` + op + `",`
	if match != "" {
		m += `"match":` + match + `,`
	}
	return patch(`{"` + target + `":` + m + `"value":` + string(text) + `}}`)
}

// patches returns a modification with JSON Patches.
func patches(target, name, ops string) string {
	return patch(`{"` + target + `":{"operation":"Patch","match":{"name":"` + name + `"},"jsonPatches":[` + ops + `]}}`)
}

func template(conf string) string {
	return `{"type":"ProxyTemplate","mesh":"default","name":"t","selectors":[{"match":{"kuma.io/service":"*"}}],"conf":` +
		conf + `}`
}

const (
	first = "spec.default.appendModifications[0]"
	lua   = `"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua`
	tcp   = `"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy`
	hcm   = `"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`
	route = `name: envoy.filters.http.router, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}`
	body  = `address: {socketAddress: {address: 1.2.3.4, portValue: 1}}`
)

// TestRefused contains documents with one fault each.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ doc, field, reason string }{
		// Shape.
		{`{"type":"MeshProxyPatch","mesh":"default","name":"p","spec":{}}`, "spec.default.appendModifications", "missing"},
		{patch(``), "spec.default.appendModifications", "empty"},
		{patch(`{}`), first, "give one of cluster, listener, networkFilter, httpFilter, virtualHost"},
		{patch(`{"cluster":{"operation":"Remove"},"listener":{"operation":"Remove"}}`), first, "cluster, listener are given"},
		{patch(`{"cluster":{"operation":"Remove"},"route":{"operation":"Remove"}}`), first + ".route", "unknown"},
		{patch(`{"cluster":{"operation":"AddFirst","value":"name: x"}}`), first + ".cluster.operation",
			"give one of Add, Patch, Remove"},
		{patch(`{"cluster":{"operation":"add","value":"name: x"}}`), first + ".cluster.operation",
			"give one of Add, Patch, Remove"},
		{patch(`{"networkFilter":{"operation":"Add","value":"name: x"}}`), first + ".networkFilter.operation",
			"give one of AddFirst, AddLast, AddBefore, AddAfter, Patch, Remove"},
		{patch(`{"virtualHost":{"value":"name: x"}}`), first + ".virtualHost.operation", "missing"},
		{patch(`{"cluster":{"operation":"Add"}}`), first + ".cluster.value", "the value is missing"},
		{patch(
			`{"cluster":{"operation":"Add","value":"{name: x, type: STATIC}","jsonPatches":[{"op":"remove","path":"/name"}]}}`),
			first + ".cluster.jsonPatches", "only Patch"},
		{patch(`{"cluster":{"operation":"Patch"}}`), first + ".cluster", "give value or jsonPatches"},
		{patch(`{"cluster":{"operation":"Patch","value":"{}","jsonPatches":[{"op":"remove","path":"/name"}]}}`),
			first + ".cluster", "give one of them"},
		{patch(`{"cluster":{"operation":"Remove","value":"name: x"}}`), first + ".cluster.value", "Remove has no"},
		{patch(`{"httpFilter":{"operation":"Remove","jsonPatches":[{"op":"remove","path":"/name"}]}}`),
			first + ".httpFilter.jsonPatches", "Remove has no"},
		// Matches.
		{with("cluster", "Add", `{"name":"x"}`, "{name: x, type: STATIC}"), first + ".cluster.match", "no match"},
		{with("listener", "Add", `{}`, "{name: x, filterChains: [{}], "+body+"}"), first + ".listener.match", "no match"},
		{with("virtualHost", "Add", `{"name":"x"}`, "{name: x, domains: [x]}"), first + ".virtualHost.match.name",
			"the value contains the name"},
		{with("httpFilter", "AddBefore", "", "{name: x, typedConfig: {"+lua+"}}"), first + ".httpFilter.match.name",
			"before which"},
		{with("networkFilter", "AddAfter", `{"origin":"inbound"}`, "{name: x, typedConfig: {"+tcp+
			", cluster: c, statPrefix: s}}"), first + ".networkFilter.match.name", "after which"},
		{with("httpFilter", "Patch", "", "typedConfig: {"+lua+"}"), first + ".httpFilter.match.name", "filter to patch"},
		{with("cluster", "Patch", `{"name":""}`, "connectTimeout: 1s"), first + ".cluster.match.name", "matches nothing"},
		{with("httpFilter", "Patch", `{"name":"x","listenerName":""}`, "typedConfig: {"+lua+"}"),
			first + ".httpFilter.match.listenerName", "matches nothing"},
		{with("cluster", "Patch", `{"tags":{"a":"b"}}`, "connectTimeout: 1s"), first + ".cluster.match.tags", "unknown"},
		{with("cluster", "Patch", `{"name":"a"}`, "{name: b, connectTimeout: 1s}"), first + ".cluster.value.name",
			"cannot rename"},
		// Values that are not messages.
		{with("cluster", "Add", "", "{"), first + ".cluster.value", "line 1 of the text: not valid YAML"},
		{with("cluster", "Patch", "", ""), first + ".cluster.value", "empty"},
		{with("cluster", "Patch", "", "[1]"), first + ".cluster.value",
			"a list is given, and a mapping of the fields of Cluster is required"},
		{with("cluster", "Patch", "", "a: 1\n---\nb: 2"), first + ".cluster.value", "only one document is allowed"},
		{with("cluster", "Patch", "", "connectTimeout: 1s\nconnectTimeout: 2s"), first + ".cluster.value.connectTimeout",
			"duplicate key"},
		{with("cluster", "Patch", "", "conectTimeout: 1s"), first + ".cluster.value.conectTimeout",
			`did you mean "connectTimeout"`},
		{with("cluster", "Patch", "", "connect_time: 1s"), first + ".cluster.value.connect_time",
			"envoy.config.cluster.v3.Cluster has no such field"},
		{with("cluster", "Patch", "", "connectTimeout: 5"), first + ".cluster.value.connectTimeout", "unexpected token 5"},
		{with("cluster", "Patch", "", "connectTimeout: 1d"), first + ".cluster.value.connectTimeout",
			`invalid google.protobuf.Duration value "1d"`},
		{patches("cluster", "x", `{"op":"add","path":"/connectTimeout","value":"1d"}`), first +
			".cluster.jsonPatches[0].value", `invalid google.protobuf.Duration value "1d"`},
		{with("cluster", "Patch", "", "type: EDSS"), first + ".cluster.value.type",
			"give one of STATIC, STRICT_DNS, LOGICAL_DNS, EDS, ORIGINAL_DST"},
		{with("cluster", "Patch", "", "{type: EDS, clusterType: {name: x}}"), first + ".cluster.value",
			"oneof envoy.config.cluster.v3.Cluster.cluster_discovery_type is already set"},
		{with("cluster", "Patch", "", "healthChecks: {timeout: 1s}"), first + ".cluster.value.healthChecks",
			"a mapping is given, and a list is required"},
		{with("cluster", "Patch", "",
			"loadAssignment: {endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {port: 1}}}}]}]}"), first +
			".cluster.value.loadAssignment.endpoints[0].lbEndpoints[0].endpoint.address.socketAddress.port", "no such field"},
		{with("cluster", "Patch", "", "metadata: {filterMetadata: {a: 1}}"),
			first + `.cluster.value.metadata.filterMetadata["a"]`, "unexpected token 1"},
		{with("httpFilter", "AddFirst", "",
			"{name: x, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v4.Lua}}"),
			first + ".httpFilter.value.typedConfig.@type", "not a known Envoy message"},
		{with("httpFilter", "AddFirst", "", "{name: x, typedConfig: {inlineCode: x}}"),
			first + ".httpFilter.value.typedConfig.@type", "the type is missing"},
		{with("httpFilter", "AddFirst", "", "{name: x, typedConfig: {"+lua+", inlineCod: x}}"),
			first + ".httpFilter.value.typedConfig.inlineCod", `did you mean "inlineCode"`},
		// Values that violate field rules.
		{with("cluster", "Add", "", "{type: STATIC}"), first + ".cluster.value.name", "at least 1"},
		{with("cluster", "Add", "", "{name: x, type: STATIC, connectTimeout: 0s}"), first + ".cluster.value.connectTimeout",
			"greater than 0s"},
		{with("cluster", "Patch", "", "connectTimeout: -1s"), first + ".cluster.value.connectTimeout", "greater than 0s"},
		{with("cluster", "Patch", "", "outlierDetection: {maxEjectionPercent: 101}"),
			first + ".cluster.value.outlierDetection.maxEjectionPercent", "less than or equal to 100"},
		{with("cluster", "Patch", "", "healthChecks: [{timeout: 1s, tcpHealthCheck: {}, unhealthyThreshold: 1, "+
			"healthyThreshold: 1}]"), first + ".cluster.value.healthChecks[0].interval", "required"},
		{with("cluster", "Patch", "", `{transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: `+strings.Repeat("x", 256)+`}}}`),
			first + ".cluster.value.transportSocket.typedConfig.sni", "at most 255"},
		{with("networkFilter", "AddFirst", "", "{name: t, typedConfig: {"+tcp+", cluster: c}}"),
			first + ".networkFilter.value.typedConfig.statPrefix", "at least 1"},
		{with("networkFilter", "AddFirst", "", "{name: t, typedConfig: {"+tcp+", statPrefix: s}}"),
			first + ".networkFilter.value.typedConfig.clusterSpecifier", "one of cluster, weightedClusters"},
		{with("networkFilter", "AddFirst", "", "{name: t}"), first + ".networkFilter.value.typedConfig",
			"Envoy requires one"},
		{with("httpFilter", "AddFirst", "", "{typedConfig: {"+lua+"}}"), first + ".httpFilter.value.name", "at least 1"},
		{with("httpFilter", "Patch", `{"name":"x"}`, "name: x"), first + ".httpFilter.value.typedConfig", "fields to merge"},
		{with("virtualHost", "Add", "", "{name: v}"), first + ".virtualHost.value.domains", "at least 1"},
		{with("virtualHost", "Patch", "", "routes: [{match: {prefix: /}}]"), first + ".virtualHost.value.routes[0].action",
			"one of route, redirect"},
		{with("virtualHost", "Add", "", "{name: v, domains: [x], routes: [{match: {prefix: /}, redirect: "+
			"{responseCode: 9}}]}"), first + ".virtualHost.value.routes[0].redirect.responseCode", "defined enum values"},
		// Messages that Envoy rejects although their fields are valid.
		{with("cluster", "Add", "", "{name: x, type: EDS}"), first + ".cluster.value.edsClusterConfig",
			"source of its endpoints"},
		{with("cluster", "Add", "", "{name: x, type: ORIGINAL_DST}"), first + ".cluster.value.lbPolicy", "CLUSTER_PROVIDED"},
		{with("cluster", "Add", "", "{name: x, type: STATIC, lbPolicy: CLUSTER_PROVIDED}"), first + ".cluster.value.lbPolicy",
			"STATIC has none"},
		{with("cluster", "Add", "", "{name: x, type: ORIGINAL_DST, lbPolicy: CLUSTER_PROVIDED, "+
			"loadAssignment: {clusterName: x}}"), first + ".cluster.value.loadAssignment", "remove load_assignment"},
		{with("cluster", "Add", "", "{name: x, type: LOGICAL_DNS}"), first + ".cluster.value.loadAssignment", "exactly one"},
		{with("cluster", "Add", "", "{name: x, type: STATIC, loadAssignment: {clusterName: x, "+
			"endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: a.b, portValue: 1}}}}]}]}}"),
			first + ".cluster.value.loadAssignment.endpoints[0].lbEndpoints[0].endpoint.address", "not an IP address"},
		{with("listener", "Add", "", "{name: x, filterChains: [{}]}"), first + ".listener.value.address", "no address"},
		{with("listener", "Add", "", "{name: x, "+body+"}"), first + ".listener.value.filterChains", "no filter chain"},
		{with("listener", "Add", "", "{name: x, "+body+", filterChains: [{}, {name: y}]}"),
			first + ".listener.value.filterChains[1].filterChainMatch", "match the same connections"},
		{with("listener", "Add", "", "{name: x, "+body+", filterChains: [{filterChainMatch: {serverNames: [a.*.b]}}]}"),
			first + ".listener.value.filterChains[0].filterChainMatch.serverNames[0]", "not a whole first label"},
		{with("listener", "Add", "", "{name: x, "+body+", filterChains: [{filters: [{name: r, "+
			"typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC, statPrefix: r}}]}]}"),
			first + ".listener.value.filterChains[0].filters[0]", "is not terminal"},
		{with("listener", "Add", "", "{name: x, "+body+
			", filterChains: [{filters: [{name: envoy.filters.network.http_connection_manager, typedConfig: {"+hcm+
			", statPrefix: h, httpFilters: [{"+route+"}, {name: l, typedConfig: {"+lua+"}}], routeConfig: {}}}]}]}"),
			first + ".listener.value.filterChains[0].filters[0].typedConfig.httpFilters[0]", "is terminal"},
		{with("listener", "Add", "", "{name: x, "+body+", filterChains: [{filters: [{name: v, typedConfig: {'@type': "+
			"type.googleapis.com/envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel}}, {name: t, typedConfig: {"+
			tcp+", statPrefix: s, cluster: c}}]}]}"), first + ".listener.value.filterChains[0].filters[0]", "is terminal"},
		// JSON Patches.
		{patches("cluster", "x", `{"op":"test","path":"/name","value":"x"}`), first + ".cluster.jsonPatches[0].op",
			"give one of add, remove, replace, move, copy"},
		{patches("cluster", "x", `{"op":"add","value":1}`), first + ".cluster.jsonPatches[0].path", "missing"},
		{patches("cluster", "x", `{"op":"add","path":"/connectTimeout"}`),
			first + ".cluster.jsonPatches[0].value", "missing"},
		{patches("cluster", "x", `{"op":"remove","path":"/connectTimeout","value":1}`),
			first + ".cluster.jsonPatches[0].value", "only add and replace"},
		{patches("cluster", "x", `{"op":"move","path":"/name"}`), first + ".cluster.jsonPatches[0].from", "missing"},
		{patches("cluster", "x", `{"op":"remove","path":"/connectTimeout","from":"/name"}`),
			first + ".cluster.jsonPatches[0].from", "only move and copy"},
		{patches("cluster", "x", `{"op":"remove","path":""}`), first + ".cluster.jsonPatches[0].path", "cannot be removed"},
		{patches("cluster", "x", `{"op":"remove","path":"connectTimeout"}`), first + ".cluster.jsonPatches[0].path",
			"begin with a slash"},
		{patches("cluster", "x", `{"op":"remove","path":"/~2"}`), first + ".cluster.jsonPatches[0].path", "~0"},
		{patches("cluster", "x", `{"op":"remove","path":"/connectTimeouts"}`), first + ".cluster.jsonPatches[0].path",
			`did you mean "connectTimeout"`},
		{patches("cluster", "x", `{"op":"copy","from":"/loadAssignment/endpoints/0/x","path":"/name"}`),
			first + ".cluster.jsonPatches[0].from", `LocalityLbEndpoints has no field "x"`},
		{patches("cluster", "x", `{"op":"add","path":"/name/x","value":1}`), first + ".cluster.jsonPatches[0].path",
			"has no subfields"},
		{patches("cluster", "x", `{"op":"add","path":"/connectTimeout","value":"5"}`),
			first + ".cluster.jsonPatches[0].value", "Duration"},
		{patches("cluster", "x", `{"op":"add","path":"/lbPolicy","value":"FAIR"}`), first + ".cluster.jsonPatches[0].value",
			"give one of ROUND_ROBIN"},
		{patches("cluster", "x", `{"op":"replace","path":"","value":{"nam":"x"}}`),
			first + ".cluster.jsonPatches[0].value.nam", `did you mean "name"`},
		{patches("cluster", "x", `{"op":"add","path":"/loadAssignment/endpoints/-","value":{"prio":1}}`),
			first + ".cluster.jsonPatches[0].value.prio", "no such field"},
		{patches("cluster", "x", `{"op":"add","path":"/metadata/filterMetadata/m","value":1}`),
			first + ".cluster.jsonPatches[0].value", "unexpected token"},
		{patches("networkFilter", "envoy.filters.network.tcp_proxy", `{"op":"add","path":"/clusters","value":"x"}`),
			first + ".networkFilter.jsonPatches[0].path", `did you mean "cluster"`},
		{patches("virtualHost", "x", `{"op":"add","path":"/domains/0","value":1}`),
			first + ".virtualHost.jsonPatches[0].value", "string"},
		// ProxyTemplate.
		{template(`{"imports":["none"]}`), "conf.imports[0]", "give one of default-proxy"},
		{template(`{"imports":["default-proxy"],"modifications":[{}]}`), "conf.modifications[0]", "give one of"},
		{template(`{"modifications":[{"cluster":{"operation":"Remove"}}]}`), "conf.modifications[0].cluster.operation",
			"give one of add, patch, remove"},
		{template(`{"modifications":[{"httpFilter":{"operation":"addBefore","value":"{name: x, disabled: true, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}"}}]}`),
			"conf.modifications[0].httpFilter.match.name", "before which"},
		{template(`{"modifications":[{"cluster":{"operation":"patch"}}]}`), "conf.modifications[0].cluster", "value"},
		{template(`{"resources":[{"version":"v1","resource":"{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x, type: STATIC}"}]}`),
			"conf.resources[0].name", "missing"},
		{template(`{"resources":[{"name":"x","resource":"{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x, type: STATIC}"}]}`),
			"conf.resources[0].version", "missing"},
		{template(`{"resources":[{"name":"x","version":"v1"}]}`), "conf.resources[0].resource", "missing"},
		{template(`{"resources":[{"name":"y","version":"v1","resource":"{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x, type: STATIC}"}]}`),
			"conf.resources[0].name", "give the same"},
		{template(`{"resources":[{"name":"x","version":"v1","resource":"{name: x}"}]}`), "conf.resources[0].resource.@type",
			"missing"},
		{template(`{"resources":[{"name":"x","version":"v1","resource":"{'@type': type.googleapis.com/envoy.config.route.v3.VirtualHost, name: x, domains: [x]}"}]}`),
			"conf.resources[0].resource.@type", "not a resource type"},
		{template(`{"resources":[{"name":"x","version":"v1","resource":"{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x, type: EDS}"}]}`),
			"conf.resources[0].resource.edsClusterConfig", "source of its endpoints"},
	} {
		_, faults := kinds.Registry().Decode("", []byte(c.doc))
		if len(faults) != 1 || faults[0].Field != c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s\nwant one fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

// TestAccepted contains valid documents and checks that they are encoded unchanged.
func TestAccepted(t *testing.T) {
	for _, doc := range []string{
		patch(`{"cluster":{"operation":"Remove"}}`),
		with("cluster", "Patch", "", `{"connect_timeout": "5s", "outlierDetection": {}}`),
		with("cluster", "Patch", `{"name":"a"}`, "name: a\nconnectTimeout: 5s\n"),
		with("cluster", "Add", "", "{name: x, type: STATIC}"),
		with("cluster", "Patch", "", `{typedExtensionProtocolOptions: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, commonHttpProtocolOptions: {}}}}`),
		with("listener", "Add", "",
			"{name: x, "+body+", filterChains: [{filters: [{name: t, typedConfig: {"+tcp+", statPrefix: s, cluster: c}}]}]}"),
		// A terminal filter other than the router.
		with("listener", "Add", "", "{name: x, "+body+
			", filterChains: [{filters: [{name: envoy.filters.network.http_connection_manager, typedConfig: {"+hcm+
			", statPrefix: h, routeConfig: {}, httpFilters: [{name: m, "+
			"typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.mcp_router.v3.McpRouter}}]}}]}]}"),
		with("listener", "Patch", `{"tags":{"kuma.io/service":"*"}}`, "address: {socketAddress: {portValue: 8080}}"),
		with("networkFilter", "Patch", `{"name":"t"}`, "typedConfig: {"+tcp+", idleTimeout: 1s}"),
		with("httpFilter", "AddAfter", `{"name":"r"}`,
			"{name: x, configDiscovery: {configSource: {ads: {}}, typeUrls: [x]}}"),
		with("httpFilter", "Patch", `{"name":"r"}`, "disabled: true"),
		with("virtualHost", "Patch", "", "retryPolicy: {}"),
		patches("cluster", "x", `{"op":"add","path":"/connectTimeout","value":null},{"op":"copy","from":"/transportSocket/typedConfig/sni","path":"/altStatName"},{"op":"remove","path":"/metadata/filterMetadata/x/y"}`),
		patches("listener", "x", `{"op":"replace","path":"/filterChains/0/filters/-","value":{"name":"x"}},{"op":"add","path":"/filterChains/0/filters/0/typedConfig/any/thing","value":[1.5]}`),
		patches("networkFilter", "x", `{"op":"add","path":"/whatever/it/is","value":{"a":"b"}}`),
		template(`{"imports":["default-proxy","gateway-proxy"]}`),
		template(`{}`),
	} {
		out, faults := kinds.Registry().Decode("", []byte(doc))
		if len(faults) > 0 {
			t.Errorf("%s: %v", doc, faults)
			continue
		}
		b, err := resource.Marshal(out[0])
		if err != nil {
			t.Fatal(err)
		}
		var in, back any
		if err := json.Unmarshal([]byte(doc), &in); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(in)
		got, _ := json.Marshal(back)
		if string(want) != string(got) {
			t.Errorf("%s is encoded as %s", want, got)
		}
	}
}
