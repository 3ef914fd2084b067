package danger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// indent indents the lines of a text.
func indent(text string, n int) string {
	return strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n"+strings.Repeat(" ", n))
}

// mod returns a MeshProxyPatch with one modification that has a value.
func mod(target, head, value string) string {
	return fmt.Sprintf(`type: MeshProxyPatch
mesh: default
name: a
spec:
  targetRef: {kind: Mesh}
  default:
    appendModifications:
    - %s:
        %s
        value: |
          %s
`, target, indent(head, 8), indent(value, 10))
}

// ops returns a MeshProxyPatch with a JSON Patch.
func ops(target, match, patches string) string {
	return fmt.Sprintf(`type: MeshProxyPatch
mesh: default
name: a
spec:
  targetRef: {kind: Mesh}
  default:
    appendModifications:
    - %s:
        operation: Patch
        match: {%s}
        jsonPatches:
        %s
`, target, match, indent(patches, 8))
}

const (
	api     = "\"@type\": type.googleapis.com/envoy."
	hcm     = api + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	lua     = api + "extensions.filters.http.lua.v3.Lua"
	anyName = "name: envoy.filters.http.x"
)

// cluster returns the addition of a cluster with one endpoint.
func cluster(address string) string {
	return mod("cluster", "operation: Add", `name: a
connectTimeout: 1s
loadAssignment: {clusterName: a, endpoints: [{lbEndpoints: [{endpoint: {address: `+address+`}}]}]}`)
}

func httpFilter(config string) string {
	return mod("httpFilter", "operation: AddFirst", "name: x\ntypedConfig:\n  "+indent(config, 2))
}

func patched(path, value string) string {
	return ops("listener", "origin: inbound", `- {op: add, path: `+path+`, value: `+value+`}`)
}

