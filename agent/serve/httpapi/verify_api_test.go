package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func refused(a *testAPI, got answer) *api.Error {
	a.t.Helper()
	a.want(got, 422)
	e := &api.Error{}
	if err := json.Unmarshal([]byte(got.body), e); err != nil {
		a.t.Fatal(err)
	}
	if e.Type != api.ProblemWouldBreak || len(e.InvalidParameters) == 0 {
		a.t.Fatalf("not a refusal with reasons: %s", got.body)
	}
	return e
}

func TestWriteIsRefusedThatWouldBreakAProxy(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	before := a.store.Snapshot()
	bad := kindtest.Breaking("bad", "{kind: Mesh}")

	for _, w := range []struct{ method, path, body string }{
		{"POST", "/v1/apply", slow("5s") + "\n---" + bad},
		{"POST", "/v1/apply?dryRun=true", bad},
		{"PUT", "/meshes/default/meshproxypatches/bad", bad},
	} {
		e := refused(a, a.do(w.method, w.path, w.body))
		p := e.InvalidParameters[0]
		if len(e.InvalidParameters) != 1 || p.Document != "MeshProxyPatch/default/bad" ||
			p.Field != "spec.default.appendModifications[1].listener" {
			t.Errorf("%s %s: put down to %+v", w.method, w.path, e.InvalidParameters)
		}
		for _, piece := range []string{
			"Listener inbound:10.1.0.3:8080 at /accessLog/0/typedConfig/logFormat", "LATE", "(rule 105: ", "on default/web",
		} {
			if !strings.Contains(p.Reason, piece) {
				t.Errorf("%q is not in the reason %q", piece, p.Reason)
			}
		}
	}
	if a.store.Snapshot() != before {
		t.Error("something was stored")
	}
	// A patch that breaks no proxy is stored.
	a.want(a.do("PUT", "/meshes/default/meshproxypatches/bad", strings.Replace(bad, "10.1.0.3", "10.9.9.9", 1)), 201,
		`"warnings":[]`)
	// It came in by another way, was mended, and is not brought back.
	a.put(store.Source{Kind: store.SourceAPI}, bad)
	first := a.store.History(a.store.Snapshot().Set().Kind("MeshProxyPatch")[0].Key)
	a.want(a.do("PUT", "/meshes/default/meshproxypatches/bad", strings.Replace(bad, "10.1.0.3", "10.9.9.9", 1)), 200)
	refused(a, a.do("POST", "/v1/rollback",
		fmt.Sprintf(`{"type": "MeshProxyPatch", "mesh": "default", "name": "bad", "revision": %d}`, first[1].Revision)))
	a.want(a.do("POST", "/v1/rollback",
		fmt.Sprintf(`{"type": "MeshProxyPatch", "mesh": "default", "name": "bad", "revision": %d}`, first[0].Revision)), 200)
}

func TestWhatWasBrokenBeforeRefusesNothing(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceFile, Detail: "/r/a.yaml"},
		services+"\n---\n"+kindtest.Breaking("old", "{kind: Mesh}"))
	a.reconcile()
	// An unrelated policy, one on the same listener, an edit of another part, and a deletion.
	a.want(a.do("POST", "/v1/apply", slow("5s")), 200, `"action":"created"`, `"warnings":[]`)
	a.want(a.do("POST", "/v1/apply", `{type: MeshTimeout, mesh: default, name: in, spec: {from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 7s}}]}}`),
		200, `"warnings":[]`)
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", ""), 200, `"warnings":[]`)
	// A second one of the kind is no better for the first.
	e := refused(a,
		a.do("POST", "/v1/apply", strings.Replace(kindtest.Breaking("new", "{kind: Mesh}"), "10.1.0.3", "10.1.0.1", 1)))
	if p := e.InvalidParameters[0]; p.Document != "MeshProxyPatch/default/new" ||
		!strings.Contains(p.Reason, "on default/svc-1") {
		t.Errorf("put down to %+v", p)
	}
}

