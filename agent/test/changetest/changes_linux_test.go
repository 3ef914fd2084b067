package changetest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// subject is a resource with its forms. All of them permit the traffic of the test. An empty form
// means that the resource does not exist.
type subject struct {
	key     resource.Key
	forms   []string
	current string
}

// policy returns a document of the mesh.
func policy(kind, name, spec string) string {
	return fmt.Sprintf("{type: %s, mesh: default, name: %s, spec: %s}", kind, name, spec)
}

// legacy returns a document of a source-destination policy for all services.
func legacy(kind, conf string) string {
	return fmt.Sprintf("{type: %s, mesh: default, name: old, sources: [{match: {kuma.io/service: '*'}}], "+
		"destinations: [{match: {kuma.io/service: '*'}}], conf: %s}", kind, conf)
}

// to and from return the specs of policies for all connections.
func to(conf string) string {
	return "{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: " + conf + "}]}"
}

func from(conf string) string {
	return "{targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, default: " + conf + "}]}"
}

func service(name, conf string) string {
	return "{targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: " + name + "}, " + conf + "}]}"
}

// meshTLS returns a MeshTLS with a conf.
func meshTLS(conf string) string {
	return policy("MeshTLS", "tls", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {"+conf+"}}]}")
}

// versions and ciphers are forms of MeshTLS that exclude each other.
func versions() []string {
	return []string{meshTLS("tlsVersion: {min: TLS12, max: TLS12}"), meshTLS("tlsVersion: {min: TLS13, max: TLS13}")}
}

func ciphers() []string {
	const conf = "tlsVersion: {max: TLS12}, tlsCiphers: [ECDHE-ECDSA-%s, ECDHE-RSA-%[1]s]"
	return []string{meshTLS(fmt.Sprintf(conf, "AES256-GCM-SHA384")), meshTLS(fmt.Sprintf(conf, "CHACHA20-POLY1305"))}
}

