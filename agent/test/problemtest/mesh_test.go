package problemtest

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// shop is a mesh with a client and a service.
const shop = `
{type: Mesh, name: default}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 20001, tags: {kuma.io/service: db}}]
---
{type: Dataplane, mesh: default, name: db, networking: {address: 10.0.0.2, inbound: [{port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}}
`

// with returns the shop with a document.
func with(document string) string { return shop + "---\n" + document }

// authority returns a Mesh whose CA is valid for a time.
func authority(w *world, from, until time.Duration) string {
	cert, key := secrettest.AuthorityOf(w.t, "dated", time.Now().Add(from), time.Now().Add(until))
	text, err := json.Marshal(map[string]any{"type": "Mesh", "name": "default", "mtls": map[string]any{
		"enabledBackend": "ca", "backends": []any{map[string]any{"name": "ca", "type": "provided", "conf": map[string]any{
			"cert": map[string]any{"inlineString": string(cert)}, "key": map[string]any{"inlineString": string(key)}}}}}})
	agenttest.Do(w.t, err)
	return strings.Replace(shop, "{type: Mesh, name: default}", string(text), 1)
}

// meshFaults are faults of resources and proxies.
var meshFaults = []fault{
	{name: "outbound to a missing service", file: strings.Replace(shop, "kuma.io/service: db}}]\n",
		"kuma.io/service: db}}, {port: 20002, backendRef: {kind: MeshService, name: gone, port: 80}}]\n", 1),
		check: api.ClassResource, severity: warn, cause: "gone"},
	{name: "policy to a missing service",
		file: with("{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: MeshService, name: gone}, default: {connectionTimeout: 1s}}]}}"), check: api.ClassResource,
		severity: warn, cause: "gone", names: "gone"},
	{name: "policy of a missing service",
		file: with("{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: " +
			"MeshService, name: gone}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}"),
		check: api.ClassResource, severity: warn, cause: "gone", names: "gone"},
	{name: "route to a missing service",
		file: with("{type: MeshTCPRoute, mesh: default, name: r, spec: {targetRef: {kind: Mesh}, to: [{targetRef: " +
			"{kind: MeshService, name: db}, rules: [{default: {backendRefs: [{kind: MeshService, name: " +
			"gone, weight: 1}]}}]}]}}"), check: api.ClassResource,
		severity: warn, cause: "gone", names: "gone"},
	{name: "permission without TLS",
		file: with("{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: {kind: " +
			"Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}"), check: api.ClassNoEffect, severity: warn,
		cause: "no mTLS", names: "MeshTrafficPermission", alerts: "NearsidePolicyNoEffect"},
	{name: "client of a section",
		file: with("{type: MeshAccessLog, mesh: default, name: l, spec: {targetRef: {kind: Mesh}, " +
			"from: [{targetRef: {kind: MeshSubset, tags: {kuma.io/service: db}}, default: {backends: [{type: File, " +
			"file: {path: /tmp/x.log}}]}}]}}"), check: api.ClassNoEffect, severity: warn, cause: "from[0]"},
	{name: "service without endpoints",
		file: with("{type: MeshService, mesh: default, name: hollow, labels: {kuma.io/service: " +
			"hollow}, spec: {selector: {dataplaneTags: {kuma.io/service: gone}}, ports: [{port: 80, targetPort: 80}]}}"),
		check: api.ClassResource, severity: warn, cause: "no inbound of a dataplane has the tags", names: "gone"},
	{name: "external service without TLS in the mesh",
		file: with("{type: MeshExternalService, mesh: default, name: out, spec: {match: {type: HostnameGenerator, " +
			"port: 443, protocol: tcp}, endpoints: [{address: db.example.com, port: 443}], tls: {enabled: true, " +
			"verification: {mode: SkipCA}}}}"), check: api.ClassResource, severity: warn, cause: "it is not reachable",
		names: "MeshExternalService"},
	{name: "two outbounds at one port", file: strings.Replace(shop, "kuma.io/service: db}}]\n",
		"kuma.io/service: db}}, {port: 20001, tags: {kuma.io/service: web}}]\n", 1), check: api.ClassFileFault, severity: bad,
		cause: "20001"},
	{name: "expired CA", before: func(w *world) { w.file("a.yaml", authority(w, -2*time.Hour, -time.Hour)) },
		check: api.ClassResource, severity: bad, cause: "expired"},
	{name: "CA that is not yet valid", before: func(w *world) { w.file("a.yaml", authority(w, time.Hour, 2*time.Hour)) },
		check: api.ClassResource, severity: bad, cause: "is not valid before"},
	{name: "CA that ends soon", before: func(w *world) { w.file("a.yaml", authority(w, -100*time.Hour, time.Hour)) },
		check: api.ClassResource, severity: warn, cause: "expires", alerts: "NearsideAuthorityEnds"},
	{name: "certificate that is not renewed", before: func(w *world) {
		var ahead atomic.Int64
		w.deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.file("a.yaml", authority(w, -100*time.Hour, time.Hour))
		w.started = func() { w.stream("default.web", ""); agenttest.InSync(w.t, w.Agent, "default.web") }
		w.late = func() { ahead.Store(int64(2 * time.Hour)) }
	}, after: func(w *world) {
		w.late()
		w.file("b.yaml", "{type: Mesh, name: other}") // for another pass
	}, check: api.ClassResource, severity: bad, cause: "expired", alerts: "NearsideCertificateEnds"},
	{name: "no more proxies", file: shop, before: func(w *world) {
		w.started = func() {
			ctx, end := context.WithCancel(w.t.Context())
			w.late = end
			for _, id := range []string{"default.web", "default.db"} {
				w.streamUntil(ctx, id, "")
				agenttest.InSync(w.t, w.Agent, id)
			}
		}
	}, after: func(w *world) {
		w.late()
		agenttest.Gone(w.t, w.Running, "default.web")
		agenttest.Gone(w.t, w.Running, "default.db")
	}, alerts: "NearsideProxiesGone"},
	{name: "slow passes", file: shop, before: func(w *world) {
		var ahead atomic.Int64
		w.deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.deps.Generate = func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
			ahead.Add(int64(8 * time.Second))
			return generate.Generate(in, prev, memo)
		}
	}, after: func(w *world) { w.stream("default.web", ""); agenttest.InSync(w.t, w.Agent, "default.web") },
		metric: "nearside_reconcile_duration_seconds_count", repeats: true, alerts: "NearsideSlow"},
	{name: "missing secret",
		file: strings.Replace(shop, "{type: Mesh, name: default}", "{type: Mesh, name: default, mtls: "+
			"{enabledBackend: ca, backends: [{name: ca, type: provided, conf: {cert: {secret: gone}, key: {secret: gone}}}]}}",
			1),
		check: api.ClassResource, severity: bad, cause: "gone"},
	{name: "missing key file", file: strings.Replace(shop, "{type: Mesh, name: default}",
		"{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: provided, "+
			"conf: {cert: {file: /gone.pem}, key: {file: /gone.key}}}]}}",
		1), check: api.ClassResource, severity: bad, cause: "/gone"},
	{name: "withheld listener",
		file: with("{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, default: " +
			"{appendModifications: [{networkFilter: {operation: Remove, match: {listenerName: 'inbound:10.0.0.1:8080'}}}]}}}"),
		after: func(w *world) { w.stream("default.web", "") }, check: api.ClassWithheld, severity: bad,
		cause: "withheld from",
		names: "inbound:10.0.0.1:8080", alerts: "NearsideConfigHeld NearsidePolicyRejected"},
	{name: "listener would be withheld",
		file: with("{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: " +
			"Mesh}, default: {appendModifications: [{networkFilter: {operation: Remove, match: {listenerName: " +
			"'inbound:10.0.0.1:8080'}}}]}}}"), check: api.ClassResource, severity: bad, cause: "would be withheld"},
	{name: "rejected listener", file: shop, after: func(w *world) { w.stream("default.web", "inbound: bad filter") },
		check: api.ClassRejected, severity: bad, cause: "bad filter", names: "bad filter", alerts: "NearsideConfigRejected"},
	{name: "port in use at the proxy", file: shop, after: func(w *world) {
		w.stream("default.web", "Error adding/updating listener(s) inbound:10.0.0.1:8080: cannot bind '10.0.0.1:8080': "+
			"Address already in use\n")
	}, check: api.ClassRejected, severity: bad, cause: "cannot bind", names: "Address already in use"},
	{name: "unknown node ID", file: shop, after: func(w *world) { w.stream("default.wbe", "") },
		check: api.ClassUnknownNode, severity: warn, cause: "default.wbe", alerts: "NearsideEnvoysUnknown"},
	{name: "unknown node ID of a gone mesh", file: shop, after: func(w *world) { w.stream("gone.web", "") },
		check: api.ClassUnknownNode, severity: warn, cause: "gone.web"},
	{name: "malformed node ID", file: shop, after: func(w *world) {
		for range 12 {
			w.stream("web", "")
		}
		agenttest.Eventually(w.t, "all streams are refused", func() bool {
			return sum(samples(w.t, w.Running), "nearside_xds_streams_refused_total") >= 12
		})
	}, check: api.ClassStreamRefused, severity: bad, cause: "want <mesh>.<name", alerts: "NearsideStreamsRefused"},
	{name: "refused proxy", file: shop, set: []string{`xds.access=[{user: root, nodes: ["default.db"]}]`},
		after: func(w *world) { w.stream("default.web", "") }, check: api.ClassStreamRefused, severity: bad,
		cause: "default.web", alerts: "NearsideEnvoysRefused"},
	{name: "names of two services", file: with(
		`{type: HostnameGenerator, name: a, spec: {selector: {meshService: {}}, template: "same.mesh"}}` + "\n---\n" +
			`{type: HostnameGenerator, name: b, spec: {selector: {meshExternalService: {}}, template: "same.mesh"}}` +
			"\n---\n{type: MeshExternalService, mesh: default, name: out, spec: {match: {type: HostnameGenerator, port: 443, " +
			"protocol: tcp}, endpoints: [{address: db.example.com, port: 443}]}}\n---\n{type: MeshService, mesh: default, " +
			"name: web, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080}]}}"),
		check: api.ClassResource, severity: warn, cause: "same.mesh"},
}