func TestOnlyTheProxiesConcernedAreLookedAt(t *testing.T) {
	connected := []api.ProxyStatus{{Mesh: "default", Name: "svc-1", Flavor: node.FlavorEnvoy, State: api.StateServing}}
	a := start(t, func(o *httpapi.Options) { o.Proxies = func() []api.ProxyStatus { return connected } })
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	// Only svc-1 is connected, and only web would break.
	a.want(a.do("POST", "/v1/apply", kindtest.Breaking("bad", "{kind: Mesh}")), 200)
	connected[0].Name = "web"
	// it is broken by now
	a.want(a.do("POST", "/v1/apply", kindtest.Breaking("bad", "{kind: Mesh}")+"labels: {a: b}\n"), 200,
		`"action":"changed"`, `"warnings":[]`)
	// in another way
	refused(a, a.do("POST", "/v1/apply", strings.Replace(kindtest.Breaking("bad", "{kind: Mesh}"), "LATE", "LATER", 1)))
	a.want(a.do("DELETE", "/meshes/default/meshproxypatches/bad", ""), 200)
	refused(a, a.do("POST", "/v1/apply", kindtest.Breaking("bad", "{kind: Mesh}")))
	// The dataplane of the change is looked at although it is not connected.
	a.put(store.Source{Kind: store.SourceFile, Detail: "/r/b.yaml"},
		strings.Replace(kindtest.Breaking("file", "{kind: Mesh}"), "10.1.0.3", "10.1.0.9", 1))
	e := refused(a, a.do("POST", "/v1/apply", "{type: Dataplane, mesh: default, name: other, "+
		"networking: {address: 10.1.0.9, inbound: [{port: 8080, tags: {kuma.io/service: other, kuma.io/protocol: http}}]}}"))
	if p := e.InvalidParameters[0]; p.Document != "Dataplane/default/other" || !strings.Contains(p.Reason,
		"together with MeshProxyPatch/default/file spec.default.appendModifications[1].listener") {
		t.Errorf("put down to %+v", p)
	}
}

func TestDeletionsAreNotRefused(t *testing.T) {
	a := start(t)
	add := "{type: MeshProxyPatch, mesh: default, name: a-cluster, spec: {targetRef: {kind: Mesh}, default: " +
		"{appendModifications: [{cluster: {operation: Add, value: '{name: extra, connectTimeout: 5s, type: STATIC}'}}]}}}"
	use := `
type: MeshProxyPatch
mesh: default
name: b-listener
spec:
  targetRef: {kind: MeshService, name: web}
  default:
    appendModifications:
    - listener:
        operation: Add
        value: |
          name: extra
          address: {socketAddress: {address: 127.0.0.1, portValue: 19000}}
          filterChains:
          - filters:
            - name: envoy.filters.network.tcp_proxy
              typedConfig:
                "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
                statPrefix: x
                cluster: extra
`
	a.put(store.Source{Kind: store.SourceAPI}, services+"\n---\n"+add+"\n---"+use)
	a.reconcile()
	dry := a.do("DELETE", "/meshes/default/meshproxypatches/a-cluster?dryRun=true", "")
	a.want(dry, 200, "MeshProxyPatch/default/a-cluster: breaks a proxy, which keeps its config: Listener extra at "+
		"/filterChains/0/filters/0", "on default/web", "together with MeshProxyPatch/default/b-listener")
	if len(a.store.Snapshot().Set().Kind("MeshProxyPatch")) != 2 {
		t.Error("something was deleted")
	}
	a.want(a.do("DELETE", "/meshes/default/meshproxypatches/a-cluster", ""), 200, "breaks a proxy", `"action":"deleted"`)
}

func TestFindingsThatDoNotBlockAreWarnings(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, strings.Replace(services, "name: web, networking: {",
		"name: web, networking: {transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}, ", 1))
	a.reconcile()
	doc := "{type: MeshPassthrough, mesh: default, name: p, spec: {targetRef: {kind: Dataplane, name: web}, " +
		"default: {passthroughMode: Matched, appendMatch: [{type: Domain, value: '*.example.*', protocol: tls, " +
		"port: 443}, {type: Domain, value: a.example.com, protocol: tls, port: 443}]}}}"
	a.want(a.do("POST", "/v1/apply", doc), 200,
		`"warnings":["MeshPassthrough/default/p spec.default.appendMatch[0]: Listener outbound:passthrough:ipv4 at /filterChains/`,
		"has a second *", "on default/web")
	// nothing changes
	a.want(a.do("POST", "/v1/apply", doc), 200, `"warnings":[]`)
	// it is not new
	a.want(a.do("POST", "/v1/apply", slow("5s")), 200, `"warnings":[]`)
	// and this one is
	a.want(a.do("POST", "/v1/apply?dryRun=true", strings.Replace(doc, "*.example.*", "*.*", 1)), 200, "has a second *")
}

func TestWhatHasNoEffectIsAWarning(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, services) // web has no transparent proxy
	a.reconcile()
	doc := "{type: MeshPassthrough, mesh: default, name: p, spec: {targetRef: {kind: Dataplane, name: web}, default: " +
		"{passthroughMode: Matched, appendMatch: [{type: Domain, value: a.example.com, protocol: tls, port: 443}]}}}"
	a.want(a.do("POST", "/v1/apply", doc), 200,
		`"warnings":["MeshPassthrough/default/p: no effect on any proxy: Dataplane/default/web does not intercept outbound connections, so `, `"action":"created"`)
	a.want(a.do("POST", "/v1/apply", slow("5s")), 200, `"warnings":[]`) // it is not about this one
}
