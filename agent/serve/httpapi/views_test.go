package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

func TestConfig(t *testing.T) {
	a := start(t)
	const at = "/meshes/default/dataplanes/web/_config"
	if got := a.do("GET", at, ""); got.status != 503 || !strings.Contains(got.body, "not-ready") {
		t.Errorf("before the first reconciliation: %+v", got)
	}
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	got := a.do("GET", at, "")
	a.want(got, 200, `{"xds":{`, `"inbound:192.0.2.1:8080"`, `"localhost:8080"`)
	if strings.Contains(got.body, `"diff"`) {
		t.Error("a diff that nobody asked for")
	}
	for _, q := range []string{
		"?include=diff", "?shadow=false&include=diff", "?shadow=true&include=diff", "?include=diff,diff",
	} {
		with := a.do("GET", at+q, "")
		a.want(with, 200, `"diff":[]`)
		if !strings.HasPrefix(with.body, strings.TrimSuffix(got.body, "}\n")) {
			t.Errorf("%s: another config", q)
		}
	}
	if second := a.do("GET", at+"?shadow=true", ""); second.body != got.body {
		t.Error("two answers differ")
	}
	a.want(a.do("GET", at+"?shadow=1", ""), 400, `"field":"shadow"`)
	a.want(a.do("GET", at+"?shadow=", ""), 400, `"field":"shadow"`)
	a.want(a.do("GET", at+"?include=all", ""), 400, `"field":"include"`)
	a.want(a.do("GET", at+"?include=", ""), 400, `"field":"include"`)
	a.want(a.do("GET", "/meshes/nope/dataplanes/web/_config", ""), 404, `mesh \"nope\"`)
	a.want(a.do("GET", "/meshes/default/dataplanes/nope/_config", ""), 404, `no dataplane \"nope\"`)
	a.want(a.do("PUT", at, "{}"), 405)

	// Offline gives the same document.
	v, err := generate.NewMesh(a.store.Snapshot().Set(), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := render.ProxyConfig(v, "web", nil, render.ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := httpapi.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if string(b)+"\n" != got.body {
		t.Error("the config computed offline is another one")
	}
}

func TestProxies(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	client := func(name, state string, f func(*api.ProxyStatus)) api.ProxyStatus {
		c := api.ProxyStatus{Mesh: "default", Name: name, NodeID: "default." + name, State: state, ConnectedAt: at,
			Flavor: node.FlavorEnvoy}
		if f != nil {
			f(&c)
		}
		return c
	}
	a := start(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			return []api.ProxyStatus{
				client("web", api.StateServing, func(c *api.ProxyStatus) { c.InSync = true }),
				client("nack", api.StateServing, func(c *api.ProxyStatus) {
					c.Types = []api.TypeStatus{{NACK: &api.NACK{Reason: "bad listener"}}}
				}),
				client("held", api.StateServing, func(c *api.ProxyStatus) {
					c.Types = []api.TypeStatus{{Held: []api.HeldResource{{Name: "l1", Reason: "refused"}}}}
				}),
				client("late", api.StateServing, func(c *api.ProxyStatus) {
					c.Types = []api.TypeStatus{{SentAt: at.Add(time.Second)}}
				}),
				client("forged", api.StateUnknown, nil),
				client("alone", api.StateUnknown, nil),
				client("stuck", api.StateUnknown, nil),
				client("waiting", api.StateWaiting, nil),
				client("gone", api.StateDisconnected, nil),
				client("misnamed", api.StateDisconnected, nil),
			}
		}
		o.Refused = func() api.Refusals {
			refused := func(id, cause string) api.RefusedStream {
				return api.RefusedStream{NodeID: id, User: "uid=7 (envoy)", Cause: cause, Reason: "run it as web",
					Since: at, Count: 41}
			}
			return api.Refusals{Total: 41, Streams: []api.RefusedStream{refused("default.idle", "denied"),
				refused("default.misnamed", "unknown"), refused("default.web", "denied"), refused("no-mesh", "bad-node-id"),
				refused("", "unauthenticated")}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web+"\n---\n"+
		strings.Replace(web, "name: web", "name: alone", 1)+"\n---\n"+strings.Replace(web, "name: web", "name: stuck", 1)+
		"\n---\n"+strings.Replace(web, "name: web", "name: idle", 1))
	a.reconcile(api.Problem{Resource: "Dataplane/default/web", Severity: api.SeverityWarning,
		Reason: "half of it"}, api.Problem{Resource: "Dataplane/default/stuck", Severity: api.SeverityError,
		Reason: "no name for its certificate"})
	got := a.do("GET", "/v1/dataplanes", "")
	a.want(got, 200)
	var ps api.Proxies
	if err := json.Unmarshal([]byte(got.body), &ps); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range ps.Items {
		lines = append(lines, p.Name+" "+p.State)
	}
	want := "alone pending, forged unknown, held rejected, idle refused, late pending, misnamed unknown, " +
		"nack rejected, stuck pending, waiting pending, web synced"
	if s := strings.Join(lines, ", "); s != want || ps.Total != 10 {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	a.want(a.do("GET", "/v1/dataplanes/default/web/status", ""), 200, `"dataplane":true`, "half of it")
	a.want(a.do("GET", "/v1/dataplanes/default/nack/status", ""), 200, `"reason":"bad listener"`, `"dataplane":false`)
	a.want(a.do("GET", "/v1/dataplanes/default/held/status", ""), 200, `"reason":"l1: refused"`)
	a.want(a.do("GET", "/v1/dataplanes/default/late/status", ""), 200, "since 1970-01-01T00:16:41Z")
	a.want(a.do("GET", "/v1/dataplanes/default/forged/status", ""), 200, "does not exist; apply it")
	a.want(a.do("GET", "/v1/dataplanes/default/alone/status", ""), 200, "its config is being computed")
	a.want(a.do("GET", "/v1/dataplanes/default/stuck/status", ""), 200,
		"it has no config: no name for its certificate")
	a.want(a.do("GET", "/v1/dataplanes/default/idle/status", ""), 200,
		"its Envoy (uid=7 (envoy)) has been refused since 1970-01-01T00:16:40Z, 41 times: run it as web", `"cause":"denied"`)
	a.want(a.do("GET", "/v1/dataplanes/default/misnamed/status", ""), 200, "does not exist; apply it")
	a.want(a.do("GET", "/v1/dataplanes/default/web/status", ""), 200, `"state":"synced"`, `"cause":"denied"`)
	a.want(a.do("GET", "/v1/dataplanes/default/gone/status", ""), 404, "no client requests it")
	a.want(a.do("GET", "/v1/status", ""), 200,
		`"proxies":{"pending":4,"refused":1,"rejected":2,"synced":1,"unknown":2}`, "half of it",
		`"nodeID":"no-mesh"`, `"cause":"unauthenticated"`,
		`{"resource":"Dataplane/default/idle","severity":"error","check":"stream-refused",`+
			`"reason":"the Envoy of uid=7 (envoy) is refused: run it as web","command":"nearside check --bootstrap FILE"}`,
		`"resource":"Envoy/no-mesh"`, `"resource":"Envoy/uid=7 (envoy)"`,
		`"resource":"Dataplane/default/misnamed","severity":"warning","check":"unknown-node"`)
}

// TestLostLines: an Envoy that has lost lines of access logs is a problem of the node and of the
// proxy; one that has not told, or has lost none, is not.
func TestLostLines(t *testing.T) {
	a := start(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			var out []api.ProxyStatus
			for _, name := range []string{"web", "good", "silent"} {
				out = append(out, api.ProxyStatus{Mesh: "default", Name: name, NodeID: "default." + name, State: api.StateServing,
					Flavor: node.FlavorEnvoy})
			}
			return out
		}
		o.Counts = func() map[string]api.ProxyCounts {
			return map[string]api.ProxyCounts{"default.web": {WritesFailed: 3, ReopensFailed: 2, Refused: 4},
				"default.good": {}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	const lost = "its Envoy has lost access-log lines: since it started, 3 writes " +
		"and 2 attempts to reopen logs have failed"
	a.want(a.do("GET", "/v1/status", ""), 200, lost, `"resource":"Dataplane/default/web"`,
		`"refusedConnections":[{"mesh":"default","name":"web","count":4}]`)
	a.want(a.do("GET", "/v1/dataplanes/default/web/status", ""), 200, lost, `"logWritesFailed":3`, `"logReopensFailed":2`)
	a.want(a.do("GET", "/v1/dataplanes/default/good/status", ""), 200, `"logWritesFailed":0`, `"problems":[]`)
	a.want(a.do("GET", "/v1/dataplanes/default/silent/status", ""), 200, `"logWritesFailed":null`, `"problems":[]`)
}

func TestHealth(t *testing.T) {
	checks := []api.Check{{Name: "state", OK: true, Reason: "loaded"}}
	a := start(t, func(o *httpapi.Options) {
		o.Ready = func() []api.Check { return checks }
		o.Files = func() []api.FileStatus {
			return []api.FileStatus{{Path: "/r/a.yaml", Stale: true}}
		}
	})
	a.want(a.do("GET", "/livez", ""), 200, `{"status":"ok"}`)
	a.want(a.do("GET", "/readyz", ""), 200, `{"status":"ok"}`)
	a.want(a.do("GET", "/readyz?verbose", ""), 200, `"reason":"loaded"`)
	checks = append(checks, api.Check{Name: "xds", Reason: "the socket is not open"})
	a.want(a.do("GET", "/readyz", ""), 503,
		`{"status":"failed","checks":[{"name":"xds","ok":false,"reason":"the socket is not open"}]}`)
	a.want(a.do("GET", "/livez", ""), 200)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
	a.want(a.do("GET", "/v1/status", ""), 200, `"ready":false`, `"reconcile":null`, `"stale":true`,
		`"resources":{"Mesh":1}`, `"sources":{"api":1}`)
	a.reconcile()
	a.want(a.do("GET", "/v1/status", ""), 200, `"reconcile":{"revision":1,`, `"seconds":1`)
}

// FuzzAPI sends requests with any method, path and body: each answer is JSON, and an error is a
// problem document.
func FuzzAPI(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/", ""}, {"GET", "/meshes?size=1&offset=2", ""}, {"PUT", "/meshes/default", meshDoc},
		{"PUT", "/meshes/default/dataplanes/web", web}, {"PUT", "/meshes/a/meshtimeouts/t", timeout("5s")},
		{"POST", "/v1/apply?dryRun=true", meshDoc + "\n---\n" + web}, {"POST", "/v1/rollback", `{"type":"mt","revision":1}`},
		{"DELETE", "/meshes/default", ""}, {"GET", "/meshes/default/dataplanes/web/_config?include=diff&shadow=true", ""},
		{"GET", "/v1/history/meshes/default", ""}, {"GET", "/v1/names?kind=dp", ""}, {"HEAD", "/%2e%2e/%00", ""},
		{"GET", "/meshes/default/dataplanes/web/_rules?include=diff,fields&shadow=false", ""},
		{"GET", "/v1/dataplanes/default/web/policies", ""},
		{"POST", "/v1/diff?shadow=true&dataplane=web&omit=patch", timeout("9s")},
		{"POST", "/v1/diff?delete=mt/default/t1&mesh=default", ""},
		{"POST", "/v1/explain", `{"policy":{"type":"mt","name":"t1","dataplane":"web"}}`},
		{"GET", "//", ""}, {"GET", "/v1/dataplanes/default/web/status", ""}, {"OPTIONS", "/x", "a: &a [*a]"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	a := start(f, func(o *httpapi.Options) { o.Limits.Body = 64 << 10 })
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web+"\n---\n"+timeout("5s"))
	a.reconcile()
	f.Fuzz(func(t *testing.T, method, path, body string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Path == "/metrics" || u.Path == "/v1/events" || method == "" ||
			strings.ContainsAny(method, " \t\r\n") {
			t.Skip()
		}
		r, err := http.NewRequest(method, "http://nearside/", strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
		for _, serve := range []bool{false, true} {
			var resp *http.Response
			if serve { // with the rights to write
				if strings.Contains(u.RawQuery, " ") {
					continue // no request line: net/http refuses it, in its own words, before the API sees it
				}
				if resp, err = a.http.Do(r); err != nil {
					t.Skip() // the client refused to send it
				}
			} else {
				w := &recorder{header: http.Header{}}
				local := r.Clone(t.Context())
				local.Host, local.Body = "localhost", io.NopCloser(strings.NewReader(body))
				a.srv.Handler().ServeHTTP(w, local)
				resp = w.response()
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if method == "HEAD" || resp.StatusCode == http.StatusNotModified {
				continue
			}
			if !json.Valid(b) {
				t.Fatalf("%d, not JSON: %q", resp.StatusCode, b)
			}
			if resp.StatusCode >= 500 && resp.StatusCode != 503 {
				t.Fatalf("%d: %s", resp.StatusCode, b)
			}
			if resp.StatusCode >= 400 {
				var e api.Error
				if err := json.Unmarshal(b, &e); err != nil || e.Status != resp.StatusCode || e.Title == "" ||
					e.InvalidParameters == nil {
					t.Fatalf("%d is no problem document: %s", resp.StatusCode, b)
				}
			}
		}
	})
}

// TestConfigIsTakenAsItIs encodes a config as encoding/json would.
func TestConfigIsTakenAsItIs(t *testing.T) {
	for _, c := range []*api.Config{
		{},
		{XDS: api.XDS{"b": {"y": json.RawMessage(`{"a":[1]}`), "x\"": json.RawMessage(`null`)}, "a": {}}},
		{XDS: api.XDS{"a": {"x": json.RawMessage(`1`)}}, Diff: []jsonpatch.Operation{{Op: "remove", Path: "/a"}}},
		{Diff: []jsonpatch.Operation{}},
	} {
		got, err := httpapi.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(want, &b)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" && c.XDS != nil { // without XDS the member is null there and {} here
			t.Errorf("%s: %s", got, diff)
		}
	}
}
