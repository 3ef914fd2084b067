package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// others is a pool with this node, two others, and their answers.
type others struct{ a, b api.Applied }

// Members implements [status.Nodes].
func (others) Members() []api.Member {
	return []api.Member{{ID: "1", Name: "a", State: api.MemberAlive}, {ID: "2", Name: "b", State: api.MemberAlive},
		{ID: "3", Name: "c", State: api.MemberAlive, Self: true}}
}

// Ask implements [status.Nodes].
func (o others) Ask(_ context.Context, id string, question []byte) ([]byte, error) {
	var q api.Wait
	if json.Unmarshal(question, &q) != nil || !q.Effective {
		return nil, errors.New("not a question about old connections")
	}
	return json.Marshal(map[string]api.Applied{"1": o.a, "2": o.b}[id])
}

// TestEffectiveInMesh checks that a wait in the mesh includes the older connections of other nodes,
// and does not accept the answer of an agent that does not report them.
func TestEffectiveInMesh(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, agenttest.Breaker(1))
	revision := s.Snapshot().Revision()
	until := time.Now().Add(time.Minute).Truncate(0).UTC()
	pool := &others{a: api.Applied{State: api.StateApplied, Effective: true, Proxies: 1, Acknowledged: 1},
		b: api.Applied{State: api.StateDraining, Effective: true, Proxies: 1, Acknowledged: 1, OldUntil: until, OldTotal: 1,
			Old: []api.OldProxy{{Mesh: "default", Name: "far", Until: until}}}}
	tracker := &status.Tracker{Registry: kinds.Registry(), Store: s, Nodes: pool,
		Last: func() *status.Result { return &status.Result{Revision: revision} }}
	key := resource.Key{Kind: "MeshCircuitBreaker", Mesh: "default", Name: "limits"}
	ask := func() api.Applied {
		out, exists, err := tracker.Wait(t.Context(), nil, key, &api.Wait{Effective: true, Scope: api.ScopeMesh}, 0)
		if err != nil || !exists {
			t.Fatal(exists, err)
		}
		return out
	}
	if x := ask(); x.State != api.StateDraining || x.OldTotal != 1 || !x.OldUntil.Equal(until) || len(x.Old) != 1 ||
		x.Acknowledged != 2 {
		t.Errorf("the node b drains: %+v", x)
	}
	pool.b = pool.a
	if x := ask(); x.State != api.StateApplied || x.OldTotal != 0 {
		t.Errorf("no node drains: %+v", x)
	}
	pool.b.Effective = false
	if x := ask(); x.State != api.StatePending || len(x.LateNodes) != 1 || x.LateNodes[0].Name != "b" {
		t.Errorf("the node b has an older version: %+v", x)
	}
}

// TestOldProxies checks which revisions have old connections on a proxy, and the state of all
// proxies. The drain time is Envoy's default.
func TestOldProxies(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, agenttest.Breaker(1))
	revision := s.Snapshot().Revision()
	var drain rollout.Drain
	tracker := &status.Tracker{Registry: kinds.Registry(), Store: s, Last: func() *status.Result { return nil },
		Progress: func() []rollout.Progress {
			return []rollout.Progress{{Node: node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}, Mesh: "default", Name: "web",
				State: api.StateServing, Revision: revision + 1, Answered: revision + 1, Draining: []rollout.Drain{drain}}}
		}}
	all := func(resource.Key) bool { return true }
	for name, c := range map[string]struct {
		drain      rollout.Drain
		old, total int
	}{
		"by this change":    {rollout.Drain{From: revision - 1, Revision: revision}, 1, 1},
		"by a later change": {rollout.Drain{From: revision, Revision: revision + 1}, 0, 1},
		"by an earlier one": {rollout.Drain{From: 0, Revision: revision - 1}, 0, 1},
		"ended": {rollout.Drain{From: revision - 1, Revision: revision, Since: time.Now().Add(-time.Hour)}, 0,
			0},
		"by a previous agent": {rollout.Drain{Revision: revision + 1, Unsure: true}, 0, 0},
	} {
		if drain = c.drain; drain.Since.IsZero() {
			drain.Since = time.Now()
		}
		list := tracker.List(t.Context(), "MeshCircuitBreaker", all)
		if x := list.Items[0]; len(x.Old) != c.old || x.OldTotal != c.old || x.OldUntil.IsZero() == (c.old > 0) {
			t.Errorf("%s: %+v", name, x)
		}
		got := tracker.Draining(t.Context(), all)
		if len(got) != c.total || c.total > 0 && (got[0].DrainTime != "10m0s" || got[0].DrainUnknown == "" ||
			!got[0].Until.Equal(drain.Since.Add(605*time.Second))) {
			t.Errorf("%s: %+v", name, got)
		}
		if len(tracker.Draining(t.Context(), func(resource.Key) bool { return false })) != 0 {
			t.Errorf("%s: a proxy is not visible", name)
		}
		if said := tracker.OldConnections(t.Context(), "default", "web", revision); (said != "") != (c.old > 0) {
			t.Errorf("%s: %q", name, said)
		}
	}
}
