package engine

import (
	"testing"
	"time"
)

// TestIdentityAfterClone starts a copy of a node, until both stop to publish. When the copy takes
// another ID, both publish their items, and all nodes have the items of both.
func TestIdentityAfterClone(t *testing.T) {
	s := trio(t)
	original := s.nodes[2]
	original.items = []OwnItem{{Key: Key{Kind: "D", Mesh: "m", Name: "a"}, Body: []byte("original")}}
	s.step(original, Own{Items: original.items})
	s.run(3 * time.Second)
	clone := &simNode{i: 3, id: original.id, disk: map[string]Op{},
		items: []OwnItem{{Key: Key{Kind: "D", Mesh: "m", Name: "b"}, Body: []byte("clone")}}}
	for k, op := range original.disk {
		clone.disk[k] = op
	}
	s.nodes = append(s.nodes, clone)
	s.start(clone)
	s.run(10 * time.Second)
	if !original.engine.Cloned() && !clone.engine.Cloned() {
		t.Error("neither process has stopped to publish")
	}
	id := NodeID{77}
	epoch := clone.engine.Stats().Epoch
	s.step(clone, Identity{Node: id})
	if clone.engine.Self() != id || clone.engine.Stats().Epoch <= epoch || clone.engine.Cloned() {
		t.Errorf("the copy has the ID %s and epoch %d after %d", clone.engine.Self(), clone.engine.Stats().Epoch, epoch)
	}
	former := clone.id
	clone.id = id
	for _, n := range s.nodes { // they meet under the new name
		if n != clone {
			s.step(n, PeerUp{Member: clone.member(), Node: id, Features: Features})
		}
	}
	s.step(original, Identity{Node: former})
	s.run(10 * time.Second)
	for _, n := range s.nodes {
		for owner, want := range map[NodeID]string{former: "a", id: "b"} {
			m := n.engine.Manifest(owner)
			if m == nil || len(m.Entries) != 1 || m.Entries[0].Key.Name != want {
				t.Errorf("node %d: the manifest of %s is %+v", n.i, owner, m)
			}
		}
	}
}