// dangers are patches with one danger each, with a part of its text.
var dangers = []struct{ name, doc, want string }{
	{"pipe", cluster(`{pipe: {path: /run/nearside/api.sock}}`), "names a socket or pipe"},
	{"pipe, abstract", cluster(`{pipe: {path: "@x"}}`), "names a socket or pipe"},
	{"listener on a pipe", mod("listener", "operation: Add",
		`{name: a, address: {pipe: {path: /run/a}}, filterChains: [{}]}`), "a socket or pipe"},
	{"local address", cluster(`{socket_address: {address: 127.0.0.1, port_value: 9901}}`),
		`the local address "127.0.0.1"`},
	{"local address, mapped", cluster(`{socketAddress: {address: "::ffff:127.0.0.9", portValue: 1}}`),
		"the local address"},
	{"local name",
		mod("cluster", "operation: Add", `{name: a, connectTimeout: 1s, type: STRICT_DNS, load_assignment: {cluster_name: a,
 endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: localhost, port_value: 1}}}}]}]}}`),
		`the local address "localhost"`},
	{"local address, inet_aton", mod("cluster", "operation: Patch", `{type: STRICT_DNS, loadAssignment: {clusterName: a,
 endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: "0x7f.1", portValue: 1}}}}]}]}}`),
		"the local address"},
	{"network namespace", mod("listener", "operation: Patch",
		`{address: {socketAddress: {address: 192.0.2.1, portValue: 1, networkNamespaceFilepath: /run/netns/a}}}`),
		`networkNamespaceFilepath names the file "/run/netns/a"`},
	{"lua", httpFilter(lua + "\ndefaultSourceCode: {inlineString: 'os.execute(\"id\")'}"), "contains Lua code"},
	{"lua, old field, snake case", mod("httpFilter", "operation: AddLast",
		`{"name": "x", "typed_config": {`+lua+`, "inline_code": "function envoy_on_request(h) end"}}`), "contains Lua code"},
	{"lua in a route", mod("virtualHost", "operation: Patch",
		`typedPerFilterConfig: {x: {`+lua+`PerRoute, sourceCode: {inlineString: a}}}`), "contains Lua code"},
	{"wasm",
		httpFilter(api + "extensions.filters.http.wasm.v3.Wasm\nconfig: {vmConfig: {runtime: envoy.wasm.runtime.v8}}"),
		"contains Wasm code"},
	{"dynamic module", httpFilter(api + "extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter\n" +
		"dynamicModuleConfig: {name: a}\nfilterName: a"), "loads a module or library"},
	{"typed struct", httpFilter("\"@type\": type.googleapis.com/xds.type.v3.TypedStruct\ntypeUrl: a\nvalue: {a: b}"),
		"without a known type"},
	{"struct", httpFilter("\"@type\": type.googleapis.com/google.protobuf.Struct\nvalue: {a: b}"), "without a known type"},
	{"filter by discovery", mod("httpFilter", "operation: AddFirst", `{name: x, configDiscovery: {configSource: {ads: {}},
 typeUrls: [type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua]}}`), "contains Lua code"},
	{"discovery from a file", mod("httpFilter", "operation: AddFirst",
		`{name: x, configDiscovery: {configSource: {pathConfigSource: {path: /tmp/x}},
 typeUrls: [type.googleapis.com/envoy.extensions.filters.http.router.v3.Router]}}`), `names the file "/tmp/x"`},
	{"endpoints from a server", mod("cluster", "operation: Patch",
		`edsClusterConfig: {edsConfig: {apiConfigSource: {apiType: GRPC}}}`), "config from another server"},
	{"endpoints from a file", mod("cluster", "operation: Patch", `edsClusterConfig: {edsConfig: {path: /tmp/x}}`),
		`names the file "/tmp/x"`},
	{"google gRPC", httpFilter(api + `extensions.filters.http.ext_authz.v3.ExtAuthz
grpcService: {googleGrpc: {targetUri: "unix:/run/x", statPrefix: a}}`), "uses Google gRPC"},
	{"body from a file",
		mod("virtualHost", "operation: Patch", `routes: [{match: {prefix: /}, directResponse: {status: 200,
 body: {filename: /etc/shadow}}}]`), `body.filename names the file "/etc/shadow"`},
	{"body from the environment",
		mod("virtualHost", "operation: Patch", `routes: [{match: {prefix: /}, directResponse: {status: 200,
 body: {environmentVariable: TOKEN}}}]`), `reads the environment variable "TOKEN"`},
	{"environment in a header",
		mod("virtualHost", "operation: Patch", `responseHeadersToAdd: [{header: {key: x, value: "a%ENVIRONMENT(HOME)%"}}]`),
		"reads files or environment variables"},
	{"access log", mod("listener", "operation: Patch", "accessLog: [{name: a, typedConfig: {"+api+
		`extensions.access_loggers.file.v3.FileAccessLog, path: /tmp/log}}]`), `path names the file "/tmp/log"`},
	{"health check log", mod("cluster", "operation: Patch",
		`healthChecks: [{timeout: 1s, interval: 1s, unhealthyThreshold: 1, healthyThreshold: 1,
 tcpHealthCheck: {}, eventLogPath: /tmp/x}]`), `eventLogPath names the file`},
	{"key", mod("cluster", "operation: Patch",
		`transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 commonTlsContext: {tlsCertificates: [{certificateChain: {inlineString: x}, privateKey: {inlineString: y}}]}}}`),
		"privateKey.inlineString contains a key or a password"},
	{"key in bytes", mod("cluster", "operation: Patch",
		`transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 common_tls_context: {tls_certificates: [{private_key: {inline_bytes: eA==}}]}}}`),
		"private_key.inline_bytes contains a key"},
	{"key file", mod("cluster", "operation: Patch",
		`transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 commonTlsContext: {tlsCertificates: [{privateKey: {filename: /etc/key}}]}}}`),
		`privateKey.filename names the file "/etc/key"`},
	{"watched directory", mod("cluster", "operation: Patch",
		`transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 commonTlsContext: {validationContext: {watchedDirectory: {path: /etc}, trustedCa: {inlineString: a}}}}}`),
		`watchedDirectory names the file "/etc"`},
	{"key log", mod("cluster", "operation: Patch",
		`transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 commonTlsContext: {keyLog: {path: /tmp/k}}}}`), `keyLog names the file "/tmp/k"`},
	{"password", mod("networkFilter", "operation: AddFirst", `name: redis
typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy, statPrefix: a,
 settings: {opTimeout: 1s}, downstreamAuthPasswords: [{inlineString: p}]}`),
		"downstreamAuthPasswords[0].inlineString contains a key or a password"},
	{"tap", httpFilter(api + `extensions.filters.http.tap.v3.Tap
commonConfig: {staticConfig: {matchConfig: {anyMatch: true}, outputConfig: {sinks: [{filePerTap: {pathPrefix: /tmp/t}}]}}}`), `names the file "/tmp/t"`},
	{"tap by admin", httpFilter(api + `extensions.filters.http.tap.v3.Tap
commonConfig: {adminConfig: {configId: a}}`), "uses Envoy's admin interface"},
	{"tracer library",
		mod("networkFilter", "operation: Patch\nmatch: {name: envoy.filters.network.http_connection_manager}",
			"name: envoy.filters.network.http_connection_manager\ntypedConfig:\n  "+hcm+`
  tracing: {provider: {name: x, typedConfig: {"@type": type.googleapis.com/envoy.config.trace.v3.DynamicOtConfig, library: /tmp/x.so, config: {a: b}}}}`),
		"loads a module or library"},
	{"nested config",
		mod("networkFilter", "operation: Patch\nmatch: {name: envoy.filters.network.http_connection_manager}",
			"name: envoy.filters.network.http_connection_manager\ntypedConfig:\n  "+hcm+`
  routeConfig: {virtualHosts: [{name: a, domains: ["*"], typedPerFilterConfig: {x: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig,
    config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute, disabled: true}}}}]}`),
		"contains Lua code"},

	{"json patch", ops("cluster", "origin: inbound",
		`- {op: add, path: /loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/pipe/path, value: /run/x}`),
		`path names a socket or pipe`},
	{"json patch in pieces", ops("cluster", "origin: inbound",
		`- {op: add, path: /load_assignment/endpoints/0/lb_endpoints/0/endpoint/address, value: {}}
- {op: add, path: /load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe, value: {}}`),
		`names a socket or pipe`},
	{"json patch of a type", patched("/filterChains/0/filters/0/typedConfig/httpFilters/0/typedConfig/@type",
		"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"), "contains Lua code"},
	{"json patch through packed messages",
		patched("/filterChains/0/filters/0/typedConfig/accessLog/0/typedConfig/path", "/tmp/x"), `names the file "/tmp/x"`},
	{"json patch of a config that others added",
		ops("httpFilter", anyName, `- {op: replace, path: /defaultSourceCode/inlineString, value: a}`), "contains Lua code"},
	{"json patch of code that others added", ops("httpFilter", anyName,
		`- {op: replace, path: /config/vmConfig/code/local/inlineBytes, value: YQ==}`), "contains Wasm code"},
	{"json patch with a value", ops("httpFilter", anyName, `- {op: add, path: "", value: {inlineCode: a}}`),
		"contains Lua code"},
	{"json patch of a map", ops("virtualHost", "origin: inbound",
		`- {op: add, path: /typedPerFilterConfig/x/sourceCode, value: {inlineString: a}}`), "contains Lua code"},
	{"copy from free content", ops("cluster", "origin: inbound", `- {op: copy, from: /metadata/filterMetadata/x/y, path: /loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address}`),
		"copies a value whose content is unknown"},
	{"copy to a packed message", ops("listener", "origin: inbound",
		`- {op: move, from: /metadata/filterMetadata/x, path: /filterChains/0/filters/0/typedConfig}`),
		"copies a value whose content is unknown"},
	{"copy to a type",
		ops("listener", "origin: inbound", `- {op: copy, from: /name, path: /filterChains/0/filters/0/typedConfig/@type}`),
		"copies a value whose content is unknown"},
	{"copy to a path", ops("cluster", "origin: inbound",
		`- {op: copy, from: /name, path: /edsClusterConfig/edsConfig/path}`), "names the file"},
	{"copy to an address", ops("cluster", "origin: inbound", `- {op: copy, from: /altStatName, path: /loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress/address}`),
		"copies a value whose content is unknown"},
	{"copy to a key", ops("cluster", "origin: inbound", `- {op: copy, from: /altStatName, path: /transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey/inlineString}`),
		"copies a value whose content is unknown"},
	{"json patch of a key", ops("cluster", "origin: inbound", `- {op: add, path: /transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey/inlineString, value: abc}`),
		"value contains a key or a password"},

	{"template, resource", `{type: ProxyTemplate, mesh: default, name: a, selectors: [{match: {kuma.io/service: "*"}}], conf: {imports: [default-proxy],
 resources: [{name: a, version: v, resource: '{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connectTimeout: 1s,
 loadAssignment: {clusterName: a, endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: /x}}}}]}]}}'}]}}`,
		"conf.resources[0].resource.loadAssignment.endpoints[0].lbEndpoints[0].endpoint.address.pipe names a socket or pipe"},
	{"template, secret", `{type: ProxyTemplate, mesh: default, name: a, selectors: [{match: {kuma.io/service: "*"}}], conf: {imports: [default-proxy],
 resources: [{name: a, version: v, resource: '{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: a,
 tlsCertificate: {certificateChain: {inlineString: a}, privateKey: {inlineString: b}}}'}]}}`,
		"tlsCertificate.privateKey.inlineString contains a key or a password"},
	{"template, modification", `{type: ProxyTemplate, mesh: default, name: a, selectors: [{match: {kuma.io/service: "*"}}], conf: {imports: [default-proxy],
 modifications: [{httpFilter: {operation: addFirst, value: '{name: x, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inlineCode: a}}'}}]}}`,
		"conf.modifications[0].httpFilter.value.typedConfig.@type contains Lua code"},
}

