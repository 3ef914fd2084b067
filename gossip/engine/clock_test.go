package engine

import (
	"testing"
	"time"
)

// TestWallClockJumps sets the wall clock of a node in both directions. Timeouts, rounds of rumors,
// and liveness follow the monotonic clock.
func TestWallClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, -24 * time.Hour} {
		s := newSim(t, 1, 4, Limits{})
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		s.run(5 * time.Second)
		n, peer := s.nodes[0], s.nodes[1]
		s.loss = 0.5 // rumors and repeated requests deliver the change
		s.change(peer, Put{Key: oldKey, Body: []byte("before")})
		n.clock = jump
		s.run(time.Second)
		if !s.live(0, oldKey) {
			t.Errorf("clock set by %v: a change does not arrive within 1 s", jump)
		}
		s.crash(peer)
		s.run(20 * time.Second)
		n.clock = 0
		if sv := n.engine.Serving(peer.id); sv != Unhealthy {
			t.Errorf("clock set by %v: a node that died 20 s ago is %v", -jump, sv)
		}
		s.run(time.Second)
		if next := n.engine.Next() - s.local(n).Mono; next > time.Second {
			t.Errorf("clock set by %v: the next tick is due in %v", -jump, next)
		}
	}
}

// TestRecordsAreDatedByTheWallClock checks that records of a node without peers have the date of
// its wall clock, whenever the node started.
func TestRecordsAreDatedByTheWallClock(t *testing.T) {
	s := newSim(t, 1, 1, Limits{})
	n := s.nodes[0]
	s.now = s.now.Add(time.Hour)
	s.start(n)
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour} {
		n.clock = jump
		s.run(10 * time.Second)
		r := s.change(n, Put{Key: Key{"K", "m", jump.String()}})[0]
		if d := r.HLC.Time().Sub(s.now.Add(jump)); d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("clock set by %v: a record is dated %v from the wall clock", jump, d)
		}
	}
}
