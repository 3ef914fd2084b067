package peers

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
)

// pair returns a world with two nodes and no faults.
func pair(t *testing.T) (w *world, a, b *member) {
	w = newWorld(t, disktest.TempDir(t), 1, 2)
	t.Cleanup(w.clean)
	for _, n := range w.nodes {
		n.old = false
		w.start(n)
	}
	w.run(10 * time.Second)
	return w, w.nodes[0], w.nodes[1]
}

// TestClaimReturns removes a dataplane of this node that had replaced another node's.
func TestClaimReturns(t *testing.T) {
	w, a, b := pair(t)
	shared := resource.Key{Kind: "Dataplane", Mesh: "m", Name: "shared"}
	for _, change := range []struct {
		n    *member
		text string
	}{{a, "of a"}, {b, "of b"}, {b, ""}} {
		if change.n.dataplanes[shared] = change.text; change.text == "" {
			delete(change.n.dataplanes, shared)
		}
		w.applyLocal(change.n)
		w.react(change.n)
		w.run(5 * time.Second)
		for _, n := range w.nodes {
			w.check(w.verifyVisible(n))
		}
	}
}

// TestDeadNodeReturnsAtOnce starts an agent that knows another node as dead from its disk. The
// first event is that the other node is alive.
func TestDeadNodeReturnsAtOnce(t *testing.T) {
	w, a, b := pair(t)
	b.dataplanes[resource.Key{Kind: "Dataplane", Mesh: "m", Name: "web"}] = "of b"
	w.applyLocal(b)
	w.react(b)
	w.run(5 * time.Second)
	w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = true, true
	w.run(20 * time.Second)
	if rec := a.store.Snapshot().BySource(store.SourcePeer)[0]; rec.Labels[resource.LabelLiveness] !=
		resource.LivenessDead {
		t.Fatalf("the dataplane of a dead node has the labels %v", rec.Labels)
	}
	w.stop(a)
	clear(w.cut)
	w.start(a)
	w.meet(a, b)
	w.run(5 * time.Second)
	w.check(w.verifyVisible(a))
}

// TestConflictIsWrittenWithItsWinner kills an agent after it has written a version of another node
// that won against a local version. The file must list the loser.
func TestConflictIsWrittenWithItsWinner(t *testing.T) {
	w, a, b := pair(t)
	k := resource.Key{Kind: "Note", Mesh: "m", Name: "a"}
	w.cut[[2]int{0, 1}] = true // b gets nothing from a
	for _, n := range []*member{a, b} {
		_, err := n.store.Apply(store.Batch{Source: sourceAPI, Durable: true,
			Ops: []store.Op{{Put: newNote(k, n.display())}}})
		w.check(err)
		w.run(10 * time.Millisecond)
	}
	w.poll(a)
	w.check(a.store.Flush())
	w.kill(a, w.load(a))
	w.start(a)
	if v := a.store.Version(k); v == nil || v.Origin != b.display() {
		t.Fatalf("in force is %v, want the version of b", v)
	}
	if got := conflictsOf(a); len(got) != 1 {
		t.Fatalf("the conflicts are %v, want the version of a", got)
	}
}

// TestLoserOfWriteIsListedAtOnce kills an agent directly after it has acknowledged a write. Another
// node's version had won during the write, and the file has that version.
func TestLoserOfWriteIsListedAtOnce(t *testing.T) {
	w, a, b := pair(t)
	k := resource.Key{Kind: "Note", Mesh: "m", Name: "a"}
	w.cut[[2]int{0, 1}] = true // b gets nothing from a
	b.clock = time.Second      // so its version wins
	a.committed = func() error {
		a.committed, a.writing = nil, true
		_, err := b.store.Apply(store.Batch{Source: sourceAPI, Durable: true, Ops: []store.Op{{Put: newNote(k, "of b")}}})
		w.check(err)
		w.run(10 * time.Millisecond)
		a.writing = false
		return nil
	}
	_, err := a.store.Apply(store.Batch{Source: sourceAPI, Durable: true, Ops: []store.Op{{Put: newNote(k, "of a")}}})
	w.check(err)
	w.kill(a, w.load(a))
	w.start(a)
	if v := a.store.Version(k); v == nil || v.Origin != b.display() {
		t.Fatalf("in force is %v, want the version of b", v)
	}
	if got := conflictsOf(a); len(got) != 1 {
		t.Fatalf("the conflicts are %v, want the version of a", got)
	}
}
