package traffictest_test

import "strings"

const mega = 1 << 20

// services returns scenes about traffic between the proxies of a mesh without further policies.
func services() []scene {
	return []scene{{what: "services", rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, cluster: "backend",
			policies: []string{"MeshTrafficPermission/all"}},
		{what: "HTTP, any Host", to: "backend.mesh:80", say: get, name: "whoever.example.net", want: backends},
		{what: "HTTP/2", to: "backend.mesh:80", say: getH2, want: backends},
		{what: "HTTP over IPv6", to: "backend.mesh:80", v6: true, say: get, want: backends},
		{what: "POST", to: "backend.mesh:80", say: get, method: "POST", body: 1000, want: backends, upstream: sized(1000)},
		{what: "100 MB to the server", to: "backend.mesh:80", say: get, method: "POST", body: 100 * mega, want: backends,
			upstream: sized(100 * mega)},
		{what: "100 MB to the client", to: "backend.mesh:80", say: getH2, headers: map[string]string{"x-size": "104857600"},
			want: backends, upstream: sized(100 * mega)},
		{what: "a failure of the server", to: "backend.mesh:80", say: get, headers: map[string]string{"x-answer": "503"},
			want: "backend-1/8080 503|backend-2/8080 503"},
		{what: "HTTP/1.0", to: "backend.mesh:80", say: get10, want: backends},
		{what: "a WebSocket", to: "backend.mesh:80", say: upgrade, want: "403"},
		{what: "CONNECT", to: "backend.mesh:80", say: connect, want: "404"},
		{what: "gRPC", to: "calls.mesh:80", say: rpc, want: "backend-1/9090", cluster: "calls"},
		{what: "gRPC over IPv6", to: "calls.mesh:80", v6: true, say: rpc, want: "backend-1/9090"},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432", cluster: "db"},
		{what: "TCP over IPv6", to: "db.mesh:80", v6: true, say: aLine, want: "backend-2/5432"},
		{what: "TCP, closed by half", to: "db.mesh:80", say: halfway, body: 10000, want: "backend-2/5432",
			upstream: sized(10000)},
		{what: "TCP, 100 MB, closed by half", to: "db.mesh:80", say: halfway, body: 100 * mega, want: "backend-2/5432",
			upstream: sized(100 * mega)},
		{what: "a server that speaks first", to: "banner.mesh:80", say: nothing, want: "backend-2/3306"},
		{what: "HTTP where TCP is spoken", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
		{what: "another port of a service", to: "backend.mesh:81", say: get, want: closed},
		{what: "a server past its service", to: nodeV4(4) + ":5432", say: aLine, want: closed},
		{what: "itself", to: "web.mesh:80", say: get, want: "web/80"},
		{what: "the first of two inbounds with one port of the workload", to: "left.mesh:80", say: aLine,
			want: "backend-1/left"},
		{what: "the second of two inbounds with one port of the workload", to: "right.mesh:80", say: aLine,
			want: "backend-1/right"},
		{what: "another mesh", to: nodeV4(7) + ":5432", say: aLine, want: "shop/5432", elsewhere: true},
		{what: "a port without an inbound", to: nodeV4(4) + ":6000", say: aLine, want: closed},
	}}, {what: "services without mTLS", rows: []row{
		{what: "HTTP", mesh: "plain", to: "shop.mesh:80", say: get, want: "shop/8080"},
		{what: "HTTP over IPv6", mesh: "plain", to: "shop.mesh:80", v6: true, say: get, want: "shop/8080"},
		{what: "TCP", mesh: "plain", to: "store.mesh:80", say: aLine, want: "shop/5432"},
		{what: "a server that speaks first", mesh: "plain", to: "banner.mesh:80", say: nothing, want: "shop/3306"},
		{what: "past its service", mesh: "plain", to: nodeV4(7) + ":5432", say: aLine, want: "shop/5432"},
		{what: "outside", mesh: "plain", to: "far-web.mesh:80", say: get, want: "www"},
		{what: "a mesh with mTLS", mesh: "plain", to: nodeV4(4) + ":5432", say: aLine, want: closed,
			beyond: "what happens in another mesh", elsewhere: true},
		{what: "a port without an inbound in a mesh with mTLS", mesh: "plain", to: nodeV4(4) + ":6000", say: aLine,
			want: closed, beyond: "what happens in another mesh", elsewhere: true},
	}}, {what: "services as resources", docs: theMesh(strict+", "+viaEgress+", meshServices: {mode: Everywhere}") +
		"---\n{type: HostnameGenerator, name: inside, spec: {template: \"{{ .DisplayName }}.inside\", " +
		"selector: {meshService: {}}}}\n" +
		"---\n{type: HostnameGenerator, name: wide, spec: {template: \"{{ .DisplayName }}.wide\", " +
		"selector: {meshMultiZoneService: {}}}}\n" +
		"---\n{type: MeshService, mesh: default, name: first, labels: {app: backend}, spec: {selector: {dataplaneTags: " +
		"{kuma.io/service: backend, version: v1}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}}\n" +
		"---\n{type: MeshMultiZoneService, mesh: default, name: all, spec: {selector: {meshService: {matchLabels: {app: " +
		"backend}}}, ports: [{port: 8088, appProtocol: http}, {port: 80, appProtocol: http}]}}\n",
		rows: []row{
			{what: "MeshService", to: "first.inside:80", say: get, want: "backend-1/8080"},
			{what: "MeshService by its name", to: "first.inside:80", named: true, say: get, want: "backend-1/8080"},
			{what: "MeshMultiZoneService by its name", to: "all.wide:80", named: true, say: get, want: "backend-1/8080"},
			{what: "another port of a MeshService by its name", to: "first.inside:81", named: true, say: aLine, want: closed},
			{what: "MeshExternalService by its name", to: "partner.outside:80", named: true, say: get, want: "partner"},
			{what: "MeshMultiZoneService", to: "all.wide:80", say: get, want: "backend-1/8080"},
			{what: "a tag beside them", to: "backend.mesh:80", say: get, want: backends},
		}},
		{what: "names by tags", docs: "---\n{type: VirtualOutbound, mesh: default, name: v, " +
			"selectors: [{match: {kuma.io/service: '*'}}], conf: {host: '{{.s}}.{{.version}}.tags', port: '8090', " +
			"parameters: [{name: s, tagKey: kuma.io/service}, {name: version}]}}\n" +
			"---\n{type: VirtualOutbound, mesh: default, name: w, selectors: [{match: {kuma.io/service: '*'}}], " +
			"conf: {host: '{{.s}}.all.tags', port: '8090', parameters: [{name: s, tagKey: kuma.io/service}]}}\n", rows: []row{
			{what: "one version", to: "backend.v1.tags:8090", say: get, want: "backend-1/8080"},
			{what: "the other, by its name", to: "backend.v2.tags:8090", named: true, say: get, want: "backend-2/8080"},
			{what: "another port", to: "backend.v2.tags:80", named: true, say: aLine, want: closed},
			{what: "all versions", to: "backend.all.tags:8090", say: get, want: backends},
			{what: "TCP", to: "db.all.tags:8090", say: aLine, want: "backend-2/5432"},
		}},
		{what: "reachable services", docs: changed("default.web",
			"redirectPortInbound", "reachableServices: [backend], redirectPortInbound"), rows: []row{
			{what: "one that is listed", to: "backend.mesh:80", say: get, want: backends},
			{what: "one that is not", to: "db.mesh:80", say: aLine, want: closed},
			{what: "one that is not, by its address", to: nodeV4(4) + ":5432", say: aLine, want: closed},
		}},
		{what: "reachable services without mTLS",
			docs: changed("plain.web", "redirectPortInbound", "reachableServices: [shop], redirectPortInbound"), rows: []row{
				{what: "one that is listed", mesh: "plain", to: "shop.mesh:80", say: get, want: "shop/8080"},
				{what: "one that is not", mesh: "plain", to: "store.mesh:80", say: aLine, want: closed},
				{what: "one that is not, by its address", mesh: "plain", to: nodeV4(7) + ":5432", say: aLine, want: "shop/5432"},
			}},
		{what: "two services at one port", docs: changed("default.backend-2", "{port: 5432,",
			"{port: 5432, tags: {kuma.io/service: db-headless, kuma.io/protocol: tcp}}, {port: 5432,"), rows: []row{
			{what: "the first", to: "db-headless.mesh:80", say: aLine, want: "backend-2/5432", cluster: "db-headless"},
			{what: "the second", to: "db.mesh:80", say: aLine, want: "backend-2/5432", cluster: "db"},
			{what: "another one", to: "backend.mesh:80", say: get, want: backends},
		}},
		{what: "two services at one port, of which one denies the client", docs: changed("default.backend-2", "{port: 5432,",
			"{port: 5432, tags: {kuma.io/service: db-headless, kuma.io/protocol: tcp}}, {port: 5432,") +
			permission("one", "db-headless", "web", "Deny"), rows: []row{
			{what: "it", to: "db-headless.mesh:80", say: aLine, want: closed,
				policies: []string{"MeshTrafficPermission/one"}},
			{what: "the other", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/one"}},
		}},
		{what: "inbounds without tags", docs: strings.Replace(strings.Replace(changed("plain.shop",
			"{port: 5432, tags: {kuma.io/service: store, kuma.io/protocol: tcp}}", "{port: 5432, protocol: tcp, name: rows}"),
			"networking:", "labels: {app: shop}, networking:", 1),
			"{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}}",
			"{port: 8080, protocol: http, name: main}", 1) +
			"---\n{type: HostnameGenerator, name: plain, spec: {template: \"{{ .DisplayName }}.labels\", " +
			"selector: {meshService: {matchLabels: {kuma.io/mesh: plain}}}}}\n" +
			"---\n{type: MeshService, mesh: plain, name: shop, spec: {selector: " +
			"{dataplaneLabels: {matchLabels: {app: shop}}}, ports: [{port: 80, targetPort: main, appProtocol: http}, " +
			"{port: 81, targetPort: 5432, appProtocol: tcp}]}}\n",
			rows: []row{
				{what: "by the name of the inbound", mesh: "plain", to: "shop.labels:80", say: get, want: "shop/8080"},
				{what: "by its number", mesh: "plain", to: "shop.labels:81", say: aLine, want: "shop/5432"},
			}},
		{what: "direct access", docs: changed("default.web",
			"redirectPortInbound", "directAccessServices: ['*'], redirectPortInbound"), rows: []row{
			{what: "TCP", to: nodeV4(4) + ":5432", say: aLine, want: "backend-2/5432"},
			{what: "HTTP", to: nodeV4(3) + ":8080", say: get, want: "backend-1/8080"},
		}},
	}
}

