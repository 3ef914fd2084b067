package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var meshKey, inMesh = Key{Kind: "Mesh", Name: "m"}, Key{Kind: "K", Mesh: "m", Name: "x"}

// meshes returns three nodes with a mesh and a resource in it.
func meshes(t testing.TB, seed uint64) *sim {
	s := newSim(t, seed, 3, Limits{Horizon: horizon})
	s.container = "Mesh"
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.change(s.nodes[0], Put{Key: meshKey, Body: []byte("mesh")}, Put{Key: inMesh, Body: []byte("x")})
	s.run(5 * time.Second)
	return s
}

// deletion returns a deletion of the mesh that no node has checked.
func (s *sim) deletion() *Record {
	r, err := Successor(s.now, s.nodes[0].engine.Record(meshKey), Put{Key: meshKey, Delete: true},
		Origin{Node: NodeID{66}})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestMeshDeletionIsHeld sends the deletion of a mesh with a resource. All nodes keep the mesh,
// also over restarts, and delete it when the resource is gone. Nodes refuse such a deletion as a
// change.
func TestMeshDeletionIsHeld(t *testing.T) {
	s := meshes(t, 1)
	_, _, err := s.nodes[1].engine.Prepare(s.local(s.nodes[1]), []Put{{Key: meshKey, Delete: true}})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), inMesh.String()) {
		t.Errorf("a deletion of a mesh with resources: %v", err)
	}
	s.step(s.nodes[0], Received{(&message{From: "x", Records: []*Record{s.deletion()}}).encode()})
	s.run(20 * time.Second)
	for range 2 {
		for i, n := range s.nodes {
			if held := n.engine.Held(); !s.live(i, meshKey) || len(held) != 1 || held[0].Key != meshKey {
				t.Errorf("node %d: the mesh is in force: %v, held: %v", i, s.live(i, meshKey), held)
			}
			s.restart(n)
		}
		s.join()
		s.run(10 * time.Second)
	}
	s.change(s.nodes[2], Put{Key: inMesh, Delete: true})
	s.run(20 * time.Second)
	for i, n := range s.nodes {
		if s.live(i, meshKey) || len(n.engine.Held()) != 0 || n.engine.Root() != s.nodes[0].engine.Root() {
			t.Errorf("node %d: the mesh is in force: %v", i, s.live(i, meshKey))
		}
	}
}

// TestMeshAndItemsAtOnce checks that a change may delete a mesh and all of its resources, and that
// items of nodes count.
func TestMeshAndItemsAtOnce(t *testing.T) {
	s := meshes(t, 1)
	n := s.nodes[1]
	n.items = []OwnItem{{Key{Kind: "Dataplane", Mesh: "m", Name: "a"}, []byte("x")}}
	s.step(n, Own{Items: n.items})
	s.run(5 * time.Second)
	all := []Put{{Key: meshKey, Delete: true}, {Key: inMesh, Delete: true}}
	if _, _, err := s.nodes[0].engine.Prepare(s.local(s.nodes[0]), all); !errors.Is(err, ErrInUse) {
		t.Errorf("a deletion of a mesh with the item of another node: %v", err)
	}
	n.items = []OwnItem{}
	s.step(n, Own{Items: n.items})
	s.run(5 * time.Second)
	s.change(s.nodes[0], all...)
	s.run(5 * time.Second)
	for i := range s.nodes {
		if s.live(i, meshKey) {
			t.Errorf("node %d: the mesh is in force", i)
		}
	}
}

// TestMeshSeeds deletes a mesh on some nodes while others create resources in it, with partitions,
// losses, and restarts. In the end all nodes agree: a mesh without resources is deleted, and the
// deletion of one with resources is held.
func TestMeshSeeds(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*seeds)/5; seed++ {
		s := meshes(t, seed)
		s.loss = []float64{0, 0.3}[s.rng.IntN(2)]
		for range 30 {
			n := s.nodes[s.rng.IntN(3)]
			k := Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(s.rng.IntN(2))}
			p := Put{Key: k, Body: []byte(fmt.Sprint(s.rng.IntN(100)))}
			switch s.rng.IntN(8) {
			case 0, 1:
				p = Put{Key: []Key{k, inMesh}[s.rng.IntN(2)], Delete: true}
			case 2, 3:
				p = Put{Key: meshKey, Delete: true}
			case 4:
				p.Key = meshKey
			case 5:
				s.isolate(s.rng.IntN(3))
			case 6:
				clear(s.cut)
				s.restart(n)
			}
			if records, ops, err := n.engine.Prepare(s.local(n), []Put{p}); err == nil {
				n.durable(ops)
				s.step(n, Committed{records})
			}
			s.run(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
		}
		clear(s.cut)
		s.loss = 0
		s.run(2 * time.Minute)
		for _, n := range s.nodes {
			if n.engine.Root() != s.nodes[0].engine.Root() {
				t.Fatalf("seed %d: node %d does not agree\n%s\n%s", seed, n.i, s.dump(n), s.dump(s.nodes[0]))
			}
			used := len(n.engine.belonging("m"))
			if r := n.engine.Record(meshKey); used != n.engine.holds.contents["m"] || used > 0 && r != nil && r.Deleted ||
				used == 0 && len(n.engine.Held()) > 0 {
				t.Fatalf("seed %d: node %d: %d resources, the mesh is %+v, held %v", seed, n.i, used, r, n.engine.Held())
			}
		}
	}
}
