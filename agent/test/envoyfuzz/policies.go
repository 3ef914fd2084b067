package envoyfuzz

// Mesh contains each part of a config that inputs change.
const Mesh = Policies + `---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  inbound:
  - {port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}
  - {port: 8081, tags: {kuma.io/service: web-tcp, kuma.io/protocol: tcp}}
  outbound:
  - {port: 10001, tags: {kuma.io/service: backend}}
  - {port: 10002, tags: {kuma.io/service: db}}
  - {port: 10003, tags: {kuma.io/service: grpc}}
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 192.0.2.2
  inbound:
  - {port: 9000, tags: {kuma.io/service: backend, kuma.io/protocol: http}}
  - {port: 9001, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}
  - {port: 9002, tags: {kuma.io/service: grpc, kuma.io/protocol: grpc}}
  outbound: [{port: 10001, tags: {kuma.io/service: web}}]
`

// Policies are the mesh without its Dataplanes web, backend, db, and grpc.
const Policies = `
type: Mesh
name: default
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin, mode: PERMISSIVE}]}
---
type: MeshAccessLog
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /var/log/all.log}}]}}]}
---
type: MeshTimeout
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 5s, idleTimeout: 1h, http: {requestTimeout: 15s, streamIdleTimeout: 30m}}}]}
---
type: MeshRetry
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 3, perTryTimeout: 2s, retryOn: ["5xx"]}}}]}
---
type: MeshCircuitBreaker
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 100}, outlierDetection: {interval: 10s, detectors: {totalFailures: {consecutive: 5}}}}}]}
---
type: MeshHTTPRoute
mesh: default
name: r
spec:
  targetRef: {kind: MeshSubset, tags: {kuma.io/service: web}}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: PathPrefix, value: /api}, headers: [{type: Exact, name: x-a, value: b}]}]
      default: {backendRefs: [{kind: MeshService, name: backend, weight: 1}]}
---
type: MeshTrafficPermission
mesh: default
name: all
spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}
`

