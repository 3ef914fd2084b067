package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestReconcileWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := agenttest.Memory(t), agenttest.NewPublisher()
		r := reconcile.New(reconcile.Options{Store: s, Publisher: p})
		go r.Run(t.Context())
		synctest.Wait()
		if n := p.Take(); n != 1 {
			t.Fatalf("%d passes at the start, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := p.Take(); n != 0 {
			t.Fatalf("%d passes without a trigger", n)
		}
		agenttest.ByAPI(t, s, agenttest.Meshes("a"))
		synctest.Wait()
		if n := p.Take(); n != 1 || r.Last().Revision != 1 {
			t.Fatalf("%d passes at once, want 1: sources have waited already; revision %d",
				n, r.Last().Revision)
		}
		agenttest.ByAPI(t, s, agenttest.Meshes("b"))
		time.Sleep(4 * time.Millisecond)
		synctest.Wait()
		if n := p.Take(); n != 0 {
			t.Fatalf("%d passes within the quiet time after a pass", n)
		}
		for range 3 {
			r.Trigger()
		}
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if n := p.Take(); n != 1 || r.Last().Revision != 2 {
			t.Fatalf("%d passes after a burst, want 1; revision %d", n, r.Last().Revision)
		}
		// Triggers without a pause are served after Ceiling.
		began := time.Now()
		for p.Take() == 0 {
			r.Trigger()
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if elapsed := time.Since(began); elapsed < 90*time.Millisecond || elapsed > 110*time.Millisecond {
			t.Errorf("a pass after %s of triggers, want the ceiling of 100 ms", elapsed)
		}
	})
}

// TestReconcileIsolatesProxies uses a generation that panics or fails for one proxy.
func TestReconcileIsolatesProxies(t *testing.T) {
	s, p, l := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web",
		"default.other", "default.missing", "nomesh.web", "nonsense"), agenttest.NewLogs()
	mode := ""
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Log: l.Logger(),
		Generate: func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
			if in.Name == "web" && mode == "panic" {
				panic("boom")
			}
			return generate.Generate(in, prev, memo)
		}})
	if got := agenttest.Pass(r); got != nil {
		t.Fatalf("problems: %q", got)
	}
	for _, id := range []string{"default.missing", "nomesh.web", "nonsense"} {
		if sealed, ok := p.Has[id]; !ok || sealed != nil {
			t.Errorf("%s is not published as unknown", id)
		}
	}
	web, other := p.Has["default.web"], p.Has["default.other"]
	if web == nil || other == nil {
		t.Fatal("the proxies have no config")
	}
	agenttest.Pass(r)
	if p.Touched["default.web"] != 1 || p.Touched["default.other"] != 1 {
		t.Errorf("a pass without a change publishes configs: %v", p.Touched)
	}

	mode = "panic"
	agenttest.ByAPI(t, s, agenttest.PortedText("default", "web", "10.0.1.1")+"\n---\n"+
		agenttest.PortedText("default", "other", "10.0.1.2"))
	got := agenttest.Pass(r)
	if len(got) != 1 || !strings.HasPrefix(got[0], "error Dataplane/default/web: ") || !strings.Contains(got[0], "boom") {
		t.Errorf("problems: %q", got)
	}
	if p.Has["default.web"] != web || p.Has["default.other"] == other {
		t.Error("the proxy with the fault lost its config, or the other one did not get one")
	}
	if now := s.Snapshot().Revision(); p.Revision["default.web"] != now-2 || p.Revision["default.other"] != now ||
		p.Revision["default.missing"] != now {
		t.Errorf("revisions %v, want that of the last good config for web and %d for the others", p.Revision, now)
	}
	if !strings.Contains(l.String(), "reconcile_test.go") {
		t.Errorf("the log has no stack: %s", l)
	}
	logged := strings.Count(l.String(), "problem with a resource")
	agenttest.Pass(r)
	if n := strings.Count(l.String(), "problem with a resource"); n != logged {
		t.Error("an unchanged problem is logged again")
	}

	mode = ""
	if got := agenttest.Pass(r); got != nil || p.Has["default.web"] == web {
		t.Errorf("after the fault: %q", got)
	}
}

// TestReconcileMesh uses a mesh that cannot be served, is deleted, and returns.
func TestReconcileMesh(t *testing.T) {
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web")
	extra := api.Problem{Resource: "A", Severity: api.SeverityWarning, Reason: "extra"}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Zone: "east",
		Problems: func() []api.Problem { return []api.Problem{extra, extra} }})
	if got := agenttest.Pass(r); len(got) != 1 || got[0] != "warning A: extra" {
		t.Errorf("problems: %q", got)
	}
	if v := r.Last().Meshes["default"]; v == nil || v.View.Zone != "east" {
		t.Errorf("views: %v", r.Last().Meshes)
	}
	web := p.Has["default.web"]
	agenttest.ByAPI(t, s, "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: provided, "+
		"conf: {cert: {secret: c}, key: {secret: k}}}]}\n")
	if got := agenttest.Pass(r); len(got) != 4 || !strings.Contains(got[1], "error Dataplane/default/web: no new config "+
		"can be computed, so the proxy keeps its current one: mtls.backends[0] (ca): conf.cert: ") ||
		!strings.Contains(got[2], "error Mesh/default: no certificates can be issued") || p.Has["default.web"] != web {
		t.Errorf("with a mesh that cannot be served: %q", got)
	}
	if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: agenttest.MeshKey("default")}}}); err != nil {
		t.Fatal(err)
	}
	agenttest.Pass(r)
	if p.Has["default.web"] != nil {
		t.Error("a proxy of a deleted mesh is not unknown")
	}
	agenttest.ByAPI(t, s, agenttest.Meshes("default"))
	agenttest.Pass(r)
	if p.Has["default.web"] == nil {
		t.Error("the proxy did not come back with its mesh")
	}
}

// TestReconcileAwaits checks that a proxy keeps its config while the Dataplane of its client is not
// in the store yet.
func TestReconcileAwaits(t *testing.T) {
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web", "default.other")
	awaited := map[string]bool{"default.web": true}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Awaited: func() map[string]bool { return awaited }})
	agenttest.Pass(r)
	if _, published := p.Has["default.web"]; published || p.Has["default.other"] == nil {
		t.Errorf("published: %v", p.Has)
	}
	awaited = nil
	agenttest.Pass(r)
	if p.Has["default.web"] == nil {
		t.Error("its config is not published after the wait")
	}
}
