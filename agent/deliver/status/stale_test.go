package status_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// published is a tracker of default.web, whose Envoy has acknowledged all that was published.
type published struct {
	*status.Tracker
	r *reconcile.Reconciler
}

func track(t *testing.T, s *store.Store, o reconcile.Options) *published {
	t.Helper()
	p := agenttest.NewPublisher("default.web")
	o.Store, o.Publisher = s, p
	r := reconcile.New(o)
	client := func() rollout.Progress {
		return rollout.Progress{Node: webKey, Mesh: "default", Name: "web", State: api.StateServing,
			Revision: p.Revision[webKey.ID], Answered: p.Revision[webKey.ID]}
	}
	return &published{r: r, Tracker: &status.Tracker{Registry: kinds.Registry(), Store: s, Last: r.Last,
		Progress: func() []rollout.Progress { return []rollout.Progress{client()} },
		Proxies: func() []api.ProxyStatus {
			return []api.ProxyStatus{{Mesh: "default", Name: "web", NodeID: webKey.ID, Flavor: webKey.Flavor, Streams: 1,
				State: api.StateServing, InSync: true}}
		}}}
}

// waited returns the state of a resource after a pass.
func (p *published) waited(t *testing.T, kind, name string) api.Applied {
	t.Helper()
	p.r.Pass()
	out, exists, err := p.Wait(t.Context(), nil, resource.Key{Kind: kind, Mesh: "default", Name: name}, &api.Wait{}, 0)
	if err != nil || !exists {
		t.Fatalf("%s %s: %v, exists: %t", kind, name, err, exists)
	}
	return out
}

// proxy returns the state of default.web.
func (p *published) proxy(t *testing.T) (state, reason string) {
	t.Helper()
	x := p.One(p.Store.Snapshot(), p.Last(), node.Ref{Mesh: "default", Name: "web"})
	return x.State, x.Reason
}

// TestStale checks that a proxy whose new config cannot be computed is stale, and a policy that it
// lacks as well, until the fault ends.
func TestStale(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, "{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: "+
		"[{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 90, tags: {kuma.io/service: other}}]}}\n---\n"+
		agenttest.Breaker(2))
	var fault error
	p := track(t, s, reconcile.Options{Generate: func(in generate.Input, prev *generate.Proxy,
		memo *generate.Memo) (*generate.Proxy, error) {
		if fault != nil {
			return nil, fault
		}
		return generate.Generate(in, prev, memo)
	}})
	if got := p.waited(t, "MeshCircuitBreaker", "limits"); got.State != api.StateApplied {
		t.Fatalf("before the fault: %+v", got)
	}
	fault = errors.New("the CA has expired")
	if got := p.waited(t, "MeshCircuitBreaker", "limits"); got.State != api.StateApplied {
		t.Errorf("acknowledged before the fault: %+v", got)
	}
	agenttest.ByAPI(t, s, agenttest.Breaker(3))
	const why = "it keeps an older config: no new config can be computed: the CA has expired"
	got := p.waited(t, "MeshCircuitBreaker", "limits")
	if got.State != api.StateStale || got.LateTotal != 1 || got.Acknowledged != 0 || got.Late[0].Reason != why {
		t.Errorf("after the fault: %+v", got)
	}
	list := p.List(t.Context(), "MeshCircuitBreaker", func(resource.Key) bool { return true })
	if len(list.Items) != 1 || list.Items[0].State != api.StateStale {
		t.Errorf("list: %+v", list)
	}
	if state, reason := p.proxy(t); state != api.StateStale || reason != why {
		t.Errorf("proxy: %s: %s", state, reason)
	}
	if all := p.All(s.Snapshot(), p.Last()); all[1].State != api.StateStale {
		t.Errorf("proxies: %+v", all)
	}
	fault = nil
	if got := p.waited(t, "MeshCircuitBreaker", "limits"); got.State != api.StateApplied {
		t.Errorf("in the end: %+v", got)
	}
	if state, _ := p.proxy(t); state != api.StateSynced {
		t.Errorf("in the end: %s", state)
	}
}

// missing implements reconcile.Logs: no destination is ready.
type missing string

func (m missing) Prepare(_ node.Key, pipes []draft.Pipe) (map[string]status.Missing, bool) {
	out := map[string]status.Missing{}
	for i := range pipes {
		out[pipes[i].ID()] = status.Missing{Reason: string(m)}
	}
	return out, false
}

func (missing) Unlogged(node.Key, map[string]string, func(string) bool) {}

func (missing) Left(node.Key) {}

// TestLeftOut checks that a policy is not applied while an access log is left out, because its
// destination is not ready.
func TestLeftOut(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, "{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: 'one:1'}}]}}]}}")
	got := track(t, s, reconcile.Options{Logs: missing("no space left on device")}).waited(t, "MeshAccessLog", "logs")
	if got.State != api.StateRejected || got.RejectedTotal != 1 || got.Rejected[0].By != api.HeldByAgent ||
		!strings.HasPrefix(got.Rejected[0].Resource, "tcp ") ||
		got.Rejected[0].Reason != "it is disabled: no space left on device" {
		t.Errorf("%+v", got)
	}
	got = track(t, s, reconcile.Options{Logs: missing(status.NotReady)}).waited(t, "MeshAccessLog", "logs")
	if got.State != api.StatePending || got.LateTotal != 1 || !strings.Contains(got.Late[0].Reason, "not ready in time") {
		t.Errorf("not ready yet: %+v", got)
	}
}
