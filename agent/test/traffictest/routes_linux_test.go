package traffictest_test

// route returns a MeshHTTPRoute with rules for the traffic from web to backend.
func route(rules string) string {
	return policy("MeshHTTPRoute", "r", "{targetRef: {kind: Dataplane, name: web}, to: [{targetRef: {kind: MeshService, "+
		"name: backend}, rules: ["+rules+"]}]}")
}

func rule(matches, action string) string {
	return "{matches: [" + matches + "], default: " + action + "}"
}

func prefix(path string) string { return "{path: {type: PathPrefix, value: " + path + "}}" }

func version(v string) string {
	return "{kind: MeshServiceSubset, name: backend, tags: {version: " + v + "}, weight: 1}"
}

func rewrite(kind, path string) string {
	field := map[string]string{"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}[kind]
	return "{filters: [{type: URLRewrite, urlRewrite: {path: {type: " + kind + ", " + field + ": " + path + "}}}]}"
}

func redirect(fields string) string {
	return "{filters: [{type: RequestRedirect, requestRedirect: {" + fields + "}}]}"
}

// routes returns scenes about the routing of requests and connections.
func routes() []scene {
	const one, two = "backend-1/8080", "backend-2/8080"
	ask := func(what, path, want string) row {
		return row{what: what, to: "backend.mesh:80", say: get, path: path, want: want}
	}
	with := func(r row, name, value string) row {
		r.headers = map[string]string{name: value}
		return r
	}
	got := func(r row, f func(*answered) bool) row {
		r.upstream = f
		return r
	}
	return []scene{{what: "routes by version", docs: route(rule(prefix("/one"), "{backendRefs: ["+version("v1")+"]}") +
		", " + rule("{path: {type: Exact, value: /exact}}", "{backendRefs: ["+version("v2")+"]}") + ", " +
		rule("{path: {type: RegularExpression, value: \"/r[0-9]+\"}}", "{backendRefs: ["+version("v1")+"]}") + ", " +
		rule("{method: POST}", "{backendRefs: ["+version("v2")+"]}") + ", " +
		rule("{headers: [{type: Exact, name: x-user, value: me}]}", "{backendRefs: ["+version("v1")+"]}") + ", " +
		rule("{queryParams: [{type: Exact, name: v, value: two}]}", "{backendRefs: ["+version("v2")+"]}") + ", " +
		rule(prefix("/shop"), "{backendRefs: [{kind: MeshService, name: calls}]}")), rows: []row{
		ask("a prefix", "/one", one), ask("below a prefix", "/one/more?x=1", one), ask("like a prefix", "/oneself", backends),
		ask("exact", "/exact", two), ask("exact, with a query", "/exact?a=b", two),
		ask("a regular expression", "/r2026", one),
		ask("query", "/?v=two", two), ask("another service", "/shop", "backend-1/9090"), ask("none", "/else", backends),
		with(ask("a header", "/h", one), "x-user", "me"),
		with(ask("a header with another value", "/h", backends), "x-user", "you"),
		{what: "a method", to: "backend.mesh:80", say: get, method: "POST", want: two, policies: []string{"MeshHTTPRoute/r"}},
		{what: "HTTP/2", to: "backend.mesh:80", say: getH2, path: "/exact", want: two},
	}}, {what: "routes by weight",
		docs: route(rule(prefix("/"), "{backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v1}, "+
			"weight: 0}, {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 5}]}")), rows: []row{
			ask("none of the first", "/a", two), ask("all of the second", "/b", two),
		}}, {what: "rewrites", docs: route(rule(prefix("/full"), rewrite("ReplaceFullPath", "/all")) + ", " +
		rule(prefix("/rw"), rewrite("ReplacePrefixMatch", "/new")) + ", " +
		rule(prefix("/off"), rewrite("ReplacePrefixMatch", "/")) + ", " +
		rule(prefix("/host"), "{filters: [{type: URLRewrite, urlRewrite: {hostname: other.example.com}}]}")), rows: []row{
		got(ask("the whole path", "/full/a?q=1", backends), rewritten("/all?q=1")),
		got(ask("a prefix", "/rw/a", backends), rewritten("/new/a")),
		got(ask("a prefix that is all", "/rw", backends), rewritten("/new")),
		got(ask("a prefix taken away", "/off/a?q=1", backends), rewritten("/a?q=1")),
		got(ask("a prefix that is all taken away", "/off", backends), rewritten("/")),
		got(ask("the host", "/host", backends), func(a *answered) bool { return a.seen.Host == "other.example.com" }),
	}}, {what: "redirects", docs: route(rule(prefix("/moved"), redirect("hostname: other.example.com, statusCode: 301")) +
		", " + rule(prefix("/tls"), redirect("scheme: https, port: 8443")) + ", " +
		rule(prefix("/all"), redirect("path: {type: ReplaceFullPath, replaceFullPath: /there}")) + ", " +
		rule(prefix("/rw"), redirect("path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}"))), rows: []row{
		got(ask("another host", "/moved/a", "301"), location("http://other.example.com/moved/a")),
		got(ask("TLS and a port", "/tls", "302"), location("https://backend.mesh:8443/tls")),
		got(ask("another path", "/all/a", "302"), location("http://backend.mesh/there")),
		got(ask("another prefix", "/rw/a", "302"), location("http://backend.mesh/new/a")),
	}}, {what: "headers", docs: route(rule(prefix("/"),
		"{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: b}], remove: [x-gone]}},"+
			" {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-back, value: c}]}}]}")), rows: []row{
		got(ask("one is set", "/", backends), header("x-a", "b")),
		got(with(ask("one is taken away", "/", backends), "x-gone", "1"), header("x-gone", "")),
		got(ask("one of the response", "/", backends), func(a *answered) bool { return a.header.Get("X-Back") == "c" }),
	}}, {what: "mirrors", docs: route(rule(prefix("/"), "{filters: [{type: RequestMirror, "+
		"requestMirror: {percentage: 100, backendRef: {kind: MeshService, name: calls}}}]}")), rows: []row{
		{what: "both get it", to: "backend.mesh:80", say: get, path: "/mirrored", want: backends,
			mirrors: map[string]string{"calls": "backend-1/9090"}},
	}}, {what: "TCP routes",
		docs: policy("MeshTCPRoute", "t", "{targetRef: {kind: Dataplane, name: web}, to: [{targetRef: {kind: MeshService, "+
			"name: db}, rules: [{default: {backendRefs: [{kind: MeshService, name: left}]}}]}]}"), rows: []row{
			{what: "another service", to: "db.mesh:80", say: aLine, want: "backend-1/left",
				policies: []string{"MeshTCPRoute/t"}}, {what: "HTTP beside it", to: "backend.mesh:80", say: get, want: backends},
		}}, {what: "a route to nobody", docs: route(rule(prefix("/"), "{backendRefs: [{kind: MeshService, name: nobody}]}")),
		rows: []row{
			ask("HTTP goes to the service itself", "/", backends),
		}}}
}
