package traffictest_test

// legacies is what the source-destination policies do.
func legacies(log string) []scene {
	const one, two = "backend-1/8080", "backend-2/8080"
	ask := func(what, path, want string) row {
		return row{what: what, to: "backend.mesh:80", say: get, path: path, want: want}
	}
	lost := func(r row, why string) row {
		r.beyond = why
		return r
	}
	with := func(r row, name, value string) row {
		r.headers = map[string]string{name: value}
		return r
	}
	plain := func(what, want string) row { return ask(what, "/", want) }
	_, recordText := recordFormat()
	const all = "sources: [{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}]"
	return []scene{{what: "legacy permissions", without: keys("MeshTrafficPermission", "all"),
		docs: "---\n{type: TrafficPermission, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: backend}}]}\n", rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, policies: []string{"TrafficPermission/old"}},
			{what: "others", to: "db.mesh:80", say: aLine, want: closed},
		}}, {what: "legacy routes", docs: "---\n{type: TrafficRoute, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: backend}}]," +
		" conf: {http: [{match: {path: {prefix: /two}}, destination: {kuma.io/service: backend, version: v2}}], destination: {kuma.io/service: backend, version: v1}}}\n", rows: []row{
		ask("a path", "/two", two), ask("others", "/", one),
	}}, {what: "legacy faults", docs: "---\n{type: FaultInjection, mesh: default, name: old, sources: [{match: {kuma.io/service: web, kuma.io/protocol: http}}], destinations: [{match: {kuma.io/service: backend, kuma.io/protocol: http}}]," +
		" conf: {abort: {httpStatus: 417, percentage: 100}}}\n", rows: []row{
		{what: "aborted", to: "backend.mesh:80", say: get, want: "417", policies: []string{"FaultInjection/old"}},
	}}, {what: "legacy timeouts", docs: "---\n{type: Timeout, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: backend}}], conf: {http: {requestTimeout: 50ms}}}\n", rows: []row{
		lost(with(plain("too late", "504"), "x-wait", "1"), "how long a server takes"),
	}}, {what: "a legacy template", docs: "---\n{type: ProxyTemplate, mesh: default, name: old, selectors: [{match: {kuma.io/service: web}}], conf: {imports: [default-proxy], modifications: [" +
		"{virtualHost: {operation: patch, match: {name: backend}, value: \"requestHeadersToAdd: [{header: {key: x-old, value: 'yes'}}]\"}}]}}\n", rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, upstream: header("x-old", "yes")},
	}}, {what: "legacy circuit breakers", docs: "---\n{type: CircuitBreaker, mesh: default, name: old, " + all + ", conf: {thresholds: {maxConnections: 50, maxRequests: 50}}}\n", rows: []row{
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "legacy access logs", without: keys("MeshAccessLog", "witness"), docs: theMesh(strict+", "+viaEgress+", logging: {defaultBackend: file, backends: [{name: file, type: file, format: '"+recordText+"', conf: {path: "+log+"}}]}") +
		"---\n{type: TrafficLog, mesh: default, name: old, " + all + "}\n", rows: []row{
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"}, // the log is how the test knows the way
	}}}
}