// permissions returns scenes about which clients are admitted.
func permissions() []scene {
	const denied = "MeshTrafficPermission/all"
	return []scene{{what: "nobody is let in", docs: permission("all", "", "", "Deny"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: "403", policies: []string{denied}},
		{what: "gRPC", to: "calls.mesh:80", say: rpc, want: "grpc PermissionDenied", policies: []string{denied}},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: closed, policies: []string{denied}},
		{what: "a server that speaks first", to: "banner.mesh:80", say: nothing, want: closed, policies: []string{denied}},
		{what: "a MeshExternalService, of which no policy speaks", to: "partner.outside:80", say: get, want: "partner"},
		{what: "a MeshExternalService of TCP", to: "rows.outside:5432", say: aLine, want: "database"},
		{what: "an ExternalService", to: "far-web.mesh:80", say: get, want: "403|503"},
		{what: "an ExternalService of TCP", to: "far-rows.mesh:80", say: aLine, want: closed},
	}}, {what: "no permissions", without: keys("MeshTrafficPermission", "all"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: "403"},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: closed},
		{what: "a MeshExternalService, of which no policy speaks", to: "partner.outside:80", say: get, want: "partner"},
		{what: "an ExternalService", to: "far-web.mesh:80", say: get, want: "403|503"},
	}}, {what: "one service lets one other in", docs: permission("all", "backend", "web", "Allow"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, policies: []string{denied}},
		{what: "others", to: "db.mesh:80", say: aLine, want: closed},
	}}, {what: "one service lets others in", docs: permission("one", "db", "web", "Deny") +
		permission("two", "db", "backend", "Allow"), rows: []row{
		{what: "not this one", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/one"}},
		{what: "others", to: "backend.mesh:80", say: get, want: backends},
	}}, {what: "a server that speaks first lets others in", docs: permission("one", "banner", "web", "Deny") +
		permission("two", "banner", "backend", "Allow"), rows: []row{
		{what: "it is heard by who is not let in", to: "banner.mesh:80", say: nothing, want: "backend-2/3306",
			policies: []string{"MeshTrafficPermission/one"}},
	}}, {what: "clients by a tag", docs: permission("all", "", "", "Deny") +
		policy("MeshTrafficPermission", "a-front", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: MeshSubset, "+
			"tags: {team: front}}, default: {action: Allow}}]}"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, policies: []string{"MeshTrafficPermission/a-front"}},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "one dataplane", docs: policy("MeshTrafficPermission", "one", "{targetRef: {kind: Dataplane, "+
		"name: backend-2}, from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]}"), rows: []row{
		{what: "its TCP", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/one"}},
		{what: "gRPC of another", to: "calls.mesh:80", say: rpc, want: "backend-1/9090"},
	}}, {what: "in the shadow", docs: "---\n{type: MeshTrafficPermission, mesh: default, name: tried, " +
		"labels: {kuma.io/effect: shadow}, spec: " + from("", "", "{action: Deny}") + "}\n", rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends},
	}}}
}

