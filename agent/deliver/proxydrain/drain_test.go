package proxydrain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/proxydrain"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var web = resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}

// world is a node with the dataplane default.web and its Envoy. It records what happens in order.
type world struct {
	*proxydrain.Drains
	store   *store.Store
	did     []string
	clients []api.ProxyStatus
	late    time.Duration // until the last proxy has acknowledged
	exists  bool          // the state
	waits   string        // the state of the resource that is waited for
	busy    time.Duration // until the last request ends
	broken  error         // of the presence
	deaf    error         // of the Envoy
	began   time.Time
}

func (w *world) Drain(k resource.Key, untilUndo bool) error {
	if w.did = append(w.did, "leave "+k.Name); untilUndo {
		w.did = append(w.did, "keep")
	}
	return w.broken
}

func (w *world) Undrain(k resource.Key) error {
	w.did = append(w.did, "return "+k.Name)
	return w.broken
}

func (w *world) FailHealth(context.Context) error { w.did = append(w.did, "fail"); return w.deaf }
func (w *world) PassHealth(context.Context) error { w.did = append(w.did, "pass"); return w.deaf }

func (w *world) Active(context.Context) (int, error) {
	if time.Since(w.began) < w.busy {
		return 2, nil
	}
	return 0, nil
}

func (w *world) wait(ctx context.Context, stop <-chan struct{}, key resource.Key, q *api.Wait,
	timeout time.Duration) (api.Applied, bool, error) {
	if key != resource.EndpointStateOf(web) || q.For != w.waits {
		return api.Applied{}, false, errors.New("another question")
	}
	late := api.Applied{State: api.StatePending, Acknowledged: 1, LateTotal: 1,
		Late: []api.LateProxy{{Mesh: "default", Name: "slow", Reason: "it sleeps"}}}
	select {
	case <-time.After(min(w.late-time.Since(w.began), timeout)):
	case <-ctx.Done():
		return late, true, ctx.Err()
	case <-stop:
		return late, true, status.ErrStopped
	}
	if time.Since(w.began) < w.late {
		return late, true, nil
	}
	return api.Applied{State: api.StateApplied, Acknowledged: 2}, w.exists, nil
}

// ended stores that the Envoy has ended.
func (w *world) ended(t *testing.T) {
	t.Helper()
	r, faults := kinds.Registry().WithInternal().Seal(&resource.Resource{Key: resource.EndpointStateOf(web),
		Spec: &resource.EndpointState{State: resource.EndpointEnded, Reason: "its Envoy has ended"}})
	agenttest.Do(t, faults.Err())
	_, err := w.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceNode},
		Ops: []store.Op{{Put: r, Source: store.Source{Kind: store.SourceNode}}}})
	agenttest.Do(t, err)
}

func start(t *testing.T, from store.Source) *world {
	t.Helper()
	w := &world{store: agenttest.Memory(t), exists: true, waits: api.ForApplied, began: time.Now(),
		clients: []api.ProxyStatus{{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy, Streams: 1}}}
	agenttest.ByAPI(t, w.store, "{type: Mesh, name: default}\n")
	_, err := w.store.Apply(store.Batch{Source: store.Source{Kind: from.Kind}, Ops: []store.Op{{Source: from,
		Put: agenttest.Decoded(t, "{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, "+
			"inbound: [{port: 80, tags: {kuma.io/service: web}}]}}\n")[0]}}})
	agenttest.Do(t, err)
	w.Drains = proxydrain.New(proxydrain.Options{Store: w.store, Presence: w, Wait: w.wait,
		Clients: func(node.Ref) []api.ProxyStatus { return w.clients },
		Envoy:   func(*api.ProxyStatus) proxydrain.Envoy { return w }})
	return w
}

