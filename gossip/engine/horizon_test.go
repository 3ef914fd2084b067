package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

const horizon = 200 * time.Hour

// trio returns three nodes that agree, in a network without faults.
func trio(t *testing.T) *sim {
	s := newSim(t, 1, 3, Limits{Horizon: horizon})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(5 * time.Second)
	return s
}

func (s *sim) isolate(side ...int) {
	clear(s.cut)
	for _, a := range s.nodes {
		for _, b := range s.nodes {
			in := func(n *simNode) bool {
				for _, i := range side {
					if n.i == i {
						return true
					}
				}
				return false
			}
			s.cut[[2]int{a.i, b.i}] = in(a) != in(b)
		}
	}
}

func (s *sim) live(n int, k Key) bool {
	r := s.nodes[n].engine.Record(k)
	return r != nil && !r.Deleted
}

func (s *sim) inLimbo(n int, k Key) bool {
	for _, r := range s.nodes[n].engine.Limbo() {
		if r.Key == k {
			return true
		}
	}
	return false
}

var oldKey, newKey = Key{Kind: "K", Mesh: "m", Name: "old"}, Key{Kind: "K", Mesh: "m", Name: "new"}

// TestReturnAfterTheHorizon checks that a node that was away for longer than the horizon does not
// restore deleted records. Old records that it wrote in the meantime are moved to limbo; recent
// ones are accepted.
func TestReturnAfterTheHorizon(t *testing.T) {
	s := trio(t)
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("1")})
	s.run(5 * time.Second)
	s.isolate(2)
	s.run(10 * time.Second)
	s.change(s.nodes[0], Put{Key: oldKey, Delete: true})
	ownOld := Key{Kind: "K", Mesh: "m", Name: "written in the partition, long ago"}
	s.change(s.nodes[2], Put{Key: ownOld, Body: []byte("2")})
	for range 10 {
		s.skip(horizon / 8)
		s.run(2 * time.Minute)
	}
	if s.nodes[0].engine.Stats().Tombstones != 0 {
		t.Fatal("the tombstone outlives the horizon")
	}
	s.change(s.nodes[2], Put{Key: newKey, Body: []byte("3")})
	clear(s.cut)
	s.run(30 * time.Second)
	for i := range s.nodes {
		if s.live(i, oldKey) {
			t.Errorf("node %d: a deleted record is back", i)
		}
		if s.live(i, ownOld) {
			t.Errorf("node %d: a record that may have been deleted is live", i)
		}
		if !s.live(i, newKey) {
			t.Errorf("node %d: a recent record is missing", i)
		}
		if s.nodes[i].engine.tree.Sum != s.nodes[0].engine.tree.Sum {
			t.Errorf("node %d does not agree", i)
		}
	}
	if !s.inLimbo(2, oldKey) || !s.inLimbo(2, ownOld) {
		t.Errorf("records in limbo are not listed: %v", s.nodes[2].engine.Limbo())
	}
	// An operator restores a record with a write.
	l := s.nodes[2].engine.Limbo()[1]
	s.change(s.nodes[2], Put{Key: l.Key, Body: l.Body})
	s.run(5 * time.Second)
	if !s.live(0, l.Key) || s.inLimbo(2, l.Key) {
		t.Error("a restored record is not live everywhere, or still in limbo")
	}
}

// TestHalvesThatForgotEachOther checks that a record older than the horizon that only one half has
// is moved to limbo in the other half, and stays live where it was.
func TestHalvesThatForgotEachOther(t *testing.T) {
	s := newSim(t, 1, 4, Limits{Horizon: horizon})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("1")})
	s.run(5 * time.Second)
	s.isolate(2, 3)
	s.run(10 * time.Second)
	s.change(s.nodes[0], Put{Key: oldKey, Delete: true})
	for range 10 {
		s.skip(horizon / 8)
		s.run(2 * time.Minute)
	}
	clear(s.cut)
	s.run(30 * time.Second)
	for i := range 2 {
		if s.live(i, oldKey) || !s.inLimbo(i, oldKey) {
			t.Errorf("node %d: live %v, in limbo %v", i, s.live(i, oldKey), s.inLimbo(i, oldKey))
		}
		if !s.live(2+i, oldKey) {
			t.Errorf("node %d has lost a record silently", 2+i)
		}
	}
	s.run(8 * time.Minute)
	before := 0
	for _, n := range s.nodes {
		before += int(n.engine.Stats().Counters["comparisons"])
	}
	s.run(10 * time.Minute)
	after := 0
	for _, n := range s.nodes {
		after += int(n.engine.Stats().Counters["comparisons"])
	}
	if pairs := 4 * 3; after-before > 2*pairs {
		t.Errorf("a lasting difference costs %d comparisons in 10 minutes, at most one or two for each of %d pairs are "+
			"expected", after-before, pairs)
	}
	s.change(s.nodes[3], Put{Key: oldKey, Delete: true})
	s.run(10 * time.Second)
	for i, n := range s.nodes {
		if s.live(i, oldKey) || n.engine.tree.Sum != s.nodes[0].engine.tree.Sum {
			t.Errorf("node %d does not agree after the operator has decided", i)
		}
	}
}

