package write_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// fixture is a writer with one connected proxy.
type fixture struct {
	t       *testing.T
	store   *store.Store
	writer  *write.Writer
	checks  int                                    // number of checks
	during  func()                                 // called during each check; nil: nothing
	offered []map[generate.ProxyID]*change.Checked // in order
}

// web is the connected proxy.
var web = generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, store: agenttest.TwoProxies(t)}
	f.writer = write.New(write.Options{
		Registry: kinds.Registry(), Store: f.store, Last: func() *status.Result { return nil },
		NewMesh: newMesh, Comparing: make(chan struct{}, 1), Log: slog.New(slog.DiscardHandler),
		Connected: func() []node.Key {
			if f.checks++; f.during != nil {
				f.during()
			}
			return []node.Key{{ID: "default.web", Flavor: node.FlavorEnvoy}}
		},
		Offer: func(x map[generate.ProxyID]*change.Checked) { f.offered = append(f.offered, x) },
	})
	return f
}

func newMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
}

// waiting gets its turn at once.
type waiting struct{}

func (waiting) Turn(_ context.Context, slot chan<- struct{}) bool { slot <- struct{}{}; return true }
func (waiting) Progress(int, int)                                 {}

// put writes a policy over the API.
func (f *fixture) put(text string, q write.Request) (*api.Written, *api.Error) {
	f.t.Helper()
	q.Put, q.Author, q.Waiting = agenttest.Decoded(f.t, text), "me", waiting{}
	if q.If == nil {
		q.If = func(store.Record, bool) *api.Error { return nil }
	}
	q.MayPut = func(*store.Snapshot, []*resource.Resource) *api.Error { return nil }
	q.MayGet = func(resource.Key) bool { return true }
	return f.writer.Write(f.t.Context(), &q)
}

// byFile changes another policy, like the directory source.
func (f *fixture) byFile(n int) {
	f.t.Helper()
	_, err := f.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceFile, Detail: "a.yaml"},
		Ops: []store.Op{{Put: agenttest.Decoded(f.t, agenttest.Breaker(n))[0]}}})
	agenttest.Do(f.t, err)
}

// asStored checks that the last offered configs are those of the stored resources.
func (f *fixture) asStored() {
	f.t.Helper()
	m, err := newMesh(f.store.Snapshot().Set(), "default", nil)
	agenttest.Do(f.t, err)
	want, err := web.In(m, nil, nil)
	agenttest.Do(f.t, err)
	if got := f.offered[len(f.offered)-1][web]; got.Sealed.Versions != want.Sealed.Versions {
		f.t.Errorf("offered %v, want %v", got.Sealed.Versions, want.Sealed.Versions)
	}
}

func idle(n int) string {
	return fmt.Sprintf("{type: MeshTimeout, mesh: default, name: idle, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds, idleTimeout: %ds}}]}}", n, n)
}

// TestWriteIsCheckedOnce checks that a write is checked once, and that the computed configs are
// offered.
func TestWriteIsCheckedOnce(t *testing.T) {
	f := newFixture(t)
	out, e := f.put(idle(7), write.Request{})
	if e != nil || out.Changes[0].Action != api.ActionCreated || out.Changes[0].Revision == 0 {
		t.Fatal(out, e)
	}
	if f.checks != 1 || len(f.offered) != 1 {
		t.Errorf("%d checks, %d offers", f.checks, len(f.offered))
	}
	f.asStored()
	if out, e = f.put(idle(8), write.Request{DryRun: true, Hidden: "no"}); e != nil || len(f.offered) != 1 {
		t.Errorf("dry run: %v, %d offers", e, len(f.offered))
	}
	if rec, _ := f.store.Snapshot().Get(f.key()); rec.Revision == 0 || out.Changes[0].Revision != 0 {
		t.Errorf("dry run: revision %d", out.Changes[0].Revision)
	}
}

func (f *fixture) key() resource.Key {
	return resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "idle"}
}

// TestWriteWhileTheStoreChanges checks that a write is checked together with changes made in the
// meantime, and that a constantly changing store does not block it.
func TestWriteWhileTheStoreChanges(t *testing.T) {
	f := newFixture(t)
	f.during = func() {
		if f.checks == 1 {
			f.byFile(1)
		}
	}
	if _, e := f.put(idle(7), write.Request{}); e != nil || f.checks != 2 {
		t.Fatalf("%v, %d checks", e, f.checks)
	}
	f.asStored()
	f.checks, f.during = 0, func() { f.byFile(10 + f.checks) }
	if _, e := f.put(idle(8), write.Request{}); e != nil || f.checks != 2 {
		t.Fatalf("%v, %d checks", e, f.checks)
	}
}

// TestPreconditionsHoldForWhatIsThere checks that preconditions apply to writes made during the
// check.
func TestPreconditionsHoldForWhatIsThere(t *testing.T) {
	for _, when := range []int{1, 2} {
		f := newFixture(t)
		f.during = func() {
			if f.byFile(f.checks); f.checks == when {
				agenttest.ByAPI(t, f.store, idle(1))
			}
		}
		none := func(_ store.Record, have bool) *api.Error {
			if have {
				return api.NewError(412, api.ProblemExists, "Already exists", "")
			}
			return nil
		}
		if _, e := f.put(idle(7), write.Request{If: none}); e == nil || e.Type != api.ProblemExists {
			t.Errorf("check %d: %v", when, e)
		}
		rec, _ := f.store.Snapshot().Get(f.key())
		if rec.Digest != agenttest.Decoded(t, idle(1))[0].Digest {
			t.Errorf("check %d: the resource of another operator is overwritten", when)
		}
	}
}

// TestWriteByManyAtOnce checks that of concurrent writes the last one wins, unless another write
// always comes in between.
func TestWriteByManyAtOnce(t *testing.T) {
	f := newFixture(t)
	f.during = func() { agenttest.ByAPI(t, f.store, idle(f.checks)) }
	_, e := f.put(idle(77), write.Request{})
	if e == nil || e.Type != api.ProblemStale || !strings.Contains(e.Detail, "because it was changed") || f.checks > 4 {
		t.Errorf("%v, after %d checks", e, f.checks)
	}
}
