package traffictest_test

import "testing"

// legacies returns the scenes of the source-destination policies.
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
		docs: "---\n{type: TrafficPermission, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], " +
			"destinations: [{match: {kuma.io/service: backend}}]}\n" +
			"---\n{type: TrafficPermission, mesh: default, name: others, sources: [{match: {kuma.io/service: db}}], " +
			"destinations: [{match: {kuma.io/service: calls}}]}\n", rows: []row{
			{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, policies: []string{"TrafficPermission/old"}},
			{what: "others", to: "db.mesh:80", say: aLine, want: closed},
			// The server closes the connection.
			{what: "HTTP/2 that lets in another client", to: "calls.mesh:80", say: getH2, want: "503"},
			{what: "gRPC that lets in another client", to: "calls.mesh:80", say: rpc, want: "grpc Unavailable"},
		}}, {what: "legacy routes", docs: "---\n{type: TrafficRoute, mesh: default, name: old, " +
		"sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: backend}}]," +
		" conf: {http: [{match: {path: {prefix: /two}}, destination: {kuma.io/service: backend, version: v2}}], " +
		"destination: {kuma.io/service: backend, version: v1}}}\n", rows: []row{
		ask("a path", "/two", two), ask("others", "/", one),
		{what: "a service without a route", to: "db.mesh:80", say: aLine, want: closed},
	}}, {what: "legacy faults",
		docs: "---\n{type: FaultInjection, mesh: default, name: old, sources: [{match: {kuma.io/service: web, " +
			"kuma.io/protocol: http}}], destinations: [{match: {kuma.io/service: backend, kuma.io/protocol: http}}]," +
			" conf: {abort: {httpStatus: 417, percentage: 100}}}\n", rows: []row{
			{what: "aborted", to: "backend.mesh:80", say: get, want: "417", policies: []string{"FaultInjection/old"}},
		}}, {what: "legacy rate limits", docs: "---\n{type: RateLimit, mesh: default, name: old, " + all +
		", conf: {http: {requests: 1000, interval: 1s}}}\n" +
		"---\n{type: RateLimit, mesh: default, name: narrow, sources: [{match: {kuma.io/service: web}}], destinations: " +
		"[{match: {kuma.io/service: backend}}], conf: {http: {requests: 1, interval: 1h, onRateLimit: {status: 423}}}}\n",
		rows: []row{
			{what: "one of two servers", to: "backend.mesh:80", say: get, want: backends, after: func(t testing.TB, w *world) {
				refused, second := 0, plain("beyond the limit", "")
				for range 2 { // each of the two servers accepts one of the three requests
					if w.send(t, &second, w.address(t, &second)).status == 423 {
						refused++
					}
				}
				if refused == 0 {
					t.Error("three requests within the limits of two servers")
				}
			}}, {what: "others", to: "calls.mesh:80", say: rpc, want: "backend-1/9090"},
		}}, {what: "legacy rate limits outside",
		docs: "---\n{type: RateLimit, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], destinations: " +
			"[{match: {kuma.io/service: far-web}}], conf: {http: {requests: 1, interval: 1h, onRateLimit: {status: 423}}}}\n" +
			"---\n{type: RateLimit, mesh: plain, name: old, " + all + ", conf: {http: {requests: 1, interval: 1h}}}\n",
		rows: []row{
			{what: "through an egress", to: "far-web.mesh:80", say: get, want: "www", policies: []string{"RateLimit/old"}},
			{what: "the second through an egress", to: "far-web.mesh:80", say: get, want: "423", beyond: "what was sent before"},
			{what: "another client through an egress", from: "backend-1", to: "far-web.mesh:80", say: get, want: "www"},
			{what: "the second of another client", from: "backend-1", to: "far-web.mesh:80", say: get, want: "www"},
			{what: "straight", mesh: "plain", to: "far-web.mesh:80", say: get, want: "www", policies: []string{"RateLimit/old"}},
			{what: "the second, straight", mesh: "plain", to: "far-web.mesh:80", say: get, want: "429",
				beyond: "what was sent before"},
		}}, {what: "legacy retries", docs: "---\n{type: Retry, mesh: default, name: old, " + all + ", conf: {http: " +
		"{numRetries: 3, retryOn: [all_5xx]}, grpc: {numRetries: 2}, tcp: {maxConnectAttempts: 2}}}\n", rows: []row{
		with(plain("the second try", backends), "x-fail-once", "retried by a legacy policy"),
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "legacy health checks", docs: "---\n{type: HealthCheck, mesh: default, name: old, " + all +
		", conf: {interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, tcp: {}}}\n", rows: []row{
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "legacy health checks of HTTP", docs: "---\n{type: HealthCheck, mesh: default, name: old, " + all +
		", conf: {interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, healthyPanicThreshold: 0," +
		" tcp: {}, http: {path: /, requestHeadersToAdd: [{header: {key: x-answer, value: \"500\"}}]}}}\n", rows: []row{
		lost(plain("nobody is healthy", "503"), "how servers are"),
	}}, {what: "legacy traces", docs: theMesh(strict+", "+viaEgress+", tracing: {backends: [{name: zipkin, "+
		"type: zipkin, sampling: 50, conf: {url: 'http://127.0.0.1:9/api/v2/spans'}}]}") + "---\n{type: TrafficTrace, " +
		"mesh: default, name: old, selectors: [{match: {kuma.io/service: '*'}}], conf: {backend: zipkin}}\n", rows: []row{
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "legacy timeouts",
		docs: "---\n{type: Timeout, mesh: default, name: old, sources: [{match: {kuma.io/service: web}}], " +
			"destinations: [{match: {kuma.io/service: backend}}], conf: {http: {requestTimeout: 50ms}}}\n", rows: []row{
			lost(with(plain("too late", "504"), "x-wait", "1"), "how long a server takes"),
		}}, {what: "a legacy template", docs: "---\n{type: ProxyTemplate, mesh: default, name: old, selectors: [{match: " +
		"{kuma.io/service: web}}], conf: {imports: [default-proxy], modifications: [{virtualHost: {operation: patch, " +
		"match: {name: backend}, value: \"requestHeadersToAdd: [{header: {key: x-old, value: 'yes'}}]\"}}]}}\n", rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, upstream: header("x-old", "yes")},
	}}, {what: "legacy circuit breakers", docs: "---\n{type: CircuitBreaker, mesh: default, name: old, " + all +
		", conf: {thresholds: {maxConnections: 50, maxRequests: 50}}}\n", rows: []row{
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "legacy access logs", without: keys("MeshAccessLog", "witness"), docs: theMesh(strict+", "+viaEgress+
		", logging: {defaultBackend: file, backends: [{name: file, type: file, format: '"+recordText+"', conf: {path: "+log+
		"}}]}") + "---\n{type: TrafficLog, mesh: default, name: old, " + all + "}\n", rows: []row{
		// The access log shows the test which route was taken.
		plain("HTTP", backends), {what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}}
}
