package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/limits"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// TestConflictIsResolved checks that nodes list a conflict until a write has the same content, and
// that restarts do not lose it.
func TestConflictIsResolved(t *testing.T) {
	s := trio(t)
	s.isolate(0)
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte("early")})
	s.run(time.Second)
	s.change(s.nodes[1], Put{Key: newKey, Body: []byte("late")})
	s.run(time.Second)
	clear(s.cut)
	s.run(10 * time.Second)
	n := s.nodes[0]
	s.crash(n)
	s.start(n)
	s.run(3 * time.Second)
	c := n.engine.Conflicts()
	if len(c) != 1 || string(c[0].Record.Body) != "early" || c[0].Relation != Concurrent {
		t.Fatalf("conflicts: %v", c)
	}
	s.change(s.nodes[2], Put{Key: newKey, Body: c[0].Record.Body})
	s.run(3 * time.Second)
	for _, n := range s.nodes {
		if string(n.engine.Record(newKey).Body) != "early" {
			t.Errorf("node %d: in force is %q", n.i, n.engine.Record(newKey).Body)
		}
	}
	if c := n.engine.Conflicts(); len(c) != 0 {
		t.Errorf("a conflict whose content is in force is still listed: %v", c)
	}
}

// TestForget checks that a forgotten node is removed everywhere, and returns if it is still alive.
func TestForget(t *testing.T) {
	s := trio(t)
	n := s.nodes[2]
	n.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("x")}}
	s.step(n, Own{Items: n.items})
	s.run(3 * time.Second)
	s.crash(n)
	s.run(5 * time.Second)
	s.step(s.nodes[0], Forget{n.id})
	s.run(3 * time.Second)
	for i := range 2 {
		if m := s.nodes[i].engine.Manifest(n.id); !m.Forgotten || len(m.Entries) > 0 {
			t.Errorf("node %d did not forget the node: %+v", i, m)
		}
	}
	s.start(n)
	s.run(10 * time.Second)
	for i := range 2 {
		if err := s.verifyOwn(s.nodes[i]); err != nil {
			t.Error(err)
		}
	}
	s.step(n, Own{Items: nil, Leaving: true})
	s.run(3 * time.Second)
	if sv := s.nodes[0].engine.Serving(n.id); sv != Removed {
		t.Errorf("a node that has left is %v", sv)
	}
}

// TestBounds checks that the engine rejects and counts entries above a limit, and stays below all
// limits.
func TestBounds(t *testing.T) {
	e, _ := New(Config{Self: NodeID{1}, Member: "a", Random: func(int) int { return 0 },
		Limits: Limits{WriterRecords: 50, Parked: 5, Conflicts: 10}}, at(simStart), nil)
	e.Step(at(simStart), PeerUp{Member: "b", Node: NodeID{2}, Features: Features})
	push := func(records ...*Record) {
		m := message{From: "b", Records: records}
		e.Step(at(simStart), Received{m.encode()})
	}
	for i := range 200 {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(simStart), Writer{7}, false, "",
			[]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		push(r)
		r, err = successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(simStart.Add(time.Hour)),
			Writer{byte(i)}, false, "", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		push(r)
	}
	for i := range 200 {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i % 40)}, nil, record.Wall(simStart)-HLC(i), Writer{8},
			false, "", []byte(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		push(r)
	}
	st := e.Stats()
	if st.Entries != limits.Received(50) || st.Parked != 5 || st.Conflicts > 10 ||
		st.Counters["refused: writer full"] == 0 {
		t.Errorf("limits are exceeded: %+v", st)
	}
	for range 20 {
		var many []*Record
		for i := range 400 {
			r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(simStart), Writer{9}, false, "",
				[]byte("y"))
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, r)
		}
		push(many...)
	}
	if e.Stats().Counters["refused: too many from a peer"] == 0 {
		t.Error("a flood from one peer is accepted")
	}
	if _, _, err := e.Prepare(at(simStart),
		[]Put{{Key: Key{Kind: "K", Mesh: "m", Name: "big"}, Body: make([]byte, MaxRecord)}}); err == nil {
		t.Error("a record that is too large is accepted")
	}
}