// TestPatches checks that each way to reach files, sockets, code, or keys needs a feature.
func TestPatches(t *testing.T) {
	for _, c := range dangers {
		t.Run(c.name, func(t *testing.T) {
			r := decode(t, c.doc)
			got := shown(danger.Of(r))
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if danger.Features(r) != access.FeaturePatch {
				t.Errorf("features %s", danger.Features(r))
			}
			if strings.Contains(got, "abc") || strings.Contains(got, "inlineString: y") {
				t.Errorf("a secret is shown: %s", got)
			}
		})
	}
}

// TestHarmlessPatches checks that usual patches need no feature.
func TestHarmlessPatches(t *testing.T) {
	for name, doc := range map[string]string{
		"timeout": mod("cluster", "operation: Patch", "connectTimeout: 3s"),
		"remove":  ops("listener", "origin: inbound", `- {op: remove, path: /accessLog}`),
		"cluster": cluster(`{socketAddress: {address: 192.0.2.1, portValue: 80}}`),
		"name":    mod("cluster", "operation: Patch", `{type: STRICT_DNS, dnsLookupFamily: V4_ONLY}`),
		"listener": mod("listener", "operation: Add",
			`{name: a, address: {socketAddress: {address: 127.0.0.1, portValue: 1}}, filterChains: [{}]}`),
		"route path": mod("virtualHost", "operation: Patch",
			`routes: [{match: {path: /etc/shadow}, directResponse: {status: 404, body: {inlineString: none}}}]`),
		"route path, json patch": patched(
			"/filterChains/0/filters/0/typedConfig/routeConfig/virtualHosts/0/routes/0/match/path", "/admin"),
		"manager": ops("networkFilter", "name: envoy.filters.network.http_connection_manager",
			`- {op: replace, path: /statPrefix, value: a}
- {op: add, path: /commonHttpProtocolOptions, value: {idleTimeout: 3s}}
- {op: move, from: /httpFilters/0, path: /httpFilters/1}
- {op: copy, from: /requestTimeout, path: /streamIdleTimeout}`),
		"filter": httpFilter(api + "extensions.filters.http.local_ratelimit.v3.LocalRateLimit\nstatPrefix: a"),
		"authz": httpFilter(api +
			"extensions.filters.http.ext_authz.v3.ExtAuthz\ngrpcService: {envoyGrpc: {clusterName: a}}"),
		"authz context": mod("virtualHost", "operation: Patch",
			`typedPerFilterConfig: {x: {"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute,
 checkSettings: {contextExtensions: {a: b}}}}`),
		"metadata": mod("cluster", "operation: Patch", `metadata: {filterMetadata: {a: {path: /x, pipe: b, filename: c}}}`),
		"metadata, json patch": ops("cluster", "origin: inbound",
			`- {op: add, path: /metadata/filterMetadata/a, value: {path: /x}}
- {op: add, path: /metadata/filterMetadata/a/filename, value: /x}`),
		"subsets": mod("cluster", "operation: Patch", `lbSubsetConfig: {subsetSelectors: [{keys: [version]}]}`),
		"secret by SDS": mod("cluster", "operation: Patch",
			`transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
 sni: a, commonTlsContext: {tlsCertificateSdsSecretConfigs: [{name: a, sdsConfig: {ads: {}}}], validationContext: {trustedCa: {inlineString: b}}}}}`),
		"stdout": mod("listener", "operation: Patch",
			`accessLog: [{name: a, typedConfig: {"@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog}}]`),
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(danger.Of(decode(t, doc))); got != "" {
				t.Error(got)
			}
		})
	}
}

