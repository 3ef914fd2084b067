package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/store"
	"github.com/nearside-mesh/nearside/agent/xds"
)

func TestReconcileWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := memory(t), newPublisher()
		r := agent.NewReconciler(agent.ReconcileOptions{Store: s, Publisher: p})
		go r.Run(t.Context())
		synctest.Wait()
		if n := p.take(); n != 1 {
			t.Fatalf("%d passes at the start, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := p.take(); n != 0 {
			t.Fatalf("%d passes without a trigger", n)
		}
		byAPI(t, s, meshes("a"))
		time.Sleep(4 * time.Millisecond)
		synctest.Wait()
		if n := p.take(); n != 0 {
			t.Fatalf("%d passes within the quiet time", n)
		}
		for range 3 {
			r.Trigger()
		}
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if n := p.take(); n != 1 || r.Last().Revision != 1 {
			t.Fatalf("%d passes after a burst, want 1; revision %d", n, r.Last().Revision)
		}
		// Triggers without a pause are served at the ceiling.
		began := time.Now()
		for p.take() == 0 {
			r.Trigger()
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took < 90*time.Millisecond || took > 110*time.Millisecond {
			t.Errorf("a pass after %s of triggers, want the ceiling of 100 ms", took)
		}
	})
}

// TestReconcileIsolatesProxies has a generation that panics or fails for one proxy.
func TestReconcileIsolatesProxies(t *testing.T) {
	s, p, l := twoProxies(t), newPublisher("default.web", "default.other", "default.missing", "nomesh.web", "nonsense"), newLogs()
	mode := ""
	r := agent.NewReconciler(agent.ReconcileOptions{Store: s, Publisher: p, Log: l.logger(),
		Generate: func(in xds.Input, prev *xds.Proxy, memo *xds.Memo) (*xds.Proxy, error) {
			if in.Name == "web" && mode == "panic" {
				panic("boom")
			}
			return xds.Generate(in, prev, memo)
		}})
	if got := pass(r); got != nil {
		t.Fatalf("problems: %q", got)
	}
	for _, id := range []string{"default.missing", "nomesh.web", "nonsense"} {
		if sealed, ok := p.has[id]; !ok || sealed != nil {
			t.Errorf("%s is not published as unknown", id)
		}
	}
	web, other := p.has["default.web"], p.has["default.other"]
	if web == nil || other == nil {
		t.Fatal("the proxies have no config")
	}
	pass(r)
	if p.touched["default.web"] != 1 || p.touched["default.other"] != 1 {
		t.Errorf("a pass without a change touches proxies: %v", p.touched)
	}

	mode = "panic"
	byAPI(t, s, dataplaneText("default", "web", "10.0.1.1")+"\n---\n"+dataplaneText("default", "other", "10.0.1.2"))
	got := pass(r)
	if len(got) != 1 || !strings.HasPrefix(got[0], "error Dataplane/default/web: ") || !strings.Contains(got[0], "boom") {
		t.Errorf("problems: %q", got)
	}
	if p.has["default.web"] != web || p.has["default.other"] == other {
		t.Error("the proxy with the fault did not keep its config, or the other one did not get its own")
	}
	if now := s.Snapshot().Revision(); p.revision["default.web"] != now-2 || p.revision["default.other"] != now || p.revision["default.missing"] != now {
		t.Errorf("revisions %v, want that of the last good config for web and %d for the others", p.revision, now)
	}
	if !strings.Contains(l.String(), "reconcile_test.go") {
		t.Errorf("the log has no stack: %s", l)
	}
	logged := strings.Count(l.String(), "problem with a resource")
	pass(r)
	if n := strings.Count(l.String(), "problem with a resource"); n != logged {
		t.Error("a problem that stays is logged again")
	}

	mode = ""
	if got := pass(r); got != nil || p.has["default.web"] == web {
		t.Errorf("after the fault: %q", got)
	}
}

// TestReconcileMesh has a mesh that cannot be served, goes and comes back.
func TestReconcileMesh(t *testing.T) {
	s, p := twoProxies(t), newPublisher("default.web")
	extra := inspect.Problem{Resource: "A", Severity: inspect.SeverityWarning, Reason: "extra"}
	r := agent.NewReconciler(agent.ReconcileOptions{Store: s, Publisher: p, Zone: "east", Problems: func() []inspect.Problem { return []inspect.Problem{extra, extra} }})
	if got := pass(r); len(got) != 1 || got[0] != "warning A: extra" {
		t.Errorf("problems: %q", got)
	}
	if v := r.Last().Meshes["default"]; v == nil || v.View.Zone != "east" {
		t.Errorf("views: %v", r.Last().Meshes)
	}
	web := p.has["default.web"]
	byAPI(t, s, "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: provided, conf: {cert: {secret: c}, key: {secret: k}}}]}\n")
	if got := pass(r); len(got) != 3 || !strings.Contains(got[1], "error Dataplane/default/web: no new config could be made, the proxy keeps what it has: mtls.backends[0] (ca): conf.cert: ") ||
		!strings.Contains(got[2], "error Mesh/default: no certificates can be made") || p.has["default.web"] != web {
		t.Errorf("with a mesh that cannot be served: %q", got)
	}
	if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Ops: []store.Op{{Delete: meshKey("default")}}}); err != nil {
		t.Fatal(err)
	}
	pass(r)
	if p.has["default.web"] != nil {
		t.Error("a proxy of a mesh that is gone is not unknown")
	}
	byAPI(t, s, meshes("default"))
	pass(r)
	if p.has["default.web"] == nil {
		t.Error("the proxy did not come back with its mesh")
	}
}
