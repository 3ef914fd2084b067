package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

func ownItems(n int, body string) (out []OwnItem) {
	for i := range n {
		out = append(out, OwnItem{Key{Kind: "Dataplane", Mesh: "default", Name: fmt.Sprintf("web-7d4b9c-%05d", i)},
			[]byte(fmt.Sprint(body, " of ", i))})
	}
	return out
}

// itemsOf returns the items of node o that node n serves, by name.
func (s *sim) itemsOf(n, o int) map[string]string {
	e, out := s.nodes[n].engine, map[string]string{}
	if m := e.Manifest(s.nodes[o].id); m != nil {
		for _, i := range e.Items(m) {
			out[i.Key.Name] = string(i.Body)
		}
	}
	return out
}

func (s *sim) publish(n int, items []OwnItem) {
	s.nodes[n].items = items
	s.step(s.nodes[n], Own{Items: items})
}

func named(items []OwnItem) map[string]string {
	out := map[string]string{}
	for _, i := range items {
		out[i.Key.Name] = string(i.Body)
	}
	return out
}

func (s *sim) verifyShards(t *testing.T, o int, want []OwnItem) {
	t.Helper()
	for i, n := range s.nodes {
		if got := s.itemsOf(i, o); !maps.Equal(got, named(want)) {
			t.Errorf("node %d serves %d items of node %d, want %d", i, len(got), o, len(want))
		}
		if n.engine.tree.Sum != s.nodes[o].engine.tree.Sum || n.engine.tree.Sum != rebuilt(n.engine) {
			t.Errorf("the root of node %d differs", i)
		}
		f := n.engine.Manifest(s.nodes[o].id)
		shards := 0
		for _, en := range n.engine.entries {
			if en.manifest != nil && en.manifest.Node == f.Node {
				shards++
			}
		}
		if shards != f.Shards {
			t.Errorf("node %d stores %d shards, want %d", i, shards, f.Shards)
		}
	}
}

// TestManyItems checks that 5,000 items of a node reach the others within 2 s, and that a change of
// one item sends and stores only its shard.
func TestManyItems(t *testing.T) {
	s := newSim(t, 1, 3, Limits{})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(2 * time.Second)
	items := ownItems(5000, strings.Repeat("x", 500))
	s.publish(0, items)
	s.run(2 * time.Second)
	s.verifyShards(t, 0, items)
	if f := s.nodes[1].engine.Manifest(s.nodes[0].id); f.Shards != 64 {
		t.Errorf("%d shards, want 64", f.Shards)
	}

	s.run(10 * time.Second)
	clear(s.sent)
	items = slices.Clone(items)
	items[1234].Body = []byte("changed")
	act := s.nodes[0].engine.Step(s.local(s.nodes[0]), Own{Items: items})
	s.nodes[0].items = items
	stored := 0
	for _, op := range act.Write {
		stored += len(op.Value)
	}
	s.do(s.nodes[0], act)
	s.run(5 * time.Second)
	s.verifyShards(t, 0, items)
	whole := 0
	for i := range 64 {
		whole += len(s.nodes[0].engine.entries[owner{ID: s.nodes[0].id}.Slot(i)].manifest.Encoded())
	}
	total := s.sent["packets"] + s.sent["streams"]
	t.Logf("all shards have %d bytes; a change of one item stored %d bytes and sent %d to two nodes", whole, stored, total)
	if stored > whole/32 || total > whole/10 {
		t.Error("a change of one item stored or sent unchanged shards")
	}
	before := s.nodes[0].engine.Root()
	if act := s.nodes[0].engine.Step(s.local(s.nodes[0]), Own{Items: slices.Clone(items)}); len(act.Write) > 0 ||
		s.nodes[0].engine.Root() != before {
		t.Error("publishing the same items changed the state")
	}
}