// TestClockSetFarAhead checks that a node whose clock jumps by a year drops nothing, and that its
// writes fail until the clock is right.
func TestClockSetFarAhead(t *testing.T) {
	s := newSim(t, 1, 4, Limits{Horizon: horizon})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("1")})
	s.change(s.nodes[0], Put{Key: oldKey, Delete: true})
	s.run(5 * time.Second)
	s.nodes[3].clock = 365 * 24 * time.Hour
	s.run(2 * time.Minute)
	if s.nodes[3].engine.Stats().Tombstones != 1 {
		t.Error("a wrong clock expired the tombstone")
	}
	if _, _, err := s.nodes[3].engine.Prepare(s.local(s.nodes[3]), []Put{{Key: newKey}}); err == nil ||
		!strings.Contains(err.Error(), "clock") {
		t.Errorf("a write with a wrong clock: %v", err)
	}
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte("2")})
	s.run(time.Second)
	if !s.live(3, newKey) {
		t.Error("a node with a wrong clock misses changes")
	}
	s.nodes[3].clock = 0
	s.run(2 * time.Minute)
	s.change(s.nodes[3], Put{Key: newKey, Body: []byte("3")})
	s.run(time.Second)
	if r := s.nodes[0].engine.Record(newKey); string(r.Body) != "3" {
		t.Error("a write after the clock was corrected does not spread")
	}
}

// TestClone checks that a node and a copy started from its disk do not raise their epochs forever.
func TestClone(t *testing.T) {
	s := trio(t)
	s.nodes[2].items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("original")}}
	s.step(s.nodes[2], Own{Items: s.nodes[2].items})
	s.run(3 * time.Second)
	clone := &simNode{i: 3, id: s.nodes[2].id, disk: map[string]Op{},
		items: []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "b"}, []byte("clone")}}}
	for k, op := range s.nodes[2].disk {
		clone.disk[k] = op
	}
	s.nodes = append(s.nodes, clone)
	s.start(clone)
	s.run(30 * time.Second)
	st := s.nodes[2].engine.Stats()
	if !st.Cloned && !clone.engine.Stats().Cloned {
		t.Error("neither the node nor its clone reports the duplicate identity")
	}
	root, epoch := st.Root, s.nodes[0].engine.Manifest(clone.id).Epoch()
	s.run(time.Minute)
	for _, n := range s.nodes {
		if n.engine.Stats().Root != root || n.engine.Manifest(clone.id).Epoch() != epoch {
			t.Errorf("node %d: the two still raise their epochs", n.i)
		}
	}
}

// TestRestoredDisk checks that a node whose disk and clock were set back takes an epoch above the
// one that its peers know, and reports it.
func TestRestoredDisk(t *testing.T) {
	s := trio(t)
	n := s.nodes[2]
	early := maps.Clone(n.disk)
	n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("of a later day")}}
	for range 2 {
		s.crash(n)
		s.start(n)
		s.run(10 * time.Second)
	}
	s.crash(n)
	n.disk, n.clock = early, -24*time.Hour
	n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("now")}}
	s.start(n)
	s.run(10 * time.Second)
	for _, o := range s.nodes {
		if err := s.verifyOwn(o); err != nil {
			t.Error(err)
		}
	}
	if n.engine.Stats().Cloned || !slices.ContainsFunc(n.notes, func(x Note) bool { return x.What == "epoch" }) {
		t.Errorf("cloned %v, notes %v", n.engine.Stats().Cloned, n.notes)
	}
}

