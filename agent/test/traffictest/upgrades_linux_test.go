package traffictest_test

import (
	"fmt"
	"strings"
)

func socket(what, to, want string) row { return row{what: what, to: to, say: upgrade, want: want} }
func ask(what, to, want string) row    { return row{what: what, to: to, say: get, want: want} }
func at(path string, r row) row        { r.path = path; return r }

// taking returns the mesh default with proxies that accept WebSockets from each other.
func taking(fields string) string {
	return theMesh("labels: {nearside.io/websockets: \"true\"}, " + fields)
}

// socketRows returns requests in a mesh whose proxies accept WebSockets from each other.
func socketRows() []row {
	return []row{
		socket("a service", "backend.mesh:80", backends),
		at("/?v=1", socket("with a query", "backend.mesh:80", backends)),
		{what: "over IPv6", to: "backend.mesh:80", v6: true, say: upgrade, want: backends},
		socket("itself", "web.mesh:80", "web/80"),
		ask("a plain request", "backend.mesh:80", backends),
		socket("gRPC", "calls.mesh:80", "403"),
		{what: "CONNECT", to: "backend.mesh:80", say: connect, want: "404"},
	}
}

// manager returns a patch of the HTTP connection manager in one listener of a dataplane.
func manager(name, dataplane, tag, fields string) string {
	return policy("MeshProxyPatch", name, "{targetRef: {kind: Dataplane, name: "+dataplane+
		"}, default: {appendModifications: [{networkFilter: {operation: Patch, "+
		"match: {name: envoy.filters.network.http_connection_manager, listenerTags: {kuma.io/service: "+tag+"}}, "+
		"value: \"name: envoy.filters.network.http_connection_manager\\ntypedConfig:\\n  '@type': "+
		"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\\n  "+
		fields+"\"}}]}}")
}

