package traffictest_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// shapes returns scenes about the handling of requests and connections.
func shapes() []scene {
	plain := func(what, want string) row { return row{what: what, to: "backend.mesh:80", say: get, want: want} }
	lost := func(r row, why string) row {
		r.beyond = why
		return r
	}
	with := func(r row, name, value string) row {
		r.headers = map[string]string{name: value}
		return r
	}
	return []scene{{what: "timeouts",
		docs: policy("MeshTimeout", "short", to("backend", "{http: {requestTimeout: 50ms}}")), rows: []row{
			plain("in time", backends),
			lost(with(plain("too late", "504"), "x-wait", "1"), "how long a server takes"),
		}}, {what: "retries", docs: policy("MeshRetry", "again", to("backend", "{http: {numRetries: 3, retryOn: [5xx]}}")),
		rows: []row{
			with(plain("the second try", backends), "x-fail-once", "retried"),
			plain("no failure", backends),
		}}, {what: "retries of one status",
		docs: policy("MeshRetry", "again", to("backend", "{http: {numRetries: 3, retryOn: [\"503\"]}}")), rows: []row{
			with(plain("the second try", backends), "x-fail-once", "retried by its status"),
			with(plain("another status", "backend-1/8080 500|backend-2/8080 500"), "x-answer", "500"),
		}}, {what: "retries of another status",
		docs: policy("MeshRetry", "again", to("backend", "{http: {numRetries: 3, retryOn: [\"409\"]}}")), rows: []row{
			with(plain("one try", "backend-1/8080 503|backend-2/8080 503"), "x-fail-once", "not retried by its status"),
		}}, {what: "no retries", docs: policy("MeshRetry", "again", to("backend", "{http: {numRetries: 0}}")), rows: []row{
		with(plain("one try", "backend-1/8080 503|backend-2/8080 503"), "x-fail-once", "not retried"),
	}}, {what: "circuit breakers", docs: policy("MeshCircuitBreaker", "once",
		to("backend", "{connectionLimits: {maxRequests: 100}, outlierDetection: {interval: 1s, baseEjectionTime: 1h, "+
			"maxEjectionPercent: 100, healthyPanicThreshold: 0, detectors: {totalFailures: {consecutive: 1}}}}")), rows: []row{
		plain("no failure", backends),
		with(plain("a failure", "backend-1/8080 500|backend-2/8080 500"), "x-answer", "500"),
		{what: "a second one", to: "backend.mesh:80", say: get, want: "backend-1/8080 500|backend-2/8080 500",
			headers: map[string]string{"x-answer": "500"}, after: func(t testing.TB, w *world) {
				// Both failures could come from one server, and other servers respond with 503 too.
				// The log of the client's proxy identifies the server.
				failing := with(plain("a failure", ""), "x-answer", "500")
				agenttest.Eventually(t, "both servers are ejected", func() bool {
					return w.send(t, &failing, w.address(t, &failing)).record.Flags == "UH"
				})
			}},
		lost(plain("nobody is left", "503"), "what servers have answered before"),
	}}, {what: "health checks", docs: policy("MeshHealthCheck", "dead",
		to("backend", "{interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, healthyPanicThreshold: 0, "+
			"http: {path: /, requestHeadersToAdd: {set: [{name: x-answer, value: \"500\"}]}}}")), rows: []row{
		lost(plain("nobody is healthy", "503"), "how servers are"),
	}}, {what: "health checks of TCP", docs: policy("MeshHealthCheck",
		"well", to("", "{interval: 1s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1, tcp: {}}")), rows: []row{
		plain("HTTP", backends),
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
	}}, {what: "load balancing by a header", docs: policy("MeshLoadBalancingStrategy", "ring", to("backend",
		"{loadBalancer: {type: RingHash, ringHash: {hashPolicies: [{type: Header, header: {name: x-user}}]}}}")),
		rows: []row{
			with(plain("one", backends), "x-user", "1"),
			with(plain("another", backends), "x-user", "2"),
		}}, {what: "faults", docs: policy("MeshFaultInjection", "broken",
		from("backend", "web", "{http: [{abort: {httpStatus: 418, percentage: 100}}]}")) + policy("MeshFaultInjection",
		"slow", from("calls", "", "{http: [{delay: {value: 50ms, percentage: 100}}]}")), rows: []row{
		{what: "aborted", to: "backend.mesh:80", say: get, want: "418", policies: []string{"MeshFaultInjection/broken"}},
		{what: "delayed", to: "calls.mesh:80", say: rpc, want: "backend-1/9090",
			upstream: func(a *answered) bool { return a.took >= 30*time.Millisecond }},
	}}, {what: "faults in percent", docs: policy("MeshFaultInjection",
		"some", from("backend", "web", "{http: [{abort: {httpStatus: 418, percentage: 50}}]}")), rows: []row{
		{what: "aborted or not", to: "backend.mesh:80", say: get, want: backends + "|418",
			policies: []string{"MeshFaultInjection/some"}, beyond: "chance"},
	}}, {what: "bandwidth", docs: policy("MeshFaultInjection",
		"narrow", from("backend", "web", "{http: [{responseBandwidth: {limit: 8Mbps, percentage: 100}}]}")), rows: []row{
		// The limit is 1,000,000 bytes per second, plus a burst.
		{what: "a body of a second", to: "backend.mesh:80", say: get, headers: map[string]string{"x-size": "1000000"},
			want: backends, policies: []string{"MeshFaultInjection/narrow"},
			upstream: func(a *answered) bool { return a.size > 1000000 && a.took >= 500*time.Millisecond }},
	}}, {what: "faults for others", docs: policy("MeshFaultInjection",
		"broken", from("backend", "db", "{http: [{abort: {httpStatus: 418, percentage: 100}}]}")), rows: []row{
		plain("nothing", backends),
	}}, {what: "rate limits", docs: policy("MeshRateLimit", "few", from("calls", "",
		"{local: {http: {requestRate: {num: 1, interval: 1h}, onRateLimit: {status: 423}}}}")) + policy("MeshRateLimit",
		"one", from("db", "", "{local: {tcp: {connectionRate: {num: 1, interval: 1h}}}}")), rows: []row{
		{what: "the first", to: "calls.mesh:80", say: getH2, want: "backend-1/9090"},
		{what: "the second", to: "calls.mesh:80", say: getH2, want: "423", beyond: "what was sent before"},
		{what: "the first of TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
		{what: "the second of TCP", to: "db.mesh:80", say: aLine, want: closed, beyond: "what was sent before"},
		plain("another service", backends),
	}}, {what: "rate limits with Envoy's status", docs: policy("MeshRateLimit",
		"few", from("calls", "", "{local: {http: {requestRate: {num: 1, interval: 1h}}}}")), rows: []row{
		{what: "the first", to: "calls.mesh:80", say: getH2, want: "backend-1/9090"},
		{what: "the second", to: "calls.mesh:80", say: getH2, want: "429", beyond: "what was sent before"},
	}}}
}

// observed returns scenes about what third parties see of requests.
func observed(log string) []scene {
	log += ".in"
	return []scene{{what: "metrics", docs: policy("MeshMetric", "m", "{targetRef: {kind: Mesh}, "+
		"default: {backends: [{type: Prometheus, prometheus: {port: 5670, path: /metrics}}]}}"), rows: []row{
		{what: "of a proxy", mesh: "plain", to: nodeV4(3) + ":5670", say: get, path: "/metrics", want: "200",
			beyond: "the other proxy answers itself", elsewhere: true},
		{what: "HTTP beside them", to: "backend.mesh:80", say: get, want: backends},
	}}, {what: "traces", docs: policy("MeshTrace", "z", "{targetRef: {kind: Mesh}, default: {sampling: {overall: 100, "+
		"random: 100, client: 100}, backends: [{type: Zipkin, zipkin: {url: \"http://198.51.100.30:80/api/v2/spans\"}}]}}"),
		rows: []row{
			{what: "a request", to: "backend.mesh:80", say: get, want: backends,
				upstream: func(a *answered) bool { return a.seen.Headers["x-b3-traceid"] != "" }},
		}}, {what: "access logs of servers", docs: policy("MeshAccessLog", "in",
		from("backend", "", logTo(log, "Plain", "plain: \"%REQ(:PATH)% "+source+"\""))) + policy("MeshAccessLog", "in-tcp",
		from("db", "", logTo(log, "Json", "json: [{key: who, value: \"%KUMA_SOURCE_SERVICE%\"}, {key: at, value: \"to "+
			"%KUMA_DESTINATION_SERVICE% of %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%\"}]"))) + "---\n{type: MeshAccessLog, mesh: " +
		"plain, name: in, spec: " + from("shop", "", logTo(log, "Plain", "plain: \""+source+"\"")) + "}\n", rows: []row{
		// Regardless of the addresses in the request, the log contains the address that the client
		// connects from.
		{what: "a request", to: "backend.mesh:80", say: get, path: "/logged",
			headers: map[string]string{"x-forwarded-for": "192.0.2.66"}, want: backends,
			after: logged(log, `^/logged web from `+regexp.QuoteMeta(nodeV4(2))+` \(`+regexp.QuoteMeta(nodeV4(2))+
				`:[1-9][0-9]*\)$`)},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-2/5432",
			after: logged(log, `^\{"at":"to db of `+regexp.QuoteMeta(nodeV4(2))+`","who":"web"\}$`)},
		{what: "a client without a certificate", mesh: "plain", to: "shop.mesh:80", say: get, want: "shop/8080",
			after: logged(log, `^unknown from `+regexp.QuoteMeta(nodeV4(7))+` \(`+regexp.QuoteMeta(nodeV4(7))+`:0\)$`)},
	}}}
}

