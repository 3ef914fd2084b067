package peers

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestAudit removes a version from the store behind the engine. The second audit restores and
// reports it, and the third one reports nothing.
func TestAudit(t *testing.T) {
	decode := func(b []byte) (*resource.Resource, error) {
		rs, faults := kinds.Registry().Decode("", b)
		if err := faults.Err(); err != nil {
			return nil, err
		}
		return rs[0], nil
	}
	origin := engine.Origin{Node: engine.NodeID{1}, Name: "a"}
	st, err := store.Open(store.Options{Path: filepath.Join(t.TempDir(), "state.db"), Encode: resource.Marshal,
		Decode: decode, Shared: Shared, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s, err := Open(t.Context(), Options{Store: st, Decode: decode, Self: origin.Node, Fresh: true, Node: "a", Cluster: "c",
		Bind: "127.0.0.1:0", Insecure: true, Log: slog.New(slog.DiscardHandler), Now: time.Now, Changed: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := decode([]byte("type: Mesh\nname: default\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := mesh.Key
	if _, err := st.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Put: mesh}}}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	audit := func(want string) {
		t.Helper()
		now = now.Add(auditEvery)
		s.runAudit(now)
		if got := s.peersCheck().Reason; strings.Contains(got, "differs from the replicated one") != (want != "") ||
			!strings.Contains(got, want) {
			t.Errorf("the check says %s", got)
		}
	}
	audit("")
	_, err = s.o.Store.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip},
		Ops: []store.Op{{Delete: k, Drop: true}}})
	if err != nil {
		t.Fatal(err)
	}
	audit("")
	audit("1, the first is Mesh/default")
	if v := s.o.Store.Version(k); v == nil || v.ID() != s.node.Record(engine.Key(k)).ID() {
		t.Errorf("the store has %v", v)
	}
	if _, ok := s.o.Store.Snapshot().Get(k); !ok {
		t.Error("the resource is not in force")
	}
	audit("")
	audit("")
}