// webSockets returns scenes about upgraded requests.
func webSockets() []scene {
	const one = "backend-1/8080"
	outsideBy := func(rules string) string {
		return policy("MeshHTTPRoute", "out", "{targetRef: {kind: Dataplane, name: web}, to: ["+
			"{targetRef: {kind: MeshExternalService, name: partner}, rules: ["+rules+
			"]}, {targetRef: {kind: MeshService, name: far-web}, rules: ["+rules+"]}]}")
	}
	byPath := route(rule(prefix("/one"), "{backendRefs: ["+version("v1")+"]}") + ", " +
		rule(prefix("/calls"), "{backendRefs: [{kind: MeshService, name: calls}]}") + ", " +
		rule(prefix("/both"), "{backendRefs: [{kind: MeshService, name: calls, weight: 1}, "+version("v1")+"]}") + ", " +
		rule(prefix("/rw"), rewrite("ReplacePrefixMatch", "/new")) + ", " +
		rule(prefix("/moved"), redirect("hostname: other.example.com, statusCode: 301")))
	return []scene{
		{what: "WebSockets that leave", rows: []row{
			socket("a MeshExternalService", "partner.outside:80", "partner"),
			socket("an ExternalService", "far-web.mesh:80", "www"),
		}},
		{what: "WebSockets that leave past the egress", docs: theMesh(strict), rows: []row{
			socket("an ExternalService", "far-web.mesh:80", "www"),
		}},
		{what: "routes that leave", docs: outsideBy(rule(prefix("/"),
			"{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: b}]}}]}")), rows: []row{
			ask("HTTP", "partner.outside:80", "partner"),
			socket("a WebSocket", "partner.outside:80", "partner"),
			{what: "HTTP of an ExternalService", to: "far-web.mesh:80", say: get, want: "www", upstream: header("x-a", "b")},
			socket("a WebSocket of an ExternalService", "far-web.mesh:80", "www"),
		}},
		{what: "routes that leave for a service of the mesh",
			docs: outsideBy(rule(prefix("/in"), "{backendRefs: ["+version("v1")+"]}")), rows: []row{
				at("/in", socket("a WebSocket of an ExternalService", "far-web.mesh:80", "403")),
				at("/in", ask("HTTP", "far-web.mesh:80", one)),
				at("/out", socket("a WebSocket that no rule is about", "far-web.mesh:80", "www")),
			}},
		{what: "WebSockets in the mesh", docs: taking(strict + ", " + viaEgress), rows: append(socketRows(),
			socket("that leaves", "partner.outside:80", "partner"),
			socket("an ExternalService", "far-web.mesh:80", "www"))},
		{what: "WebSockets in the mesh by routes", docs: taking(strict+", "+viaEgress) + byPath, rows: []row{
			at("/one", socket("a version", "backend.mesh:80", one)),
			at("/calls", socket("gRPC", "backend.mesh:80", "403")),
			at("/both", socket("where one of two takes none", "backend.mesh:80", "403")),
			at("/rw/a", socket("rewritten", "backend.mesh:80", backends)),
			at("/moved", socket("a redirect", "backend.mesh:80", "301")),
			at("/else", socket("no rule", "backend.mesh:80", backends)),
		}},
		// Both proxies need the upgrade. If the client's proxy does not support it, it refuses the
		// request. If the server's proxy does not support it, it resets the request.
		{what: "WebSockets that the client's proxy alone takes",
			docs: manager("out", "web", "backend", "upgradeConfigs: [{upgradeType: websocket}]"), rows: []row{
				socket("a service", "backend.mesh:80", "503"),
				ask("a plain request", "backend.mesh:80", backends),
			}},
		{what: "WebSockets that the server's proxy alone takes",
			docs: manager("in", "backend-1", "backend", "http2ProtocolOptions: {allowConnect: true}") +
				manager("in-2", "backend-2", "backend", "http2ProtocolOptions: {allowConnect: true}"), rows: []row{
				socket("a service", "backend.mesh:80", "403"),
			}},
		{what: "WebSockets that both proxies take",
			docs: manager("out", "web", "backend", "upgradeConfigs: [{upgradeType: websocket}]") +
				manager("in", "backend-1", "backend", "http2ProtocolOptions: {allowConnect: true}") +
				manager("in-2", "backend-2", "backend", "http2ProtocolOptions: {allowConnect: true}"), rows: []row{
				socket("a service", "backend.mesh:80", backends),
			}},
		{what: "WebSockets by legacy routes", docs: taking(strict+", "+viaEgress) +
			"---\n{type: TrafficRoute, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], destinations: " +
			"[{match: {kuma.io/service: backend}}], conf: {destination: {kuma.io/service: backend, version: v1}}}\n",
			rows: []row{
				socket("a version", "backend.mesh:80", one),
			}},
		{what: "WebSockets that nobody lets in", docs: taking(strict+", "+viaEgress) + permission("all", "", "", "Deny"),
			rows: []row{
				{what: "a service", to: "backend.mesh:80", say: upgrade, want: "403",
					policies: []string{"MeshTrafficPermission/all"}},
			}},
		{what: "WebSockets and faults", docs: taking(strict+", "+viaEgress) + policy("MeshFaultInjection",
			"broken", from("backend", "", "{http: [{abort: {httpStatus: 418, percentage: 100}}]}")), rows: []row{
			{what: "a service", to: "backend.mesh:80", say: upgrade, want: "418",
				policies: []string{"MeshFaultInjection/broken"}},
		}},
		{what: "WebSockets in a permissive mesh", docs: taking(lenient + ", " + viaEgress), rows: append(socketRows(),
			row{what: "from another mesh", mesh: "plain", to: nodeV4(3) + ":8080", say: upgrade, want: one, elsewhere: true})},
		{what: "WebSockets to service resources", docs: taking(strict+", "+viaEgress+", meshServices: {mode: Everywhere}") +
			"---\n{type: HostnameGenerator, name: inside, spec: {template: \"{{ .DisplayName }}.inside\", " +
			"selector: {meshService: {}}}}\n" + strings.Join([]string{service("first", "http", "backend", 8080),
			service("second", "http2", "backend", 8080), service("third", "grpc", "calls", 9090)}, ""), rows: []row{
			socket("http", "first.inside:80", backends),
			socket("http2", "second.inside:80", "403"),
			ask("http2, a request", "second.inside:80", backends),
			socket("grpc", "third.inside:80", "403"),
		}},
	}
}

// service returns a MeshService whose port 80 has the given protocol.
func service(name, protocol, of string, port int) string {
	return fmt.Sprintf("---\n{type: MeshService, mesh: default, name: %s, spec: {selector: {dataplaneTags: "+
		"{kuma.io/service: %s}}, ports: [{port: 80, targetPort: %d, appProtocol: %s}]}}\n", name, of, port, protocol)
}
