package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pool returns nodes that know each other.
func pool(t *testing.T, seed uint64, n int) *sim {
	s := newSim(t, seed, n, Limits{ShardItems: 4})
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(3 * time.Second)
	return s
}

// TestChecksWithoutPackets checks that a change reaches all nodes over streams when no packet and
// no probe gets through.
func TestChecksWithoutPackets(t *testing.T) {
	for _, size := range []int{100, 20000} {
		s := pool(t, 1, 5)
		s.noPackets, s.noAcks = true, true
		s.posted = func(x Send) {
			if m, err := decodeMessage(x.Data); err != nil ||
				!x.Stream && len(m.Want)+len(m.WantBody)+len(m.Sums)+len(m.Leaves) > 0 {
				t.Errorf("a message of a comparison is a packet: %+v, %v", m, err)
			}
		}
		began := s.now
		s.change(s.nodes[0], Put{Key: newKey, Body: []byte(strings.Repeat("x", size))})
		items := ownItems(30, strings.Repeat("x", size/10))
		s.publish(0, items)
		complete := func() bool {
			return !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.engine.Root() != s.nodes[0].engine.Root() })
		}
		for !complete() && s.now.Sub(began) < 3*time.Minute {
			s.run(time.Second)
		}
		t.Logf("%d bytes: %v", size, s.now.Sub(began))
		if !complete() || s.now.Sub(began) > 90*time.Second {
			t.Errorf("%d bytes: not on all nodes after %v", size, s.now.Sub(began))
		}
		s.verifyShards(t, 0, items)
		s.run(4 * time.Minute)
		for _, n := range s.nodes {
			for _, o := range s.nodes {
				if p := n.engine.Peer(o.member()); n != o &&
					(!p.Agrees || !p.Differs.IsZero() || s.now.Sub(p.Heard) > 4*time.Minute) {
					t.Errorf("node %d about node %d: %+v", n.i, o.i, p)
				}
			}
		}
	}
}

// TestDifferences checks that a lasting difference is visible within 30 s on both sides, with the
// keys and the reasons, and is gone when it ends.
func TestDifferences(t *testing.T) {
	for _, acks := range []bool{true, false} {
		s := newSim(t, 1, 3, Limits{})
		s.noAcks = !acks
		s.start(s.nodes[0])
		s.start(s.nodes[1])
		s.limits.WriterRecords = 5
		s.start(s.nodes[2])
		s.limits = Limits{}
		s.join()
		s.run(10 * time.Second)
		began := s.now
		for i := range 5 + listedDiffs + 3 {
			s.change(s.nodes[0], Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, Body: []byte("x")})
		}
		state := func(n, o int) PeerState { return s.nodes[n].engine.Peer(s.nodes[o].member()) }
		for range 45 {
			s.run(time.Second)
			if p := state(0, 1); !p.Differs.IsZero() && s.now.Sub(p.Differs) > 15*time.Second {
				t.Errorf("acks %v: node 0 about node 1: %+v", acks, p)
			}
		}
		if a, b := state(0, 2).Differs, state(2, 0).Differs; a.IsZero() || b.IsZero() || a.Sub(began) > 30*time.Second ||
			b.Sub(began) > 30*time.Second {
			t.Errorf("acks %v: the difference is not visible: %v, %v, began %v", acks, a, b, began)
		}
		for _, c := range []struct {
			n, o   int
			reason string
		}{{0, 2, "only here"}, {2, 0, "refused here: writer full"}, {1, 2, "only here"}} {
			p := state(c.n, c.o)
			for _, d := range p.Differences {
				if d.Reason != c.reason || d.Key.Kind != "K" || d.String() != d.Key.String() {
					t.Errorf("acks %v: node %d about node %d: %v %q, want %q", acks, c.n, c.o, d, d.Reason, c.reason)
				}
			}
			if len(p.Differences) != listedDiffs {
				t.Errorf("acks %v: node %d about node %d: %d differences", acks, c.n, c.o, len(p.Differences))
			}
		}
		s.crash(s.nodes[2])
		s.start(s.nodes[2])
		s.join()
		s.run(45 * time.Second)
		for n := range 3 {
			for o := range 3 {
				if p := state(n, o); !p.Differs.IsZero() || len(p.Differences) > 0 {
					t.Errorf("acks %v: node %d about node %d after the end: %+v", acks, n, o, p)
				}
			}
		}
	}
}

// TestNoDifferenceUnderLoad checks that changes on their way are not reported as differences.
func TestNoDifferenceUnderLoad(t *testing.T) {
	for _, count := range []int{3, 12, 40} {
		s := pool(t, 1, count)
		s.loss = 0.1
		for i := range 600 {
			s.change(s.nodes[s.rng.IntN(count)],
				Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i % 50)}, Body: []byte(fmt.Sprint(i))})
			s.run(200 * time.Millisecond)
			if i%5 > 0 {
				continue
			}
			for _, n := range s.nodes {
				for _, o := range s.nodes {
					if p := n.engine.Peer(o.member()); !p.Differs.IsZero() && s.now.Sub(p.Differs) > 30*time.Second {
						t.Fatalf("%d nodes: node %d about node %d after %v: %+v, since %v", count, n.i, o.i, s.now.Sub(simStart), p,
							s.now.Sub(p.Differs))
					}
				}
			}
		}
	}
}

// TestDifferenceWithoutComparison checks that different roots are visible if no comparison is
// possible, and that a peer of an earlier build that ignores shards is not reported.
func TestDifferenceWithoutComparison(t *testing.T) {
	s := pool(t, 1, 3)
	s.noPackets, s.noStreams = true, true
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte("x")})
	s.run(30 * time.Second)
	about := s.nodes[1].member()
	if p := s.nodes[0].engine.Peer(about); p.Differs.IsZero() || s.now.Sub(p.Differs) < 20*time.Second {
		t.Errorf("the difference is not visible: %+v", p)
	}
	s.publish(0, ownItems(30, "body"))
	s.run(30 * time.Second)
	if p := s.nodes[0].engine.Peer(about); p.Differs.IsZero() {
		t.Errorf("the difference is not visible: %+v", p)
	}
	s.step(s.nodes[0], PeerUp{Member: about, Node: s.nodes[1].id, Features: 0})
	if p := s.nodes[0].engine.Peer(about); !p.Differs.IsZero() {
		t.Errorf("a peer of an earlier build: %+v", p)
	}
}