// TestShardsGrowAndShrink checks that items that are published before and after a change of the
// number of shards are served at all times on all nodes, that no shard of an earlier number is
// left, and that a restart restores the set.
func TestShardsGrowAndShrink(t *testing.T) {
	for seed := range uint64(20) {
		s := newSim(t, seed+1, 3, Limits{ShardItems: 4})
		s.loss, s.dup = []float64{0, 0.3}[seed%2], 0.2
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		previous := ownItems(3, "body")
		s.publish(0, previous)
		s.run(30 * time.Second)
		for step, count := range []int{40, 9, 200, 41, 2, 0, 17} {
			items := ownItems(count, "body")
			common := min(len(previous), count)
			s.delivered = func(n *simNode) {
				if got := s.itemsOf(n.i, 0); len(got) < common {
					t.Errorf("seed %d, step %d: node %d serves %d items, at least %d are published before and after",
						seed, step, n.i, len(got), common)
				}
			}
			s.publish(0, items)
			s.run(time.Duration(s.rng.IntN(4)) * 10 * time.Second)
			if seed%3 == 0 { // a restart in the middle of the change
				s.crash(s.nodes[1])
				s.start(s.nodes[1])
			}
			s.run(40 * time.Second)
			s.delivered = nil
			s.verifyShards(t, 0, items)
			previous = items
		}
		if t.Failed() {
			return
		}
	}
}

// TestIncompleteSetIsNotServed checks that a node serves the previous set until all shards of the
// new one are present, requests the missing shards, and drops shards of an earlier set.
func TestIncompleteSetIsNotServed(t *testing.T) {
	owner, _ := New(Config{Self: NodeID{1}, Member: "owner", Random: func(int) int { return 0 },
		Limits: Limits{ShardItems: 4}}, at(simStart), nil)
	publish := func(n int) []*Manifest {
		owner.Step(at(simStart), Own{Items: ownItems(n, "body")})
		var out []*Manifest
		for _, en := range owner.sets[owner.own.owner].shards {
			out = append(out, en.manifest)
		}
		return out
	}
	one, four, two := publish(2), publish(16), publish(4)
	if len(one) != 1 || len(four) != 4 || len(two) != 1 {
		t.Fatalf("%d, %d and %d shards", len(one), len(four), len(two))
	}
	reader, _ := New(Config{Self: NodeID{2}, Member: "reader", Random: func(int) int { return 0 }}, at(simStart), nil)
	reader.Step(at(simStart), PeerUp{Member: "owner", Node: NodeID{1}, Features: Features})
	give := func(list ...*Manifest) Actions {
		m := message{From: "owner", Manifests: list}
		for _, i := range ownItems(16, "body") {
			m.Bodies = append(m.Bodies, i.Body)
		}
		return reader.Step(at(simStart), Received{m.encode()})
	}
	served := func(want int) {
		t.Helper()
		n := 0
		if m := reader.Manifest(NodeID{1}); m != nil {
			n = len(reader.Items(m))
		}
		if n != want || reader.tree.Sum != rebuilt(reader) {
			t.Errorf("the reader serves %d items, want %d", n, want)
		}
	}
	give(one...)
	served(2)
	give(four[3], four[0], four[1])
	served(2)
	requested := false
	for _, x := range reader.Step(at(simStart.Add(pullSlow+time.Second)), Tick{}).Send {
		m, err := decodeMessage(x.Data)
		requested = requested || err == nil && slices.Equal(m.Want, []Slot{four[2].Slot()})
	}
	if !requested {
		t.Error("the reader has not requested the missing shard")
	}
	give(four[2])
	served(16)
	give(one...) // late
	served(16)
	give(two...)
	served(4)
	give(four...) // late
	served(4)
	if len(reader.pending) > 0 || len(reader.staged) > 0 {
		t.Error("shards of an earlier set are pending")
	}
}