// TestManyUnknownNames checks that the search among many names finds the same as among few.
func TestManyUnknownNames(t *testing.T) {
	var list strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&list, "- {op: add, path: /unknown%d/x, value: a}\n", i)
	}
	harmless := decode(t, ops("httpFilter", anyName, strings.TrimSpace(list.String())))
	list.WriteString("- {op: add, path: /accessLog/0/typedConfig/path, value: /tmp/x}\n")
	began := time.Now()
	if got := shown(danger.Of(harmless)); got != "" {
		t.Error(got)
	}
	got := shown(danger.Of(decode(t, ops("httpFilter", anyName, strings.TrimSpace(list.String())))))
	if !strings.Contains(got, `jsonPatches[5000].path names the file "/tmp/x"`) {
		t.Error(got)
	}
	t.Logf("10,001 operations in %v", time.Since(began))
}

// BenchmarkOf measures a patch with an unknown type, a typed one, and a resource without dangers.
func BenchmarkOf(b *testing.B) {
	for name, doc := range map[string]string{
		"unknown": ops("httpFilter", anyName, "- {op: replace, path: /statPrefix/x, value: a}"),
		"typed":   mod("cluster", "operation: Patch", "connectTimeout: 3s"),
		"other":   "{type: Mesh, name: default}",
	} {
		b.Run(name, func(b *testing.B) {
			r := decode(b, doc)
			for b.Loop() {
				danger.Of(r)
			}
		})
	}
}