// policies are policies with placeholders for unusual values.
var policies = []string{
	head("MeshTimeout", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: {{godur}}, idleTimeout: {{godur}}, http: {requestTimeout: {{godur}}, streamIdleTimeout: {{godur}}, maxStreamDuration: {{godur}}, maxConnectionDuration: {{godur}}}}}]}`),
	head("MeshTimeout", `{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {connectionTimeout: {{godur}}, idleTimeout: {{godur}}, http: {requestHeadersTimeout: {{godur}}}}}]}`),
	head("MeshRetry", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: {{u32}}, perTryTimeout: {{godur}}, backOff: {baseInterval: {{godur}}, maxInterval: {{godur}}}, retryOn: ["{{5xx|GatewayError|Reset|429|HttpMethodGet|Retriable4xx}}"]}}}]}`),
	head("MeshRetry", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {tcp: {maxConnectAttempt: {{u32}}}, http: {retryOn: ["5xx"], rateLimitedBackOff: {maxInterval: {{godur}}, resetHeaders: [{name: x, format: {{Seconds|UnixTimestamp}}}]}}}}]}`),
	head("MeshRetry", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {http: {retryOn: ["5xx"], retriableRequestHeaders: [{type: {{Exact|RegularExpression|Prefix}}, name: x, value: '{{a|(|.*|\x{100}}}'}], hostSelection: [{predicate: {{OmitPreviousHosts|OmitPreviousPriorities}}, updateFrequency: {{1|0}}}]}}}]}`),
	head("MeshCircuitBreaker", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: {{u32}}, maxRetries: {{u32}}}, outlierDetection: {interval: {{godur}}, baseEjectionTime: {{godur}}, maxEjectionPercent: {{0|50|100|101}}, detectors: {successRate: {minimumHosts: 5, requestVolume: 10, standardDeviationFactor: "{{1.9|0|x|5000000}}"}}}}}]}`),
	head("MeshHealthCheck", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {interval: {{godur}}, timeout: {{godur}}, unhealthyThreshold: {{0|1|5}}, healthyThreshold: 1, initialJitter: {{godur}}, {{tcp: {send: Zm9v}|grpc: {serviceName: a}|http: {path: /h, expectedStatuses: [200, 201]}|http: {path: /h, expectedStatuses: [600]}}}}}]}`),
	head("MeshHealthCheck", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {interval: 1s, timeout: 1s, noTrafficInterval: {{godur}}, healthyPanicThreshold: {{0|50|101}}, eventLogPath: {{/tmp/x|""}}, intervalJitterPercent: {{u32}}, tcp: {}}}]}`),
	head("MeshRateLimit", `{targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, default: {local: {http: {requestRate: {num: {{u32}}, interval: {{49ms|50ms|1ms|1s|1h|8761h}}}, onRateLimit: {status: {{200|429|600}}, headers: {set: [{name: "{{header}}", value: "{{a|%BAD%|%}}"}]}}}, tcp: {connectionRate: {num: {{u32}}, interval: {{49ms|50ms|1s}}}}}}}]}`),
	head("MeshFaultInjection", `{targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, default: {http: [{abort: {httpStatus: {{199|200|500|600}}, percentage: "{{0|50|100|101|0.0001}}"}, delay: {value: {{godur}}, percentage: 50}, responseBandwidth: {limit: "{{1Kbps|0Kbps|1Gbps|1bps}}", percentage: 50}}]}}]}`),
	head("MeshAccessLog", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /tmp/a, format: {type: Plain, plain: '{{format}}'}}}]}}]}`),
	head("MeshAccessLog", `{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /tmp/a, format: {type: Json, json: [{key: a, value: '{{format}}'}]}}}]}}]}`),
	head("MeshAccessLog", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: OpenTelemetry, openTelemetry: {endpoint: "otel:4317", body: '{{format}}', attributes: [{key: a, value: '{{format}}'}]}}]}}]}`),
	head("MeshAccessLog", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: "127.0.0.1:5000", format: {type: Plain, plain: '{{format}}'}}}]}}]}`),
	head("MeshTrace", `{targetRef: {kind: Mesh}, default: {backends: [{type: {{Zipkin, zipkin: {url: "http://z:9411/api/v2/spans"}|OpenTelemetry, openTelemetry: {endpoint: "otel:4317"}|Datadog, datadog: {url: "http://d:8126"}}}}], sampling: {overall: {{0|50|100|101}}, random: "{{0.5|50}}"}, tags: [{name: a, literal: "{{a|%BAD%}}"}, {name: b, header: {name: "{{header}}", default: x}}]}}`),
	httpRoute(`matches: [{path: {type: RegularExpression, value: '{{(|a.*|\Qa|/é|\x{100}|/\pN}}'}}], default: {}`),
	httpRoute(`matches: [{path: {type: {{Exact|PathPrefix}}, value: '{{/a|/a/|/|/a?b|/a#b|/é}}'}}], default: {}`),
	httpRoute(`matches: [{headers: [{type: {{Exact|RegularExpression|Prefix|Present|Absent}}, name: '{{x|:path|X-A}}', value: '{{a|(|\x{100}|[é]}}'}]}], default: {}`),
	httpRoute(`matches: [{queryParams: [{type: {{Exact|RegularExpression}}, name: a, value: '{{a|(|\x{100}}}'}], method: {{GET|CONNECT}}}], default: {}`),
	httpRoute(`matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: "{{header}}", value: "{{a|%BAD%|100%}}"}], remove: ["{{header}}"]}}]}`),
	httpRoute(`matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: URLRewrite, urlRewrite: {hostname: {{a.com|"a b"}}, path: {type: {{ReplaceFullPath, replaceFullPath: /b|ReplacePrefixMatch, replacePrefixMatch: /b|ReplacePrefixMatch, replacePrefixMatch: /|ReplaceFullPath, replaceFullPath: '/\1'}}}}}]}`),
	httpRoute(`matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: RequestRedirect, requestRedirect: {hostname: a.com, port: {{80|0|65536}}, statusCode: {{301|302|303|200}}, scheme: {{http|https|ftp}}}}]}`),
	httpRoute(`matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: RequestMirror, requestMirror: {percentage: {{0|50|101}}, backendRef: {kind: MeshService, name: {{backend|gone}}}}}]}`),
	httpRoute(`matches: [{path: {type: PathPrefix, value: /a}}], default: {backendRefs: [{kind: MeshService, name: {{backend|gone}}, weight: {{0|1|4294967295}}}, {kind: MeshService, name: {{gone|grpc}}, weight: {{0|1}}}]}`),
	head("MeshTCPRoute", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: db}, rules: [{default: {backendRefs: [{kind: MeshService, name: {{db|gone}}, weight: {{0|1|4294967295}}}, {kind: MeshService, name: {{gone|backend}}, weight: 1}]}}]}]}`),
	head("MeshLoadBalancingStrategy", `{targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: backend}, default: {loadBalancer: {{{type: RingHash, ringHash: {minRingSize: {{1|100|9000000}}, maxRingSize: {{1|1000|9000000}}, hashPolicies: [{type: Header, header: {name: "{{header}}"}}]}}|{type: Maglev, maglev: {tableSize: {{1|7|100|65537}}}}|{type: LeastRequest, leastRequest: {choiceCount: {{1|2|0}}, activeRequestBias: "{{1|-1|x}}"}}}}}}]}`),
	head("MeshTLS", `{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {tlsVersion: {min: {{TLS10|TLS12|TLS13|TLSAuto}}, max: {{TLS10|TLS12|TLS13|TLSAuto}}}, tlsCiphers: ["{{ECDHE-RSA-AES128-GCM-SHA256|ROT13}}"]}}]}`),
}

func head(kind, spec string) string {
	return "type: " + kind + "\nmesh: default\nname: odd\nspec: " + spec + "\n"
}

func httpRoute(rule string) string {
	return head("MeshHTTPRoute",
		`{targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: backend}, rules: [{`+rule+`}]}]}`)
}