// asResources returns documents that make MeshServices of the services backend and db.
func asResources() string {
	return theMesh(strict+", "+viaEgress+", meshServices: {mode: Everywhere}") +
		"---\n{type: HostnameGenerator, name: inside, spec: {template: \"{{ .DisplayName }}.inside\", " +
		"selector: {meshService: {}}}}\n" +
		"---\n{type: MeshService, mesh: default, name: first, spec: {selector: {dataplaneTags: {kuma.io/service: backend, " +
		"version: v1}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}}\n" +
		"---\n{type: MeshService, mesh: default, name: second, spec: {selector: {dataplaneTags: {kuma.io/service: db}}, " +
		"ports: [{port: 80, targetPort: 5432, appProtocol: tcp}]}}\n"
}

// bySPIFFE returns scenes in which the SPIFFE IDs of certificates decide which clients are admitted
// and which requests fail.
func bySPIFFE() []scene {
	const web, other, all = `{spiffeID: {type: Exact, value: "spiffe://default/web"}}`,
		`{spiffeID: {type: Exact, value: "spiffe://default/we"}}`, `{spiffeID: {type: Prefix, value: "spiffe://default/"}}`
	named := changed("default.backend-2", "{port: 5432", "{name: rows, port: 5432")
	section := func(name string) string {
		return policy("MeshTrafficPermission", "section", "{targetRef: {kind: Dataplane, name: backend-2, sectionName: '"+
			name+"'}, from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]}")
	}
	firstName := matchName("first")
	permits := func(name, conf string) string {
		return policy("MeshTrafficPermission", name, "{targetRef: {kind: Mesh}, rules: [{default: {"+conf+"}}]}")
	}
	scenes := []scene{{what: "deny beside a policy that allows", docs: permits("rules", "deny: ["+web+"]"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: "403", policies: []string{"MeshTrafficPermission/rules"}},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/rules"}},
	}}, {what: "rules that do not allow, beside a policy that allows", docs: permits("rules", "allow: ["+other+"]"),
		rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: "403", policies: []string{"MeshTrafficPermission/rules"}},
			{what: "TCP", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/rules"}},
			{what: "a server that speaks first", to: "banner.mesh:80", say: nothing, want: "backend-2/3306"},
		}}, {what: "rules that allow, beside a policy that denies", docs: permission("all", "", "", "Deny") +
		permits("rules", "allow: ["+web+"]"), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, policies: []string{"MeshTrafficPermission/rules"}},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "an inbound by its name", docs: named + permission("one", "", "", "Allow") + section("rows"), rows: []row{
		{what: "TCP", to: "db.mesh:80", say: aLine, want: closed, policies: []string{"MeshTrafficPermission/section"}},
		{what: "HTTP of another inbound", to: "backend.mesh:80", say: get, want: backends},
	}}, {what: "a named inbound by its number", docs: named + section("5432"), rows: []row{
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432", policies: []string{"MeshTrafficPermission/all"}},
	}}, {what: "deny by server name", docs: asResources() + permits("rules", "allow: ["+all+"], deny: [{"+
		firstName+"}]"), rows: []row{
		{what: "HTTP", to: "first.inside:80", say: get, want: "403", policies: []string{"MeshTrafficPermission/rules"}},
		{what: "TCP", to: "second.inside:80", say: aLine, want: "backend-2/5432"},
		{what: "another name of the service", to: "backend.mesh:80", say: get, want: backends},
	}}, {what: "allow by server name and certificate", docs: asResources() + permits("rules", "allow: [{"+
		firstName+", spiffeID: {type: Exact, value: \"spiffe://default/web\"}}]"), rows: []row{
		{what: "HTTP", to: "first.inside:80", say: get, want: "backend-1/8080",
			policies: []string{"MeshTrafficPermission/rules"}},
		{what: "HTTP of another client", from: "backend-2", to: "first.inside:80", say: get, want: "403"},
		{what: "TCP", to: "second.inside:80", say: aLine, want: closed},
		{what: "another name of the service", to: "backend.mesh:80", say: get, want: "403"},
	}}}
	for _, c := range []struct {
		what, conf string
		in         bool
	}{
		{"allow this client", "allow: [" + web + "]", true}, {"allow by prefix", "allow: [" + all + "]", true},
		{"allow another one", "allow: [" + other + "]", false},
		{"allow and deny", "allow: [" + all + "], deny: [" + web + "]", false},
		{"deny another one", "allow: [" + all + "], deny: [" + other + "]", true},
		{"a denial in the shadow", "allow: [" + all + "], allowWithShadowDeny: [" + web + "]", true},
		{"allowed in the shadow alone", "allowWithShadowDeny: [" + web + "]", true},
	} {
		http, tcp, rpcs := "403", closed, "grpc PermissionDenied"
		if c.in {
			http, tcp, rpcs = backends, "backend-2/5432", "backend-1/9090"
		}
		scenes = append(scenes,
			scene{what: c.what, docs: permits("rules", c.conf), without: keys("MeshTrafficPermission", "all"), rows: []row{
				{what: "HTTP", to: "backend.mesh:80", say: get, want: http},
				{what: "gRPC", to: "calls.mesh:80", say: rpc, want: rpcs},
				{what: "TCP", to: "db.mesh:80", say: aLine, want: tcp},
			}})
	}
	faults := func(match string) string {
		return policy("MeshFaultInjection", "rules", "{targetRef: {kind: Mesh}, rules: [{matches: ["+match+
			"], default: {http: [{abort: {httpStatus: 418, percentage: 100}}]}}]}")
	}
	limit := func(match, conf string) string {
		return "{" + match + "default: {local: {http: {" + conf + "}}}}"
	}
	return append(scenes,
		scene{what: "limits by certificate", docs: policy("MeshRateLimit", "rules", "{targetRef: "+target("calls")+
			", rules: ["+limit("matches: ["+web+"], ", "requestRate: {num: 1, interval: 1h}, onRateLimit: {status: 423}")+
			", "+limit(`matches: [{spiffeID: {type: Exact, value: "spiffe://default/db"}}], `,
			"requestRate: {num: 1, interval: 1h}")+", "+limit("", "requestRate: {num: 1000, interval: 1s}")+"]}"), rows: []row{
			{what: "the first", to: "calls.mesh:80", say: getH2, want: "backend-1/9090",
				policies: []string{"MeshRateLimit/rules"}},
			{what: "the second", to: "calls.mesh:80", say: getH2, want: "423", beyond: "what was sent before"},
			{what: "the first of a client with several IDs", from: "backend-2", to: "calls.mesh:80", say: getH2,
				want: "backend-1/9090"},
			{what: "the second of that client", from: "backend-2", to: "calls.mesh:80", say: getH2, want: "429",
				beyond: "what was sent before"},
			{what: "the first of a client that no match is about", from: "backend-1", to: "calls.mesh:80", say: getH2,
				want: "backend-1/9090"},
			{what: "the second of it", from: "backend-1", to: "calls.mesh:80", say: getH2, want: "backend-1/9090"},
		}},
		scene{what: "faults for this client", docs: faults(web), rows: []row{{what: "HTTP", to: "backend.mesh:80", say: get,
			want: "418", policies: []string{"MeshFaultInjection/rules"}}}},
		scene{what: "faults by prefix", docs: faults(all), rows: []row{{what: "HTTP", to: "backend.mesh:80", say: get,
			want: "418", policies: []string{"MeshFaultInjection/rules"}}}},
		scene{what: "faults for another one", docs: faults(other),
			rows: []row{{what: "HTTP", to: "backend.mesh:80", say: get, want: backends}}})
}

