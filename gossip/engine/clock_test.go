package engine

import (
	"errors"
	"slices"
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

// TestClocksOfPools sets clocks in pools of several sizes. A node whose clock differs from those of
// most nodes refuses changes. Without a majority, all nodes warn and accept changes.
func TestClocksOfPools(t *testing.T) {
	for _, c := range []struct {
		name    string
		offsets []time.Duration
		refuses int // node; -1: none
		differ  []time.Duration
	}{
		{"two", []time.Duration{0, 0}, -1, []time.Duration{0, 0}},
		{"two, 1 s apart", []time.Duration{0, time.Second}, -1, []time.Duration{0, 0}},
		{"two, 3 s apart", []time.Duration{0, 3 * time.Second}, -1, []time.Duration{3 * time.Second, -3 * time.Second}},
		{"two, 1 h apart", []time.Duration{0, -time.Hour}, -1, []time.Duration{-time.Hour, time.Hour}},
		{"three, one ahead", []time.Duration{0, 0, time.Hour}, 2, []time.Duration{0, 0, 0}},
		{"three, one behind", []time.Duration{-time.Hour, 0, time.Second}, 0, []time.Duration{0, 0, 0}},
		{"three, 5 s", []time.Duration{0, 5 * time.Second, 0}, -1, []time.Duration{0, 0, 0}},
		{"three that differ", []time.Duration{0, time.Hour, 3 * time.Hour}, -1,
			[]time.Duration{3 * time.Hour, 2 * time.Hour, -3 * time.Hour}},
		{"five, one ahead", []time.Duration{0, 0, 0, time.Hour, 0}, 3, make([]time.Duration, 5)},
	} {
		s := newSim(t, 1, len(c.offsets), Limits{})
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		s.run(5 * time.Second)
		for i, n := range s.nodes {
			n.clock = c.offsets[i]
		}
		s.run(time.Minute)
		for i, n := range s.nodes {
			_, _, err := n.engine.Prepare(s.local(n), []Put{{Key: newKey}})
			if refused := errors.Is(err, ErrClock); refused != (i == c.refuses) || !refused && err != nil {
				t.Errorf("%s: node %d: a change returns %v", c.name, i, err)
			}
			if d := n.engine.Stats().ClockDiffers; (d - c.differ[i]).Abs() > 10*time.Millisecond {
				t.Errorf("%s: node %d reports a difference of %v, want %v", c.name, i, d, c.differ[i])
			}
			warned := slices.ContainsFunc(n.notes, func(x Note) bool { return x.What == "clock" })
			if want := c.differ[i] != 0 || i == c.refuses || c.offsets[i] == 5*time.Second; warned != want {
				t.Errorf("%s: node %d has warned: %v, want %v", c.name, i, warned, want)
			}
		}
		if c.refuses < 0 {
			continue
		}
		n := s.nodes[c.refuses]
		s.change(s.nodes[1], Put{Key: oldKey, Body: []byte("x")})
		s.run(time.Second)
		if !s.live(c.refuses, oldKey) {
			t.Errorf("%s: the node with the wrong clock misses a change", c.name)
		}
		n.clock = 0
		s.change(n, Put{Key: newKey, Body: []byte("after the clock was set")})
		s.run(time.Second)
		if !s.live(1, newKey) {
			t.Errorf("%s: a change after the clock was set does not take effect", c.name)
		}
	}
}

// TestMajorityIsGone checks that a node that refused changes because of its clock accepts them when
// it has lost its peers for some time.
func TestMajorityIsGone(t *testing.T) {
	s := trio(t)
	n := s.nodes[2]
	n.clock = time.Hour
	s.run(10 * time.Second)
	s.isolate(2)
	s.run(clockFor / 2)
	if _, _, err := n.engine.Prepare(s.local(n), []Put{{Key: newKey}}); !errors.Is(err, ErrClock) {
		t.Errorf("soon after the peers have gone, a change returns %v", err)
	}
	s.run(clockFor)
	if _, _, err := n.engine.Prepare(s.local(n), []Put{{Key: newKey}}); err != nil {
		t.Errorf("long after the peers have gone, a change returns %v", err)
	}
}