// TestCommitMeetsALaterVersion receives a greater version during the disk write of a local change.
// The greater version is on disk in the end, and the local change is a conflict, also after a
// restart.
func TestCommitMeetsALaterVersion(t *testing.T) {
	s := trio(t)
	n := s.nodes[0]
	records, ops, err := n.engine.Prepare(s.local(n), []Put{{Key: newKey, Body: []byte("mine")}})
	if err != nil {
		t.Fatal(err)
	}
	s.run(time.Millisecond)
	s.change(s.nodes[1], Put{Key: newKey, Body: []byte("theirs")})
	s.run(200 * time.Millisecond)
	n.durable(ops)
	s.step(n, Committed{records})
	s.run(200 * time.Millisecond)
	s.isolate(0)
	s.crash(n)
	s.start(n)
	if r := n.engine.Record(newKey); string(r.Body) != "theirs" {
		t.Errorf("after a restart %q is in force", r.Body)
	}
	if c := n.engine.Conflicts(); len(c) != 1 || string(c[0].Record.Body) != "mine" || c[0].Relation != Concurrent {
		t.Errorf("conflicts after a restart: %v", c)
	}
}

// TestHostilePeer checks that a peer with the pool's key cannot exceed any limit or disturb other
// nodes, whatever it sends.
func TestHostilePeer(t *testing.T) {
	s := trio(t)
	n := s.nodes[0]
	id := NodeID{66}
	s.step(n, PeerUp{Member: "evil", Node: id, Features: Features})
	heads := func(i int) (out []Head) {
		for j := range 4096 {
			out = append(out,
				Head{Slot: ident.Sum("x", []byte(fmt.Sprint(i, j))), Version: Version{Order: 1 << 60, Digest: Hash{1}}})
		}
		return out
	}
	random := s.rng
	for i := range 80 {
		m := message{From: "evil", Agreed: uint64(s.now.UnixMilli()), Have: heads(i), Leaves: []Leaves{{Heads: heads(i)}},
			Sums: []Sums{{Parts: [16]uint64{random.Uint64(), random.Uint64()}}}}
		for range 30000 {
			m.Want = append(m.Want, Slot{byte(random.IntN(256))})
		}
		big, err := Manifest{Node: NodeID{byte(i), 9}, Order: record.MakeOrder(uint64(s.now.Unix())+uint64(i), 1),
			Entries: []Entry{{Key: Key{Kind: "D", Mesh: "m", Name: "x"}, Hash: BodyHash{byte(i)}}}}.Seal(nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Manifests = append(m.Manifests, big)
		s.step(n, Received{m.encode()})
		garbage := m.encode()[:2000]
		for range 20 {
			garbage[1+random.IntN(len(garbage)-1)] = byte(random.IntN(256))
		}
		s.step(n, Received{garbage})
		s.run(5 * time.Millisecond)
	}
	st := n.engine.Stats()
	if st.Wants > maxWants || st.Pending > maxPending || st.Refused > maxRefused || st.Pulls > pullsAll {
		t.Errorf("limits are exceeded: %+v", st)
	}
	s.change(s.nodes[1], Put{Key: newKey, Body: []byte("x")})
	s.run(time.Second)
	if !s.live(0, newKey) || !s.live(2, newKey) {
		t.Error("a change of another node does not arrive")
	}
	s.step(n, PeerDown{"evil"})
	s.run(time.Minute)
	if st := n.engine.Stats(); st.Wants+st.Pending+st.Pulls > 0 {
		t.Errorf("the engine still waits for a peer that is gone: %+v", st)
	}
}

// TestAgreementUnderLoad checks that nodes detect that they are up to date under constant changes,
// when roots are rarely equal.
func TestAgreementUnderLoad(t *testing.T) {
	s := trio(t)
	s.loss = 0.3
	for i := range 3000 {
		s.change(s.nodes[i%3], Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i % 50)}, Body: []byte(fmt.Sprint(i))})
		s.run(10 * time.Millisecond)
	}
	for _, n := range s.nodes {
		if d := s.now.Sub(n.engine.Stats().Agreed); d > 15*time.Second {
			t.Errorf("node %d has agreed %v ago", n.i, d)
		}
	}
}

// TestEpochInTheFuture checks that the greatest possible epoch is rejected from another node.
func TestEpochInTheFuture(t *testing.T) {
	s := trio(t)
	n := s.nodes[2]
	m, err := Manifest{Node: n.id, Order: 1<<64 - 1}.Seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range s.nodes {
		s.step(o, Received{(&message{From: s.nodes[0].member(), Manifests: []*Manifest{m}}).encode()})
	}
	n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("x")}}
	s.step(n, Own{Items: n.items})
	s.run(3 * time.Second)
	for _, o := range s.nodes {
		if err := s.verifyOwn(o); err != nil {
			t.Error(err)
		}
	}
}
