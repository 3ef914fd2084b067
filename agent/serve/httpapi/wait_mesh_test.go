package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// crowd is a pool of which each node answers at once.
type crowd struct {
	httpapi.Pool
	size  int
	state string
	asked atomic.Int64
}

func (c *crowd) Members() (out []api.Member) {
	out = append(out, api.Member{Name: "here", ID: "here", State: "alive", Self: true})
	for i := range c.size {
		name := fmt.Sprintf("node-%03d", i)
		out = append(out, api.Member{Name: name, ID: name, State: "alive"})
	}
	return append(out, api.Member{Name: "gone", ID: "gone", State: "dead"},
		api.Member{Name: "away", ID: "away", State: "left"})
}

func (c *crowd) Ask(_ context.Context, id string, _ []byte) ([]byte, error) {
	c.asked.Add(1)
	return json.Marshal(api.Applied{State: c.state, Proxies: 1, Acknowledged: 1, Late: []api.LateProxy{{Name: id}},
		LateTotal: 1})
}

// TestAnswerOfANode: a count that cannot be is not added, and its node is waited for.
func TestAnswerOfANode(t *testing.T) {
	for _, answer := range []string{
		`{"state": "applied", "proxies": -5}`, `{"state": "applied", "lateTotal": 9000000000}`, `{"state": 5}`, `nothing`,
	} {
		t.Run(answer, func(t *testing.T) {
			set := &proxySet{changed: make(chan struct{}, 1)}
			pool := &liar{crowd{size: 1}, answer}
			a := start(t, func(o *httpapi.Options) { o.Progress, o.Watch, o.Pool = set.progress, set.watch, pool })
			a.put(store.Source{Kind: store.SourceAPI}, appliedMesh)
			a.reconcile()
			set.set(proxy("web", 10))
			got := a.do("POST", "/v1/wait", `{"type": "mt", "mesh": "default", "name": "all", "timeout": "0s", "scope": "mesh"}`)
			var x api.Applied
			if err := json.Unmarshal([]byte(got.body), &x); err != nil || x.State != api.StatePending || x.Proxies != 1 ||
				len(x.LateNodes) != 1 || !strings.Contains(x.LateNodes[0].Reason, "its response is invalid") {
				t.Errorf("%v %s", err, got.body)
			}
		})
	}
}

// liar is a pool whose nodes give a fixed answer.
type liar struct {
	crowd
	answer string
}

func (l *liar) Ask(context.Context, string, []byte) ([]byte, error) { return []byte(l.answer), nil }

// TestManyNodesAreAsked: what many nodes answer at the same time is in the order of the nodes, and
// all of it counts.
func TestManyNodesAreAsked(t *testing.T) {
	for _, state := range []string{api.StateApplied, api.StatePending} {
		t.Run(state, func(t *testing.T) {
			pool := &crowd{size: 100, state: state}
			set := &proxySet{changed: make(chan struct{}, 1)}
			a := start(t, func(o *httpapi.Options) { o.Progress, o.Watch, o.Pool = set.progress, set.watch, pool })
			a.put(store.Source{Kind: store.SourceAPI}, appliedMesh)
			a.reconcile()
			set.set(proxy("web", 10), proxy("back", 10, in(api.StateDisconnected)))
			got := a.do("POST", "/v1/wait", `{"type": "mt", "mesh": "default", "name": "all", "timeout": "0s", "scope": "mesh"}`)
			var x api.Applied
			if err := json.Unmarshal([]byte(got.body), &x); err != nil || got.status != http.StatusOK {
				t.Fatalf("%d %v %s", got.status, err, got.body)
			}
			if x.State != state || x.Nodes != 101 || x.Proxies != 101 || x.LateTotal != 100 ||
				strings.Join(x.Unasked, " ") != "gone" || pool.asked.Load() != 100 {
				t.Errorf("%d asked: %s", pool.asked.Load(), got.body)
			}
			for i, p := range x.Late {
				if p.Name != fmt.Sprintf("node-%03d", i) {
					t.Fatalf("late %d is %s", i, p.Name)
				}
			}
			for i, n := range x.LateNodes {
				if n.Name != fmt.Sprintf("node-%03d", i) {
					t.Fatalf("late node %d is %s", i, n.Name)
				}
			}
			if want := map[string]int{api.StateApplied: 0, api.StatePending: 100}[state]; len(x.LateNodes) != want {
				t.Errorf("%d nodes are late, want %d", len(x.LateNodes), want)
			}
		})
	}
}