// permissive returns scenes with meshes whose inbounds also accept plain-text connections.
func permissive() []scene {
	rows := func() []row {
		return []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends},
			{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
			{what: "a server that speaks first", to: "banner.mesh:80", say: nothing, want: "backend-2/3306"},
			{what: "TCP of another mesh", mesh: "plain", to: nodeV4(4) + ":5432", say: aLine, want: "backend-2/5432",
				elsewhere: true},
			{what: "HTTP of another mesh", mesh: "plain", to: nodeV4(3) + ":8080", say: get, want: "backend-1/8080",
				elsewhere: true},
			{what: "a server that speaks first, to another mesh", mesh: "plain", to: nodeV4(4) + ":3306", say: nothing,
				want: "backend-2/3306", elsewhere: true},
			{what: "a port without an inbound", mesh: "plain", to: nodeV4(4) + ":6000", say: aLine, want: "backend-2/6000",
				elsewhere: true},
		}
	}
	return []scene{
		{what: "permissive", docs: theMesh(lenient + ", " + viaEgress), rows: rows()},
		{what: "permissive, nobody is let in", docs: theMesh(lenient+", "+viaEgress) + permission("all", "", "", "Deny"),
			rows: []row{
				{what: "HTTP", to: "backend.mesh:80", say: get, want: "403"},
				{what: "TCP", to: "db.mesh:80", say: aLine, want: closed},
			}},
		{what: "permissive by MeshTLS", docs: policy("MeshTLS",
			"soft", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {mode: Permissive}}]}"), rows: rows()},
		{what: "strict by MeshTLS", docs: theMesh(lenient+", "+viaEgress) + policy("MeshTLS",
			"hard", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {mode: Strict}}]}"), rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends},
			{what: "a port without an inbound", mesh: "plain", to: nodeV4(4) + ":6000", say: aLine, want: closed,
				beyond: "what happens in another mesh", elsewhere: true},
			{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
		}},
		{what: "TLS 1.3", docs: policy("MeshTLS", "new",
			"{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {tlsVersion: {min: TLS13}}}]}"), rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends},
			{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
		}},
	}
}

// withoutTLS returns scenes with a mesh that has disabled mTLS, which takes some seconds.
func withoutTLS() []scene {
	return []scene{
		{what: "without mTLS", docs: theMesh("networking: {}"), rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends},
			{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
			{what: "a server that speaks first", to: "banner.mesh:80", say: nothing, want: "backend-2/3306"},
			{what: "TCP of another mesh", mesh: "plain", to: nodeV4(4) + ":5432", say: aLine, want: "backend-2/5432",
				elsewhere: true},
			{what: "an ExternalService", to: "far-web.mesh:80", say: get, want: "www"},
		}},
		{what: "without mTLS, nobody is let in", docs: theMesh("networking: {}") + permission("all", "", "", "Deny"),
			rows: []row{
				{what: "HTTP, of which no permission holds", to: "backend.mesh:80", say: get, want: backends},
				{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
			}},
		{what: "WebSockets without mTLS", docs: taking("networking: {}"), rows: socketRows()},
	}
}