// source is the log format for the client.
const source = "%KUMA_SOURCE_SERVICE% from %KUMA_SOURCE_ADDRESS_WITHOUT_PORT% (%KUMA_SOURCE_ADDRESS%)"

// logTo is the conf of an access log in a file.
func logTo(path, typ, format string) string {
	return "{backends: [{type: File, file: {path: " + path + ", format: {type: " + typ + ", " + format + "}}}]}"
}

// logged waits until a file contains a matching line.
func logged(path, line string) func(t testing.TB, w *world) {
	want := regexp.MustCompile("(?m)" + line)
	return func(t testing.TB, _ *world) {
		var b []byte
		defer func() {
			if t.Failed() {
				t.Logf("the log has:\n%s", b)
			}
		}()
		agenttest.Eventually(t, "the server's proxy has logged "+line, func() bool {
			b, _ = os.ReadFile(path)
			return want.Match(b)
		})
	}
}

// patches returns the scenes of MeshProxyPatch and ProxyTemplate.
func patches() []scene {
	patch := func(name, modification string) string {
		return policy("MeshProxyPatch", name,
			"{targetRef: {kind: Dataplane, name: web}, default: {appendModifications: ["+modification+"]}}")
	}
	return []scene{{what: "a patched virtual host", docs: patch("p",
		`{virtualHost: {operation: Patch, match: {name: backend}, value: "requestHeadersToAdd: [{header: {key: x-patched, value: 'yes'}}]"}}`), rows: []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: backends, upstream: header("x-patched", "yes")},
	}}, {what: "TCP tunnelled by CONNECT", docs: patch("p", `{networkFilter: {operation: Patch, match: {name: envoy.filters.network.tcp_proxy, listenerTags: {kuma.io/service: far-rows}}, value: "name: envoy.filters.network.tcp_proxy\ntypedConfig:\n  '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n  cluster: relay\n  tunnelingConfig: {hostname: '10.20.0.8:9000'}"}}, `+
		`{cluster: {operation: Add, value: "name: relay\ntype: STATIC\nconnectTimeout: 5s\nloadAssignment: {clusterName: relay, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 198.51.100.40, portValue: 8080}}}}]}]}"}}`), rows: []row{
		{what: "a line", to: "far-rows.mesh:80", say: aLine, want: "beside-the-box", cluster: "relay"},
		{what: "HTTP beside it", to: "backend.mesh:80", say: get, want: backends},
	}}, {what: "a listener that Envoy does not take", docs: patch("p", `{networkFilter: {operation: Patch, match: {name: envoy.filters.network.tcp_proxy, listenerTags: {kuma.io/service: db}}, value: "name: envoy.filters.network.tcp_proxy\ntypedConfig:\n  '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n  cluster: left"}}, `+
		`{listener: {operation: Patch, match: {tags: {kuma.io/service: db}}, value: "accessLog: [{name: envoy.access_loggers.file, typedConfig: {'@type': type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: /tmp/x.log, logFormat: {textFormatSource: {inlineString: '%LATE%'}}}}]"}}`), rows: []row{
		{what: "what it was before", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
		{what: "HTTP beside it", to: "backend.mesh:80", say: get, want: backends},
	}}}
}
