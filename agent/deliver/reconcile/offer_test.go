package reconcile_test

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestOffered checks that the configs computed by a pre-write check are published when the change
// is stored, not before, and are neither computed nor checked again. After a different change they
// are not used, and the published configs are still correct.
func TestOffered(t *testing.T) {
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web")
	checks := 0
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p,
		Check: func(p *generate.Proxy, c *check.Checker, had *draft.Sealed) []finding.Finding {
			checks++
			return p.Check(c, had)
		}})
	agenttest.Pass(r)
	was := p.Has["default.web"]
	idle := func(n int) string {
		return fmt.Sprintf("{type: MeshTimeout, mesh: default, name: idle, spec: {targetRef: {kind: Mesh}, "+
			"from: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds, idleTimeout: %ds}}]}}", n, n)
	}
	const added = "{type: MeshProxyPatch, mesh: default, name: added, spec: {targetRef: {kind: Mesh}, default: " +
		"{appendModifications: [{cluster: {operation: Add, value: '{name: added, connect_timeout: 1s, type: STATIC}'}}]}}}"
	id := generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy}
	offer := func(policy string) *generate.Proxy {
		t.Helper()
		next := map[generate.ProxyID]*change.Checked{}
		last := r.Last()
		_, err := change.Verify(t.Context(), change.Question{Set: s.Snapshot().Set(), Put: agenttest.Decoded(t, policy),
			NewMesh: r.NewMesh, Meshes: last.Meshes, Connected: []generate.ProxyID{id},
			InForce: func(id generate.ProxyID) *generate.Proxy { return last.Proxies[id] },
			Fit:     func(generate.ProxyID) bool { return true },
			Next:    func(id generate.ProxyID, c *change.Checked) { next[id] = c }})
		agenttest.Do(t, err)
		r.Offer(next)
		return next[id].Proxy
	}
	computed := offer(idle(7))
	agenttest.Pass(r)
	if p.Has["default.web"] != was {
		t.Fatal("an offered config is published before the change is stored")
	}
	checks = 0
	agenttest.ByAPI(t, s, idle(7))
	agenttest.Pass(r)
	if p.Has["default.web"] != computed.Sealed {
		t.Error("an offered config is computed again")
	}
	if checks != 0 {
		t.Errorf("an offered config is checked again: %d times", checks)
	}
	other := offer(idle(8))
	agenttest.ByAPI(t, s, idle(9)+"\n---\n"+added)
	agenttest.Pass(r)
	want, err := id.In(r.Last().Meshes["default"], nil, generate.NewMemo())
	agenttest.Do(t, err)
	if got := p.Has["default.web"]; got.Versions != want.Sealed.Versions || got.Versions == other.Sealed.Versions {
		t.Error("a config offered for another change is published")
	}
	if checks != 1 {
		t.Errorf("a computed config is checked %d times", checks)
	}
}
