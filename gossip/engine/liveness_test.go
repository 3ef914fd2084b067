package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// deadNode returns three nodes of which node 2, with an item, died a minute ago.
func deadNode(t *testing.T) (*sim, *simNode) {
	s := trio(t)
	n := s.nodes[2]
	n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("x")}}
	s.step(n, Own{Items: n.items})
	s.run(3 * time.Second)
	s.crash(n)
	s.run(time.Minute)
	return s, n
}

func (s *sim) restart(n *simNode) {
	s.run(time.Second) // all writes are on disk
	s.crash(n)
	s.start(n)
}

// TestDeathOutlivesARestart checks that a node that starts does not serve the items of a node that
// it knows to be dead, until that node is heard. A node that was alive at shutdown is served.
func TestDeathOutlivesARestart(t *testing.T) {
	s, dead := deadNode(t)
	n := s.nodes[0]
	for range 2 {
		s.restart(n)
		if d, o := n.engine.Serving(dead.id), n.engine.Serving(s.nodes[1].id); d != Removed || o != Serve {
			t.Errorf("after a restart, the dead node is %v, a live one %v", d, o)
		}
		s.join()
		s.run(time.Minute)
		if d := n.engine.Serving(dead.id); d != Removed {
			t.Errorf("a minute after a restart, the dead node is %v", d)
		}
	}
	s.start(dead)
	s.run(10 * time.Second)
	if d := n.engine.Serving(dead.id); d != Serve {
		t.Errorf("the node that has returned is %v", d)
	}
	s.restart(n)
	if d := n.engine.Serving(dead.id); d != Serve {
		t.Errorf("after another restart, the node that has returned is %v", d)
	}
}

// TestRecentDeathOutlivesARestart checks that a node that died shortly before a restart is
// unhealthy for the rest of its time.
func TestRecentDeathOutlivesARestart(t *testing.T) {
	s := trio(t)
	n, dead := s.nodes[0], s.nodes[2]
	dead.items = []OwnItem{}
	s.step(dead, Own{Items: dead.items})
	s.run(3 * time.Second)
	s.crash(dead)
	for n.engine.Serving(dead.id) == Serve {
		s.run(time.Second)
	}
	s.run(5 * time.Second)
	s.restart(n)
	s.join()
	if d := n.engine.Serving(dead.id); d != Unhealthy {
		t.Errorf("7 s after its death, the node is %v", d)
	}
	s.run(25 * time.Second)
	if d := n.engine.Serving(dead.id); d != Removed {
		t.Errorf("32 s after its death, the node is %v", d)
	}
}

// TestHoldOutlivesARestart checks that nodes that died at once stay in use after a restart, until
// the hold ends an hour after their deaths.
func TestHoldOutlivesARestart(t *testing.T) {
	s := trio(t)
	n := s.nodes[0]
	for _, o := range s.nodes {
		s.step(o, Own{Items: []OwnItem{}})
	}
	s.run(3 * time.Second)
	s.isolate(0)
	s.run(30 * time.Minute)
	s.restart(n)
	s.run(20 * time.Minute)
	for _, o := range s.nodes[1:] {
		if d := n.engine.Serving(o.id); d != Unhealthy || !n.engine.Hold() {
			t.Errorf("50 min after the death of both others, node %d is %v, hold %v", o.i, d, n.engine.Hold())
		}
	}
	s.run(11 * time.Minute)
	for _, o := range s.nodes[1:] {
		if d := n.engine.Serving(o.id); d != Removed || n.engine.Hold() {
			t.Errorf("61 min after the death of both others, node %d is %v, hold %v", o.i, d, n.engine.Hold())
		}
	}
	clear(s.cut)
	s.run(10 * time.Second)
	for _, o := range s.nodes[1:] {
		if d := n.engine.Serving(o.id); d != Serve {
			t.Errorf("node %d has returned and is %v", o.i, d)
		}
	}
}

// TestDeadNodesAreForgotten checks that a dead node is forgotten 24 h after its death, although the
// others restart and its death was held, and that it may return.
func TestDeadNodesAreForgotten(t *testing.T) {
	s := trio(t)
	n := s.nodes[0]
	for _, o := range s.nodes {
		s.step(o, Own{Items: []OwnItem{}})
	}
	s.run(3 * time.Second)
	s.crash(s.nodes[1])
	s.crash(s.nodes[2])
	s.run(30 * time.Second)
	for range 3 {
		s.skip(470 * time.Minute)
		s.restart(n)
	}
	s.run(20 * time.Minute)
	for _, o := range s.nodes[1:] {
		if n.engine.Manifest(o.id).Forgotten {
			t.Errorf("node %d is forgotten less than 24 h after its death", o.i)
		}
	}
	s.skip(10 * time.Minute)
	s.run(time.Minute)
	for _, o := range s.nodes[1:] {
		if !n.engine.Manifest(o.id).Forgotten {
			t.Errorf("node %d is not forgotten 24 h after its death", o.i)
		}
	}
	for k := range n.disk {
		if strings.HasPrefix(k, bucketDeaths+"/") {
			t.Errorf("%q of a forgotten node is still on disk", k)
		}
	}
	for _, o := range s.nodes[1:] {
		o.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: fmt.Sprint(o.i)}, []byte("x")}}
		s.start(o)
	}
	s.run(20 * time.Second)
	for _, o := range s.nodes {
		if err := s.verifyOwn(o); err != nil {
			t.Error(err)
		}
	}
}

// TestForgottenAfterLongDowntime checks that a node that was down for days gives nodes that were
// dead before time to return.
func TestForgottenAfterLongDowntime(t *testing.T) {
	s, dead := deadNode(t)
	for _, n := range s.nodes[:2] {
		s.crash(n)
	}
	s.skip(72 * time.Hour)
	s.start(s.nodes[0])
	s.run(5 * time.Minute)
	s.start(dead)
	s.run(20 * time.Minute)
	for _, x := range s.nodes[0].notes {
		if x.What == "forgotten" {
			t.Errorf("a node that has returned was forgotten: %s", x.Text)
		}
	}
}

// TestHalvesThatForgotNodes checks that nodes that were forgotten in several long partitions
// publish their items again, and do not report a second node with their identity.
func TestHalvesThatForgotNodes(t *testing.T) {
	s := trio(t)
	for _, n := range s.nodes {
		n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: fmt.Sprint(n.i)}, []byte("x")}}
		s.step(n, Own{Items: n.items})
	}
	s.run(3 * time.Second)
	for range maxAdopted + 1 {
		s.isolate(2)
		s.run(30 * time.Second)
		s.skip(24 * time.Hour)
		s.run(time.Minute)
		if !s.nodes[0].engine.Manifest(s.nodes[2].id).Forgotten {
			t.Error("the unreachable node is not forgotten")
		}
		clear(s.cut)
		s.run(30 * time.Second)
		for _, n := range s.nodes {
			if err := s.verifyOwn(n); err != nil {
				t.Error(err)
			}
		}
	}
	for _, n := range s.nodes {
		if n.engine.Stats().Cloned || slices.ContainsFunc(n.notes, func(x Note) bool { return x.What == "epoch" }) {
			t.Errorf("node %d reports a second node with its identity: %v", n.i, n.notes)
		}
	}
}