// TestForgetDropsAllShards checks that forget and leave apply to all shards of a node, and that the
// node publishes all of them when it returns.
func TestForgetDropsAllShards(t *testing.T) {
	s := newSim(t, 1, 3, Limits{ShardItems: 4})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	items := ownItems(50, "body")
	s.publish(2, items)
	s.run(5 * time.Second)
	s.crash(s.nodes[2])
	s.run(10 * time.Second)
	s.step(s.nodes[0], Forget{s.nodes[2].id})
	s.run(5 * time.Second)
	for i, n := range s.nodes[:2] {
		if len(s.itemsOf(i, 2)) > 0 || len(n.engine.bodies) > 0 || len(n.engine.entries) != 1 {
			t.Errorf("node %d stores items of a forgotten node", i)
		}
	}
	s.start(s.nodes[2])
	s.run(20 * time.Second)
	s.verifyShards(t, 2, items)
	s.step(s.nodes[2], Own{Leaving: true})
	s.run(5 * time.Second)
	s.verifyShards(t, 2, nil)
	if sv := s.nodes[0].engine.Serving(s.nodes[2].id); sv != Removed {
		t.Errorf("a node that has left: %v", sv)
	}
}

// TestLegacyPeersGetOneManifest checks that a node does not split items that fit into one manifest
// while a peer does not support shards.
func TestLegacyPeersGetOneManifest(t *testing.T) {
	e, _ := New(Config{Self: NodeID{1}, Member: "self", Random: func(int) int { return 0 }}, at(simStart), nil)
	e.Step(at(simStart), PeerUp{Member: "old", Node: NodeID{2}, Features: 0})
	for _, c := range []struct {
		items, shards int
		peer          Event
	}{
		{500, 1, Tick{}}, {5000, 64, Tick{}}, {500, 1, Tick{}},
		{501, 4, PeerUp{Member: "old", Node: NodeID{2}, Features: Features}},
	} {
		e.Step(at(simStart), c.peer)
		e.Step(at(simStart), Own{Items: ownItems(c.items, "body")})
		if m := e.Manifest(NodeID{1}); m.Shards != c.shards || len(e.Items(m)) != c.items {
			t.Errorf("%d items: %d shards with %d items, want %d", c.items, m.Shards, len(e.Items(m)), c.shards)
		}
	}
}

func TestCheckOwnNamesTheLimit(t *testing.T) {
	large := OwnItem{Key{Kind: "K", Mesh: "m", Name: "large"}, make([]byte, MaxBody+1)}
	many := ownItems(MaxOwnItems, "")
	for i := range many {
		many[i].Body = make([]byte, 2049)
	}
	for want, items := range map[string][]OwnItem{
		"K m/large has 16385 bytes, at most 16384": {large},
		"16385 items, at most 16384":               ownItems(MaxOwnItems+1, ""),
		"bytes, at most 33554432":                  many,
		"is listed twice":                          append(ownItems(2, ""), ownItems(1, "")...),
		"kind and name are required":               {{}},
	} {
		if err := CheckOwn(items); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := CheckOwn(ownItems(MaxOwnItems, "body")); err != nil {
		t.Error(err)
	}
}

// TestShardFieldOfMessages checks that earlier builds do not see shards and directories: those
// travel in a field that such builds ignore.
func TestShardFieldOfMessages(t *testing.T) {
	for _, m := range []Manifest{{Node: NodeID{1}, Order: 5, Index: 1, Shards: 2},
		{Node: NodeID{1}, Order: 5, Directory: true, Detail: "commit 1234"}, {Node: NodeID{1}, Order: 5}} {
		x, err := m.Seal(nil)
		if err != nil {
			t.Fatal(err)
		}
		b := (&message{From: "a", Manifests: []*Manifest{x}}).encode()
		got, err := decodeMessage(b)
		if err != nil || len(got.Manifests) != 1 || !bytes.Equal(got.Manifests[0].Encoded(), x.Encoded()) {
			t.Errorf("%+v: %v", m, err)
		}
		old := wire.AppendBytes([]byte{protocolVersion, 0x0a, 1, 'a'}, messageManifest, x.Encoded())
		if _, err := decodeMessage(old); (err != nil) != x.Extended() {
			t.Errorf("%+v in the field of earlier builds: %v", m, err)
		}
	}
}