// TestDrain checks the order of the steps, the report of one that takes too long, and the errors
// for dataplanes that cannot be drained.
func TestDrain(t *testing.T) {
	file := store.Source{Kind: store.SourceFile, Detail: "a.yaml"}
	for name, c := range map[string]struct {
		from  store.Source
		set   func(w *world)
		q     api.DrainRequest
		own   bool
		did   string
		state string // or a part of the error
		lasts time.Duration
		check func(d *api.Drain) bool
	}{
		"leaves, then drains": {q: api.DrainRequest{Wait: true}, did: "leave web, fail", state: api.DrainDrained,
			set:   func(w *world) { w.late, w.busy = 2*time.Second, 5*time.Second },
			lasts: 5100 * time.Millisecond,
			check: func(d *api.Drain) bool {
				return d.Proxies == 2 && *d.Active == 0
			}},
		"without a wait": {did: "leave web, fail", state: api.DrainDraining, set: func(w *world) { w.busy = time.Hour },
			check: func(d *api.Drain) bool { return *d.Active == 2 }},
		"requests that do not end": {q: api.DrainRequest{Wait: true, Timeout: "3s"}, did: "leave web, fail",
			state: api.DrainDraining, set: func(w *world) { w.busy = time.Hour }, lasts: 3 * time.Second,
			check: func(d *api.Drain) bool { return *d.Active == 2 }},
		"a late proxy": {q: api.DrainRequest{Wait: true, Timeout: "3s"}, did: "leave web, fail", state: api.DrainLeaving,
			set: func(w *world) { w.late = time.Hour }, lasts: 3 * time.Second,
			check: func(d *api.Drain) bool { return d.LateTotal == 1 && d.Late[0].Name == "slow" && d.Active == nil }},
		"undone meanwhile": {did: "leave web, fail", state: api.DrainLeaving, set: func(w *world) { w.exists = false },
			check: func(d *api.Drain) bool { return strings.Contains(d.Reason, "undone") }},
		"the proxy itself": {q: api.DrainRequest{Wait: true}, own: true, did: "leave web", state: api.DrainDraining,
			check: func(d *api.Drain) bool { return d.Envoy == "" && d.Active == nil }},
		"undo": {q: api.DrainRequest{Undo: true}, did: "return web, pass", state: api.DrainUndone},
		"undo, with a wait": {q: api.DrainRequest{Undo: true, Wait: true}, did: "return web, pass", state: api.DrainUndone,
			set: func(w *world) { w.late = 2 * time.Second }, lasts: 2 * time.Second,
			check: func(d *api.Drain) bool { return d.Proxies == 2 }},
		"undo, with a late proxy": {q: api.DrainRequest{Undo: true, Wait: true, Timeout: "3s"}, did: "return web, pass",
			state: api.DrainReturning, set: func(w *world) { w.late = time.Hour }, lasts: 3 * time.Second,
			check: func(d *api.Drain) bool { return d.LateTotal == 1 && d.Late[0].Name == "slow" && d.Reason == "" }},
		"undo, while its Envoy has ended": {q: api.DrainRequest{Undo: true, Wait: true, Timeout: "3s"},
			did: "return web, pass", state: api.DrainReturning, set: func(w *world) { w.late = time.Hour; w.ended(t) },
			check: func(d *api.Drain) bool { return d.Reason == "its Envoy has ended" }},
		"undo, before its Envoy is connected": {from: file, q: api.DrainRequest{Undo: true, Wait: true, Timeout: "3s"},
			did: "return web", state: api.DrainReturning, set: func(w *world) { w.clients = nil }, lasts: 3 * time.Second,
			check: func(d *api.Drain) bool { return d.Reason == "its Envoy is not connected" }},
		"undo, while the agent stops": {q: api.DrainRequest{Undo: true, Wait: true}, did: "return web, pass",
			set: func(w *world) { w.late = time.Hour; w.Stop() }, state: "shutting down"},
		"undo of an Envoy that cannot be asked": {q: api.DrainRequest{Undo: true}, did: "return web, pass",
			state: api.DrainUndone, set: func(w *world) { w.deaf = errors.New("no socket"); w.ended(t) },
			check: func(d *api.Drain) bool { return strings.Contains(d.Envoy, "no socket") }},
		"undo without a drain": {q: api.DrainRequest{Undo: true}, did: "return web, pass", state: api.DrainUndone,
			set:   func(w *world) { w.deaf = errors.New("no socket") },
			check: func(d *api.Drain) bool { return d.Envoy == "" }},
		"until undo": {q: api.DrainRequest{UntilUndo: true}, did: "leave web, keep, fail", state: api.DrainDraining},
		"an Envoy that cannot be asked": {q: api.DrainRequest{Wait: true}, did: "leave web, fail",
			state: api.DrainDraining, set: func(w *world) { w.deaf = errors.New("no socket") },
			check: func(d *api.Drain) bool { return strings.Contains(d.Envoy, "no socket") }},
		"a file without an Envoy": {from: file, did: "leave web", state: api.DrainDraining,
			set:   func(w *world) { w.clients = nil },
			check: func(d *api.Drain) bool { return d.Envoy == "" && d.Active == nil }},
		"the API without an Envoy": {set: func(w *world) { w.clients = nil }, state: "is not connected to this agent"},
		"another node": {from: store.Source{Kind: store.SourcePeer, Detail: "node-2"},
			state: "belongs to the node node-2"},
		"a dataplane that does not exist": {set: func(w *world) {
			_, err := w.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Ops: []store.Op{{Delete: web}}})
			agenttest.Do(t, err)
		}, state: "does not exist"},
		"an invalid timeout": {q: api.DrainRequest{Timeout: "26s"}, state: "26s is invalid"},
		"a full store":       {set: func(w *world) { w.broken = errors.New("full") }, did: "leave web", state: "full"},
		"a stopping agent": {set: func(w *world) { w.late = time.Hour; w.Stop() }, did: "leave web",
			state: "shutting down"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.from.Kind == "" {
					c.from.Kind = store.SourceAPI
				}
				w := start(t, c.from)
				if c.set != nil {
					c.set(w)
				}
				if c.q.Undo {
					w.waits = api.ForGone
				}
				got, e := w.Run(t.Context(), web, &c.q, c.own, "the test")
				if did := strings.Join(w.did, ", "); did != c.did {
					t.Errorf("it did %q, want %q", did, c.did)
				}
				if d := time.Since(w.began); d != c.lasts && c.lasts > 0 {
					t.Errorf("it lasted %v, want %v", d, c.lasts)
				}
				switch {
				case e != nil:
					if !strings.Contains(e.Detail, c.state) {
						t.Errorf("%v, want %q", e, c.state)
					}
				case got.State != c.state || c.check != nil && !c.check(got):
					t.Errorf("%+v, want %q", got, c.state)
				}
			})
		})
	}
}
