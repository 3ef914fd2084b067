package reconcile_test

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestOffered: what the check of a change has made is what is published once the change is stored,
// and not before; of another change it is of no use, and what is published then is right all the
// same.
func TestOffered(t *testing.T) {
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p})
	agenttest.Pass(r)
	was := p.Has["default.web"]
	idle := func(n int) string {
		return fmt.Sprintf("{type: MeshTimeout, mesh: default, name: idle, spec: {targetRef: {kind: Mesh}, "+
			"from: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds, idleTimeout: %ds}}]}}", n, n)
	}
	id := generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy}
	after := func(policy string) *generate.Proxy {
		t.Helper()
		with, err := r.NewMesh(s.Snapshot().Set(), "default", r.Last().Meshes["default"])
		agenttest.Do(t, err)
		made, err := id.In(with.WithPolicies(agenttest.Decoded(t, policy)...), r.Last().Proxies[id], generate.NewMemo())
		agenttest.Do(t, err)
		return made
	}
	made := after(idle(7))
	r.Offer(map[generate.ProxyID]*generate.Proxy{id: made})
	agenttest.Pass(r)
	if p.Has["default.web"] != was {
		t.Fatal("what is offered is published before it is stored")
	}
	agenttest.ByAPI(t, s, idle(7))
	agenttest.Pass(r)
	if p.Has["default.web"] != made.Sealed {
		t.Error("what was offered is made again")
	}
	other := after(idle(8))
	r.Offer(map[generate.ProxyID]*generate.Proxy{id: other})
	agenttest.ByAPI(t, s, idle(9))
	agenttest.Pass(r)
	want := after(idle(9))
	if got := p.Has["default.web"]; got.Versions != want.Sealed.Versions || got.Versions == other.Sealed.Versions {
		t.Error("what was offered for another change is published")
	}
}
