package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestDirectories checks that a second node takes over a directory, that the items do not depend on
// the publisher, and that Forget removes them.
func TestDirectories(t *testing.T) {
	s := newSim(t, 1, 3, Limits{ShardItems: 4})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(2 * time.Second)
	dir := NodeID{0xd1}
	put := func(n int, detail string, items []OwnItem) {
		s.step(s.nodes[n], Own{Owner: dir, Name: "policies", Detail: detail, Items: items})
		s.run(5 * time.Second)
	}
	verify := func(detail string, want []OwnItem) {
		t.Helper()
		for _, n := range s.nodes {
			if !n.up {
				continue
			}
			list := n.engine.Directories()
			if len(list) != 1 || list[0].Detail != detail || list[0].Name != "policies" || list[0].Node != dir {
				t.Errorf("node %d lists %+v, want %q", n.i, list, detail)
				continue
			}
			got := map[string]string{}
			for _, i := range n.engine.Items(list[0]) {
				got[i.Key.Name] = string(i.Body)
			}
			if !maps.Equal(got, named(want)) {
				t.Errorf("node %d has %d items of the directory, want %d", n.i, len(got), len(want))
			}
			for _, note := range n.notes {
				if note.What == "cloned" {
					t.Errorf("node %d: %s", n.i, note.Text)
				}
			}
			if slices.ContainsFunc(n.engine.Nodes(), func(m *Manifest) bool { return m.Node == dir }) {
				t.Errorf("node %d lists the directory as a node", n.i)
			}
		}
	}
	s.nodes[0].clock = 8 * time.Second // the next publisher's clock is behind
	first := ownItems(30, "one")
	put(0, "commit 1", first)
	verify("commit 1", first)
	root := s.nodes[1].engine.Root()
	put(1, "commit 1", ownItems(30, "one")) // takes over without a change
	if s.nodes[1].engine.Root() != root {
		t.Error("a takeover with the same items published them again")
	}
	put(1, "commit 2", ownItems(30, "two"))
	verify("commit 2", ownItems(30, "two"))
	put(1, "commit 3", ownItems(2, "three"))
	verify("commit 3", ownItems(2, "three"))
	put(0, "commit 4", ownItems(60, "four"))
	verify("commit 4", ownItems(60, "four"))
	for i := range 20 { // within one second
		detail := fmt.Sprint("takeover ", i)
		s.step(s.nodes[i%2], Own{Owner: dir, Name: "policies", Detail: detail, Items: ownItems(60, "four")})
		s.run(40 * time.Millisecond)
		verify(detail, ownItems(60, "four"))
	}
	put(0, "commit 4", ownItems(60, "four"))
	s.crash(s.nodes[0])
	s.run(3 * time.Minute)
	verify("commit 4", ownItems(60, "four")) // no liveness
	s.crash(s.nodes[1])
	s.start(s.nodes[1])
	s.run(5 * time.Second)
	verify("commit 4", ownItems(60, "four"))
	s.step(s.nodes[1], Forget{dir})
	s.run(5 * time.Second)
	for _, n := range s.nodes[1:] {
		if len(n.engine.Directories()) > 0 || len(n.engine.bodies) > 0 {
			t.Errorf("node %d stores items of a directory that is no longer published", n.i)
		}
	}
	put(2, "commit 5", first)
	verify("commit 5", first)
}

// TestDirectoryWithTwoPublishers checks that all nodes agree on one publisher if two nodes publish
// a directory at the same time with the same epoch.
func TestDirectoryWithTwoPublishers(t *testing.T) {
	for _, counts := range [][2]int{{3, 3}, {2, 30}, {30, 2}, {30, 60}} {
		s := newSim(t, 1, 4, Limits{ShardItems: 4})
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		s.run(2 * time.Second)
		s.isolate(0, 1)
		dir := NodeID{0xd1}
		for i, n := range []*simNode{s.nodes[0], s.nodes[2]} {
			random := n.engine.cfg.Random
			n.engine.cfg.Random = func(int) int { return 0 }
			s.step(n, Own{Owner: dir, Items: ownItems(counts[i], n.member())})
			n.engine.cfg.Random = random
		}
		s.run(2 * time.Second)
		if a, b := s.nodes[1].engine.Directories()[0], s.nodes[3].engine.Directories()[0]; a.Epoch() != b.Epoch() {
			t.Fatal("the publishers selected different epochs")
		}
		clear(s.cut)
		s.run(30 * time.Second)
		first := s.nodes[0].engine
		for _, n := range s.nodes {
			m := n.engine.Directories()[0]
			items := n.engine.Items(m)
			if n.engine.tree.Sum != first.tree.Sum || len(items) != counts[0] && len(items) != counts[1] {
				t.Errorf("%v: node %d has %d items, or another root", counts, n.i, len(items))
			}
			for _, i := range items {
				if string(i.Body[:3]) != string(items[0].Body[:3]) {
					t.Errorf("%v: node %d has items of both publishers", counts, n.i)
				}
			}
		}
	}
}
