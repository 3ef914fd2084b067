package offline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// everyLegacyKind is a mesh with a policy of each legacy kind.
const everyLegacyKind = `
type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}
logging: {defaultBackend: file, backends: [{name: file, type: file, conf: {path: /var/log/mesh.log}}]}
tracing: {defaultBackend: zipkin, backends: [{name: zipkin, type: zipkin, sampling: 10, conf: {url: "http://10.0.0.9:9411/api/v2/spans"}}]}
---
{type: Dataplane, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 1001, tags: {kuma.io/service: backend}}, {port: 1002, tags: {kuma.io/service: db}}, {port: 1003, tags: {kuma.io/service: payments}}]}}
---
{type: ExternalService, name: payments, tags: {kuma.io/service: payments, kuma.io/protocol: http}, networking: {address: "pay.example.com:80"}}
---
{type: Dataplane, name: backend-1, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v1}}]}}
---
{type: Dataplane, name: db-1, networking: {address: 10.0.0.3, inbound: [{port: 5432, tags: {kuma.io/service: db}}]}}
---
{type: TrafficRoute, name: all, SOURCES, conf: {destination: {kuma.io/service: "*"}}}
---
{type: TrafficPermission, name: all, SOURCES}
---
{type: TrafficLog, name: all, SOURCES, conf: {backend: file}}
---
{type: Timeout, name: all, SOURCES, conf: {connectTimeout: 1s, http: {requestTimeout: 3s}}}
---
{type: CircuitBreaker, name: all, SOURCES, conf: {thresholds: {maxConnections: 200}, detectors: {totalErrors: {consecutive: 5}}}}
---
{type: HealthCheck, name: all, SOURCES, conf: {interval: 10s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}}
---
{type: Retry, name: all, SOURCES, conf: {http: {numRetries: 3}, tcp: {maxConnectAttempts: 2}}}
---
{type: FaultInjection, name: slow, sources: [{match: {kuma.io/service: web, kuma.io/protocol: http}}], destinations: [{match: {kuma.io/service: backend, kuma.io/protocol: http}}], conf: {delay: {value: 2s, percentage: 5.5}}}
---
{type: RateLimit, name: all, SOURCES, conf: {http: {requests: 100, interval: 1s}}}
---
{type: RateLimit, name: web, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: backend}}], conf: {http: {requests: 7, interval: 1s}}}
---
{type: RateLimit, name: outside, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: payments}}], conf: {http: {requests: 5, interval: 1s}}}
---
{type: TrafficTrace, name: all, selectors: [{match: {kuma.io/service: "*"}}], conf: {backend: zipkin}}
---
{type: ProxyTemplate, name: all, selectors: [{match: {kuma.io/service: web}}], conf: {imports: [default-proxy], modifications: [{cluster: {operation: patch, match: {name: backend}, value: "per_connection_buffer_limit_bytes: 65536"}}]}}
---
{type: VirtualOutbound, name: short, selectors: [{match: {kuma.io/service: "*"}}], conf: {host: "{{.s}}.internal", port: "80", parameters: [{name: s, tagKey: kuma.io/service}]}}
---
{type: VirtualOutbound, name: versions, selectors: [{match: {kuma.io/service: "*"}}], conf: {host: "{{.version}}.{{ .s }}.internal", port: "81", parameters: [{name: s, tagKey: kuma.io/service}, {name: version}]}}
`

// TestMigrateEverything migrates a mesh with every legacy kind and checks that each change and each
// policy without a successor has a reason.
func TestMigrateEverything(t *testing.T) {
	doc := strings.ReplaceAll(everyLegacyKind,
		"SOURCES", `sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}]`)
	o, faults := offline.Read([]offline.Text{{Name: "all", Data: []byte(doc)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	m, err := o.Migrate(offline.MigrateOptions{Mesh: "default"})
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, p := range m.Policies {
		for _, from := range p.From {
			done = append(done, strings.Split(from, "/")[0])
		}
	}
	without := map[string]string{}
	for _, w := range m.Without {
		done = append(done, strings.Split(w.Policy, "/")[0])
		without[w.Policy] = w.Why
	}
	for _, kind := range offline.Kinds() {
		if (kind.Legacy || kind.Kind == "VirtualOutbound") && !slices.Contains(done, kind.Kind) {
			t.Errorf("%s is not reported", kind.Kind)
		}
	}
	for policy, why := range map[string]string{
		"VirtualOutbound/default/short":    `a HostnameGenerator with the template "{{ .DisplayName }}.internal"`,
		"RateLimit/default/outside":        "nothing replaces the limit of requests to services outside the mesh (payments)",
		"VirtualOutbound/default/versions": "its names contain the values of version",
	} {
		if !strings.Contains(without[policy], why) {
			t.Errorf("%s: %s", policy, without[policy])
		}
	}
	if !slices.ContainsFunc(m.Policies, func(p offline.MigratedPolicy) bool {
		return slices.Contains(p.From, "RateLimit/default/web")
	}) {
		t.Errorf("the limit for one service has no successor: %s", without["RateLimit/default/web"])
	}
	changes, leaving := 0, 0
	for _, p := range m.Dataplanes {
		for _, c := range slices.Concat(p.Live, p.Deleted) {
			if changes++; len(c.Why) == 0 {
				t.Errorf("%s: no reason for %+v", p.Name, c)
			}
			if slices.Contains(c.Why,
				"the limit of requests that leave the mesh ends, because MeshRateLimit applies only to inbounds") {
				leaving++
			}
		}
	}
	if changes == 0 || leaving == 0 {
		t.Errorf("%d changes, %d of limits of requests that leave", changes, leaving)
	}
}
