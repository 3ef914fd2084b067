package engine

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// TestForgedManifests checks that a manifest of a node that signs is only in force with its
// signature, that another key cannot get its name, and that no other node can declare it gone while
// it is alive.
func TestForgedManifests(t *testing.T) {
	here, there, evil := testKey(1), testKey(2), testKey(3)
	e, _ := New(Config{Self: nodeOf(here), Member: "here", Name: "here", Cluster: "c", Random: func(int) int { return 0 },
		Signer: here}, at(simStart), nil)
	e.Step(at(simStart), PeerUp{Member: "there", Node: nodeOf(there), Features: Features})
	e.Step(at(simStart), PeerUp{Member: "evil", Node: nodeOf(evil), Features: Features})
	body := []byte("item")
	epoch := uint64(simStart.Unix())
	manifest := func(id NodeID, order uint64, change func(*Manifest)) Manifest {
		m := Manifest{Node: id, Name: "there", Order: order, Cluster: "c",
			Entries: []Entry{{Key: Key{Kind: "D", Mesh: "m", Name: "x"}, Hash: HashBody(body)}}}
		if change != nil {
			change(&m)
		}
		return m
	}
	receive := func(m Manifest, s sign.Signer, now time.Time) {
		t.Helper()
		sealed, err := m.Seal(s)
		if err != nil {
			t.Fatal(err)
		}
		e.Step(at(now), Received{(&message{From: "evil", Manifests: []*Manifest{sealed}, Bodies: [][]byte{body}}).encode()})
	}
	receive(manifest(nodeOf(there), record.MakeOrder(epoch, 1), nil), there, simStart)
	want := e.Manifest(nodeOf(there))
	if want == nil || want.Signer() != sign.Fingerprint(there.Public()) {
		t.Fatalf("the signed manifest is not in force: %+v", want)
	}
	none := func(m *Manifest) { m.Entries = nil }
	gone := func(m *Manifest) { m.Entries, m.Forgotten = nil, true }
	left := func(m *Manifest) { m.Entries, m.Leaving = nil, true }
	last := record.MakeOrder(epoch, 1<<24-1)
	receive(manifest(nodeOf(there), record.MakeOrder(epoch+1, 1), none), nil, simStart)
	receive(manifest(nodeOf(there), record.MakeOrder(epoch+2, 1), none), evil, simStart)
	receive(manifest(nodeOf(there), record.MakeOrder(epoch+3, 1), left), nil, simStart)
	receive(manifest(nodeOf(there), record.MakeOrder(epoch+4, 1), left), evil, simStart)
	receive(manifest(nodeOf(there), last, gone), nil, simStart)
	receive(manifest(nodeOf(there), last, gone), evil, simStart)
	receive(manifest(nodeOf(evil), record.MakeOrder(epoch, 1), nil), evil, simStart) // the name of the other node
	receive(manifest(NodeID{7}, record.MakeOrder(epoch, 1), nil), nil, simStart)     // the same without a key
	if got := e.Manifest(nodeOf(there)); got != want {
		t.Errorf("in force is %+v", got)
	}
	if e.Manifest(nodeOf(evil)) != nil || e.Manifest(NodeID{7}) != nil {
		t.Error("another node has the name")
	}
	list, total := e.Refusals()
	if total[ReasonName] != 2 || total[ReasonTrust] != 6 {
		t.Errorf("refusals %v: %+v", total, list)
	}
	// A node that is dead can be forgotten, and its name is free at once.
	e.Step(at(simStart), PeerDown{Member: "there"})
	now := simStart.Add(refusedFor)
	receive(manifest(nodeOf(there), last, gone), evil, now)
	receive(manifest(nodeOf(evil), record.MakeOrder(epoch, 2), nil), evil, now)
	if m := e.Manifest(nodeOf(there)); !m.Forgotten || e.Manifest(nodeOf(evil)) == nil {
		t.Errorf("after it was forgotten: %+v", m)
	}
}
