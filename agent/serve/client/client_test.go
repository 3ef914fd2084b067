package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const docs = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}
`

func newMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
}

// agent serves the API on a Unix socket until the test ends.
func agent(t *testing.T, change func(*httpapi.Options)) *client.Client {
	t.Helper()
	reg, err := resource.NewRegistry(kinds.All()...)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	roles, err := access.NewRoles(access.RoleOptions{AgentUID: uint32(os.Getuid()), GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := httpapi.Options{
		Info: api.Info{Product: "nearside"}, Access: httpapi.Access{Roles: roles},
		Options: write.Options{Registry: reg, Store: st, NewMesh: newMesh, Last: func() *status.Result {
			l := &status.Result{Meshes: map[string]*generate.Mesh{}}
			if m, err := newMesh(st.Snapshot().Set(), "default", nil); err == nil {
				l.Meshes["default"] = m
			}
			return l
		}},
	}
	if change != nil {
		change(&o)
	}
	srv, err := httpapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	path, l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return client.New(path, 0)
}

func listen(t *testing.T) (string, net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return path, l
}

func TestCalls(t *testing.T) {
	c := agent(t, func(o *httpapi.Options) {
		o.Ready = func() []api.Check { return []api.Check{{Name: "x", Reason: "not yet"}} }
	})
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	w, err := c.Apply(ctx, []byte(docs), true)
	must("dry run", err)
	if !w.DryRun || len(w.Changes) != 2 {
		t.Errorf("dry run: %+v", w)
	}
	w, err = c.Apply(ctx, []byte(docs), false)
	must("apply", err)
	if w.DryRun || w.Changes[1].Revision != 2 {
		t.Errorf("apply: %+v", w)
	}
	it, err := c.Get(ctx, "dp", "default", "web")
	must("get", err)
	if it.Meta.Revision != 2 || !strings.Contains(string(it.Resource), "192.0.2.1") {
		t.Errorf("get: %+v", it)
	}
	_, err = c.Get(ctx, "mesh", "", "default")
	must("get a global kind", err)
	i, err := c.Index(ctx)
	must("index", err)
	if i.Product != "nearside" {
		t.Errorf("index: %+v", i)
	}
	ks, err := c.Kinds(ctx)
	must("kinds", err)
	if len(ks) < 10 || ks[0].Kind != "Mesh" || !ks[0].Global {
		t.Errorf("kinds: %+v", ks)
	}
	cfg, err := c.Config(ctx, "default", "web", render.ConfigOptions{Shadow: true, Diff: true})
	must("config", err)
	if len(cfg.XDS) == 0 || cfg.Diff == nil {
		t.Errorf("config: %+v", cfg)
	}
	ps, err := c.Proxies(ctx)
	must("proxies", err)
	if ps.Total != 1 {
		t.Errorf("proxies: %+v", ps)
	}
	p, err := c.Proxy(ctx, "default", "web")
	must("proxy", err)
	if p.State != api.StateDisconnected {
		t.Errorf("proxy: %+v", p)
	}
	st, err := c.Status(ctx)
	must("status", err)
	if st.Store.Revision != 2 || st.Ready {
		t.Errorf("status: %+v", st)
	}
	h, err := c.Ready(ctx)
	must("ready", err)
	if h.Status != "failed" || h.Checks[0].Reason != "not yet" {
		t.Errorf("ready: %+v", h)
	}
	names, err := c.Names(ctx, "dataplanes", "default", "w")
	must("names", err)
	if fmt.Sprint(names) != "[web]" {
		t.Errorf("names: %v", names)
	}
	_, err = c.Delete(ctx, "dataplanes", "default", "web", false)
	must("delete", err)
	hist, err := c.History(ctx, "dp", "default", "web")
	must("history", err)
	if len(hist.Items) != 2 {
		t.Errorf("history: %+v", hist)
	}
	_, err = c.History(ctx, "mesh", "", "default")
	must("history of a global kind", err)
	_, err = c.Rollback(ctx, api.Rollback{Type: "dp", Mesh: "default", Name: "web", Revision: 2})
	must("rollback", err)
	all, err := c.List(ctx, "dp", "")
	must("list", err)
	if len(all) != 1 {
		t.Errorf("list: %v", all)
	}
}

func TestQuestionsAboutPolicies(t *testing.T) {
	c := agent(t, nil)
	ctx := t.Context()
	if _, err := c.Apply(ctx, []byte(docs+"---\n{type: MeshTimeout, mesh: default, name: t, "+
		"spec: {from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 5s}}]}}\n"), false); err != nil {
		t.Fatal(err)
	}
	r, err := c.Rules(ctx, "default", "web", false, "diff", "fields")
	if err != nil || len(r.Rules) != 1 || r.Diff == nil || len(r.Rules[0].FromRules) != 1 ||
		len(r.Rules[0].FromRules[0].Rules[0].Fields) != 1 {
		t.Errorf("rules: %+v, %v", r, err)
	}
	if r, err = c.Rules(ctx, "default", "web", true); err != nil || r.Diff != nil ||
		r.Rules[0].FromRules[0].Rules[0].Fields != nil {
		t.Errorf("rules alone: %+v, %v", r, err)
	}
	ps, err := c.Policies(ctx, "default", "web", "")
	if err != nil || ps.Total != 1 || ps.Items[0].Name != "t" || ps.Items[0].Effect != "all" {
		t.Errorf("policies: %+v, %v", ps, err)
	}
	x, err := c.ExplainPolicy(ctx, explain.PolicyQuestion{Type: "mt", Name: "t", Dataplane: "web"})
	if err != nil || !x.Selected || x.Items[0].Places[0].Inbound.Port != 80 {
		t.Errorf("explain: %+v, %v", x, err)
	}
	target := explain.Target{From: "web", To: "198.51.100.1:443"}
	if flow, err := c.ExplainConnection(ctx, explain.ConnectionQuestion{Target: target, TLS: true}); err != nil ||
		flow.Verdict != "allowed" || flow.Address != target.To {
		t.Errorf("explain a connection: %+v, %v", flow, err)
	}
	if flow, err := c.ExplainRequest(ctx, explain.RequestQuestion{Target: target}); err != nil ||
		flow.Verdict != "allowed" || len(flow.Steps) == 0 {
		t.Errorf("explain a request: %+v, %v", flow, err)
	}
	var p *api.Error
	if _, err := c.ExplainPolicy(ctx,
		explain.PolicyQuestion{Type: "mt", Name: "gone", Dataplane: "web"}); !errors.As(err, &p) || p.Status != 404 {
		t.Errorf("a policy that is not there: %v", err)
	}
}

func TestDiff(t *testing.T) {
	c := agent(t, nil)
	ctx := t.Context()
	if _, err := c.Apply(ctx, []byte(docs), false); err != nil {
		t.Fatal(err)
	}
	slow := []byte("{type: MeshTimeout, mesh: default, name: t, labels: {kuma.io/effect: shadow}, " +
		"spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 5s}}]}}")
	if d, err := c.Diff(ctx, client.DiffQuestion{Stream: slow}); err != nil || d.Changed || d.Scope != "all" ||
		len(d.Resources) != 1 {
		t.Errorf("a shadow policy: %+v, %v", d, err)
	}
	d, err := c.Diff(ctx, client.DiffQuestion{Stream: slow, Shadow: true, Mesh: "default", Dataplane: "web"})
	if err != nil || !d.Changed || d.Scope != "named" || len(d.Proxies) != 1 || len(d.Proxies[0].Config.Patch) == 0 ||
		len(d.Proxies[0].Config.Items) == 0 {
		t.Errorf("with shadow policies: %+v, %v", d, err)
	}
	d, err = c.Diff(ctx, client.DiffQuestion{Stream: slow, Shadow: true, Omit: []string{"items", "patch"}})
	if err != nil || !d.Changed || len(d.Proxies[0].Config.Patch) != 0 || len(d.Proxies[0].Config.Items) != 0 ||
		len(d.Proxies[0].Config.Summary) == 0 {
		t.Errorf("without its parts: %+v, %v", d, err)
	}
	if d, err = c.Diff(ctx, client.DiffQuestion{Delete: []string{"Dataplane/default/web"}}); err != nil ||
		d.Proxies[0].Action != "deleted" {
		t.Errorf("a deletion: %+v, %v", d, err)
	}
	var p *api.Error
	if _, err := c.Diff(ctx, client.DiffQuestion{Stream: []byte("{type: Mesh}")}); !errors.As(err, &p) ||
		p.Type != api.ProblemDocument {
		t.Errorf("a document that is not valid: %v", err)
	}
}

func TestListFollowsPages(t *testing.T) {
	c := agent(t, nil)
	var b strings.Builder
	b.WriteString("{type: Mesh, name: default}\n")
	const n = 2345
	for i := range n {
		fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: d%d, networking: {address: 192.0.2.1, "+
			"inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n", i)
	}
	if _, err := c.Apply(t.Context(), []byte(b.String()), false); err != nil {
		t.Fatal(err)
	}
	items, err := c.List(t.Context(), "dataplanes", "default")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, it := range items {
		seen[string(it.Resource)] = true
	}
	if len(items) != n || len(seen) != n {
		t.Errorf("%d items, %d different, want %d", len(items), len(seen), n)
	}
}

func TestProblems(t *testing.T) {
	c := agent(t, nil)
	_, err := c.Apply(t.Context(), []byte("{type: Mesh, name: m, colour: red}"), false)
	var p *api.Error
	if !errors.As(err, &p) || p.Type != api.ProblemDocument || len(p.InvalidParameters) != 1 ||
		!strings.Contains(err.Error(), "colour") {
		t.Errorf("a bad document: %v", err)
	}
	// Names are escaped, so they cannot change the path.
	if _, err = c.Get(t.Context(), "mesh", "", "a/b?c"); !errors.As(err, &p) || p.Status != 404 ||
		!strings.Contains(p.Detail, "Mesh/a/b?c") {
		t.Errorf("a name that looks like a path: %v", err)
	}
}

func TestPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root, only the answer 403 is tried")
	}
	path, l := listen(t)
	serve(t, l, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(403)
		fmt.Fprint(w,
			`{"type":"/problems/permission-denied","title":"Permission denied","status":403,"detail":"uid=7 may read only"}`)
	})
	_, err := client.New(path, 0).Delete(t.Context(), "mesh", "", "x", false)
	var denied *client.PermissionError
	if !errors.As(err, &denied) || !strings.Contains(err.Error(), "uid=7 may read only") || denied.Hint() == "" {
		t.Errorf("403: %v", err)
	}
	if os.Getuid() == 0 {
		return
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(path, 0).Status(t.Context()); !errors.As(err, &denied) {
		t.Errorf("a socket that may not be opened: %v", err)
	}
}

func serve(t *testing.T, l net.Listener, h http.HandlerFunc) {
	srv := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-ended })
}