// subjects returns all subjects of a world.
func (w *world) subjects() []*subject {
	log := w.t.TempDir() + "/access.log"
	forms := [][]string{
		append(append(versions(), ciphers()...), meshTLS("mode: Permissive"), meshTLS("mode: Strict"), ""),
		{theMesh + strict, theMesh + ", routing: {localityAwareLoadBalancing: true}" + strict, theMesh + "}",
			theMesh + ", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}}"},
		{policy("MeshTrafficPermission", "all", from("{action: Allow}")),
			policy("MeshTrafficPermission", "all", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: "+
				"{action: Deny}}, {targetRef: {kind: MeshService, name: web}, default: {action: Allow}}]}"),
			policy("MeshTrafficPermission", "all", "{targetRef: {kind: Mesh}, "+
				"rules: [{default: {allow: [{spiffeID: {type: Prefix, value: 'spiffe://default/'}}]}}]}")},
		{"", policy("MeshTimeout", "t", to("{idleTimeout: 1h, connectionTimeout: 5s, http: {requestTimeout: 1h}}")),
			policy("MeshTimeout", "t", to("{connectionTimeout: 7s, http: {requestTimeout: 0s, streamIdleTimeout: 30m}}")),
			policy("MeshTimeout", "t", from("{idleTimeout: 2h, http: {requestTimeout: 0s, streamIdleTimeout: 40m}}"))},
		{"", policy("MeshRetry", "r", to("{http: {numRetries: 2, retryOn: ['409']}}")),
			policy("MeshRetry",
				"r", to("{http: {numRetries: 3, retryOn: ['410']}, grpc: {numRetries: 1, retryOn: [Canceled]}}"))},
		{"", policy("MeshCircuitBreaker", "c", to("{connectionLimits: {maxConnections: 1000, maxRequests: 1000}}")),
			policy("MeshCircuitBreaker", "c", to("{connectionLimits: {maxPendingRequests: 900}, "+
				"outlierDetection: {interval: 1s, baseEjectionTime: 1s, detectors: {totalFailures: {consecutive: 1000}}}}")),
			policy("MeshCircuitBreaker", "c", from("{connectionLimits: {maxConnections: 1100}}"))},
		{"", policy("MeshHealthCheck", "h",
			to("{interval: 1s, timeout: 5s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}")), policy("MeshHealthCheck",
			"h", to("{interval: 2s, timeout: 5s, unhealthyThreshold: 4, healthyThreshold: 1, tcp: {}}"))},
		{"", policy("MeshLoadBalancingStrategy", "l", to("{loadBalancer: {type: Random}}")),
			policy("MeshLoadBalancingStrategy", "l", to("{loadBalancer: {type: LeastRequest}}")),
			policy("MeshLoadBalancingStrategy", "l", to("{localityAwareness: {disabled: true}}")),
			policy("MeshLoadBalancingStrategy", "l", service("backend", "default: {loadBalancer: {type: RingHash, "+
				"ringHash: {hashPolicies: [{type: Header, header: {name: x-user}}]}}}"))},
		{"", policy("MeshHTTPRoute", "w", service("backend", "rules: [{matches: [{path: {type: PathPrefix, value: /}}], "+
			"default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {instance: i1}, weight: 1}, "+
			"{kind: MeshServiceSubset, name: backend, tags: {instance: i2}, weight: 1}]}}]")),
			policy("MeshHTTPRoute",
				"w", service("backend", "rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: "+
					"{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: b}]}}]}}]")),
			policy("MeshHTTPRoute", "w", service("calls", "rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: "+
				"{backendRefs: [{kind: MeshServiceSubset, name: calls, tags: {instance: i2}}]}}]"))},
		{"", policy("MeshTCPRoute", "w", service("rows",
			"rules: [{default: {backendRefs: [{kind: MeshServiceSubset, name: rows, tags: {instance: i1}}]}}]")),
			policy("MeshTCPRoute",
				"w", service("rows", "rules: [{default: {backendRefs: [{kind: MeshService, name: rows}]}}]"))},
		{"", policy("MeshFaultInjection", "f", from("{http: [{delay: {value: 5ms, percentage: 50}}]}")),
			policy("MeshFaultInjection", "f", "{targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: "+
				"MeshService, name: other}, default: {http: [{abort: {httpStatus: 500, percentage: 100}}]}}]}")},
		{"", policy("MeshRateLimit", "q", from("{local: {http: {requestRate: {num: 1000000, interval: 1s}}}}")),
			policy("MeshRateLimit", "q", from("{local: {tcp: {connectionRate: {num: 100000, interval: 1s}}}}"))},
		{"", policy("MeshAccessLog", "a", to("{backends: [{type: File, file: {path: "+log+"}}]}")),
			policy("MeshAccessLog",
				"a", from("{backends: [{type: File, file: {path: "+log+", format: {type: Plain, plain: x}}}]}"))},
		{"", policy("MeshMetric", "m", fmt.Sprintf("{targetRef: {kind: Mesh}, default: {backends: [{type: Prometheus, "+
			"prometheus: {port: %d, path: /metrics}}]}}", agenttest.FreePort(w.t)))},
		{"", policy("MeshTrace", "z", "{targetRef: {kind: Mesh}, default: {sampling: {overall: 10}, "+
			"backends: [{type: Zipkin, zipkin: {url: 'http://127.0.0.1:9/api/v2/spans'}}]}}")},
		{"", policy("MeshPassthrough", "p", "{targetRef: {kind: Mesh}, default: {passthroughMode: None}}"),
			policy("MeshPassthrough", "p", "{targetRef: {kind: Mesh}, default: {passthroughMode: Matched, "+
				"appendMatch: [{type: Domain, value: api.example.com, port: 443, protocol: tls}]}}")},
		{"", policy("MeshProxyPatch", "x", "{targetRef: {kind: Mesh}, default: {appendModifications: [{cluster: "+
			"{operation: Patch, match: {name: backend}, value: 'connectTimeout: 6s'}}]}}"),
			policy("MeshProxyPatch", "x", "{targetRef: {kind: Mesh}, default: {appendModifications: [{virtualHost: "+
				"{operation: Patch, match: {name: backend}, value: 'requestHeadersToAdd: [{header: {key: x-p, value: y}}]'}}]}}"),
			policy("MeshProxyPatch", "x", "{targetRef: {kind: Mesh}, default: {appendModifications: [{listener: "+
				"{operation: Patch, match: {origin: inbound}, value: 'perConnectionBufferLimitBytes: 65536'}}]}}")},
		{strings.Trim(w.backend(1, "a"), "-\n"), strings.Trim(w.backend(1, "b"), "-\n")},
		{strings.Trim(w.backend(2, "a"), "-\n"), strings.Trim(w.backend(2, "c"), "-\n")},
		{"", policy("MeshService", "first", "{selector: {dataplaneTags: {kuma.io/service: backend}}, "+
			"ports: [{port: 80, targetPort: "+fmt.Sprint(w.inbounds[0])+", appProtocol: http}]}")},
		{"", policy("MeshMultiZoneService", "many", "{selector: {meshService: {matchLabels: {app: x}}}, ports: [{port: 80, "+
			"appProtocol: http}]}")},
		{"", policy("MeshExternalService", "far", "{match: {type: HostnameGenerator, port: 80, protocol: http}, "+
			"endpoints: [{address: 192.0.2.1, port: 80}]}")},
		{"", "{type: ExternalService, mesh: default, name: away, tags: {kuma.io/service: away, kuma.io/protocol: tcp}, " +
			"networking: {address: '192.0.2.2:9000'}}"},
		{"", "{type: HostnameGenerator, name: names, spec: {template: '{{ .DisplayName }}.test', " +
			"selector: {meshService: {}}}}"},
		{"", "{type: VirtualOutbound, mesh: default, name: v, selectors: [{match: {kuma.io/service: '*'}}], conf: " +
			"{host: '{{.service}}.{{.version}}.mesh', port: '8080', parameters: [{name: service, tagKey: kuma.io/service}, " +
			"{name: version}]}}"},
		{"", legacy("TrafficRoute", "{destination: {kuma.io/service: '*'}}"),
			legacy("TrafficRoute", "{loadBalancer: {leastRequest: {choiceCount: 3}}, destination: {kuma.io/service: '*'}}")},
		{"", legacy("Timeout", "{connectTimeout: 8s, http: {requestTimeout: 1h}}")},
		{"", legacy("Retry", "{http: {numRetries: 1, retryOn: [retriable_headers]}}")},
		{"", legacy("CircuitBreaker", "{thresholds: {maxConnections: 500, maxRequests: 500}}")},
		{"", legacy("HealthCheck", "{interval: 1s, timeout: 5s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}")},
		{"", legacy("RateLimit", "{http: {requests: 1000000, interval: 1s}}")},
		{"", strings.ReplaceAll(legacy("FaultInjection", "{delay: {value: 3ms, percentage: 10}}"),
			"kuma.io/service: '*'", "kuma.io/service: '*', kuma.io/protocol: http")},
		{"", "{type: TrafficPermission, mesh: default, name: old, sources: [{match: {kuma.io/service: '*'}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}]}"},
		{"", "{type: TrafficLog, mesh: default, name: old, sources: [{match: {kuma.io/service: '*'}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}]}"},
		{"", "{type: TrafficTrace, mesh: default, name: old, selectors: [{match: {kuma.io/service: '*'}}]}"},
		{"", "{type: ProxyTemplate, mesh: default, name: old, selectors: [{match: {kuma.io/service: web}}], conf: " +
			"{imports: [default-proxy], modifications: [{virtualHost: {operation: patch, match: {name: backend}, " +
			"value: 'requestHeadersToAdd: [{header: {key: x-o, value: z}}]'}}]}}"},
	}
	var out []*subject
	for _, list := range forms {
		s := &subject{forms: list, current: list[0]}
		for _, doc := range list {
			if doc != "" {
				s.key = agenttest.Decoded(w.t, doc)[0].Key
			}
		}
		out = append(out, s)
	}
	return out
}

// put makes a form of a subject current. Without traffic it may be the current one.
func (w *world) put(x *traffic, s *subject, form string) {
	w.t.Helper()
	op := store.Op{Delete: s.key}
	what := "no " + s.key.String()
	if form != "" {
		op = store.Op{Put: agenttest.Decoded(w.t, form)[0]}
		what = form
	}
	if x != nil {
		x.note(what)
	}
	s.current = form
	_, err := w.a.Store().Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: "test",
		Ops: []store.Op{op}})
	agenttest.Do(w.t, err)
}

// next returns a random form of a subject other than the current one.
func (s *subject) next(g *rand.Rand) string {
	for {
		if form := s.forms[g.IntN(len(s.forms))]; form != s.current {
			return form
		}
	}
}

// TestEveryKind checks that each policy kind is among the changes.
func TestEveryKind(t *testing.T) {
	have := map[string]bool{}
	for _, s := range (&world{t: t, inbounds: [3]int{1, 2, 3}, workloads: [3]int{4, 5, 6}}).subjects() {
		have[s.key.Kind] = true
	}
	for _, d := range kinds.Policies() {
		if !have[d.Kind] {
			t.Errorf("%s is not among the changes", d.Kind)
		}
	}
}
