package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// TestWallClockJumps sets the wall clock of a node in both directions. Timeouts, rounds of rumors,
// and liveness follow the monotonic clock. While the clock is behind, changes of others are held.
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
		if st := n.engine.Stats(); s.live(0, oldKey) != (jump > 0) || st.Parked != map[bool]int{true: 1}[jump < 0] {
			t.Errorf("clock set by %v: 1 s after a change, it is in force: %v, and %d are held", jump, s.live(0, oldKey),
				st.Parked)
		}
		s.crash(peer)
		s.run(20 * time.Second)
		n.clock = 0
		if sv := n.engine.Serving(peer.id); sv != Unhealthy {
			t.Errorf("clock set by %v: a node that died 20 s ago is %v", -jump, sv)
		}
		s.run(time.Second)
		if !s.live(0, oldKey) {
			t.Errorf("clock set by %v: the change is not in force 1 s after the clock was set again", -jump)
		}
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
		r := s.change(n, Put{Key: Key{Kind: "K", Mesh: "m", Name: jump.String()}})[0]
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
		if behind := n.clock < 0; s.live(c.refuses, oldKey) == behind || behind != (n.engine.Stats().Parked == 1) {
			t.Errorf("%s: a change is in force on the node with the wrong clock: %v; held: %d", c.name,
				s.live(c.refuses, oldKey), n.engine.Stats().Parked)
		}
		n.clock = 0
		s.run(2 * time.Second)
		if !s.live(c.refuses, oldKey) {
			t.Errorf("%s: the node misses a change after its clock was set", c.name)
		}
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

// join8 lets one process join under eight names whose clocks are 20 years ahead.
func join8(s *sim, known time.Time) (members []string) {
	for i := range 8 {
		member := fmt.Sprint("evil-", i)
		for _, n := range s.nodes {
			s.step(n, PeerUp{Member: member, Node: NodeID{66, byte(i)}, Name: member, Known: known, Features: Features})
		}
		members = append(members, member)
	}
	return members
}

func (s *sim) claim(members []string, ahead time.Duration) {
	for _, n := range s.nodes {
		for _, m := range members {
			s.step(n, Acked{m, AckPayload(n.engine.Root(), s.local(n).Wall.Add(ahead)), time.Millisecond})
		}
	}
}

// TestClaimedClocksAreBounded lets many members claim a date 20 years ahead, in an old and in a new
// pool. No deletion expires early, a record of that date is held, and all nodes accept changes.
func TestClaimedClocksAreBounded(t *testing.T) {
	for _, age := range []time.Duration{0, 25 * time.Hour} {
		s := newSim(t, 1, 3, Limits{Horizon: horizon})
		s.known = age
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("1")})
		s.change(s.nodes[0], Put{Key: oldKey, Delete: true})
		evil := join8(s, s.now)
		for range 60 {
			s.claim(evil, years)
			s.run(time.Second)
		}
		future, err := successor(newKey, nil, record.Wall(s.now.Add(years)), Writer{66}, false, "", []byte("Allow"))
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range s.nodes {
			s.step(n, Received{(&message{From: evil[0], Records: []*Record{future}}).encode()})
			st := n.engine.Stats()
			if st.Tombstones != 1 || st.Parked != 1 || s.live(i, newKey) {
				t.Errorf("pool of age %v, node %d: %d tombstones, %d held records, in force: %v", age, i, st.Tombstones,
					st.Parked, s.live(i, newKey))
			}
			if d := n.engine.poolTime().Sub(s.now).Abs(); d > maxSkew {
				t.Errorf("pool of age %v: the claims move the clock of node %d by %v", age, i, d)
			}
			s.change(n, Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, Body: []byte("Deny")})
		}
		s.run(time.Second)
		for i := range s.nodes {
			if !s.live(0, Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}) {
				t.Errorf("pool of age %v: the change of node %d is not in force", age, i)
			}
		}
		if age > 0 && s.nodes[0].engine.Stats().Skew != 0 {
			t.Errorf("new names move the clock of an old pool by %v", s.nodes[0].engine.Stats().Skew)
		}
	}
}

// TestOneVotePerName checks that members with one name have one vote.
func TestOneVotePerName(t *testing.T) {
	s := trio(t)
	evil := join8(s, simStart.Add(-48*time.Hour))
	for _, n := range s.nodes {
		for i, m := range evil {
			s.step(n, PeerUp{Member: m, Node: NodeID{66, byte(i)}, Name: "evil", Features: Features})
		}
	}
	for range 10 {
		s.claim(evil, time.Hour)
		s.run(time.Second)
	}
	for _, n := range s.nodes {
		if d := n.engine.Stats().Skew; d != 0 {
			t.Errorf("node %d: one name moves the clock by %v", n.i, d)
		}
	}
}

// TestOwnClockExpiresNothing sets the clock of a node ahead by years, in its absence and while it
// runs, without peers and with one. No deletion expires before its time.
func TestOwnClockExpiresNothing(t *testing.T) {
	for _, size := range []int{1, 2} {
		s := newSim(t, 1, size, Limits{Horizon: horizon})
		s.known = 0
		for _, n := range s.nodes {
			s.start(n)
		}
		s.join()
		n := s.nodes[0]
		s.change(n, Put{Key: oldKey, Body: []byte("1")})
		s.change(n, Put{Key: oldKey, Delete: true})
		s.run(time.Minute)
		for range 2 {
			n.clock = 20 * 365 * 24 * time.Hour
			s.restart(n)
			s.run(time.Hour)
			if k := n.engine.Stats().Tombstones; k != 1 {
				t.Errorf("%d nodes: a clock that is years ahead expires a deletion", size)
			}
			n.clock = 0
			s.run(time.Minute)
		}
		s.skip(horizon)
		s.run(time.Hour)
		if k := n.engine.Stats().Tombstones; k != 0 {
			t.Errorf("%d nodes: the deletion does not expire at its time", size)
		}
	}
}

// TestAbsenceExpires checks that deletions expire after an absence when a peer confirms the clock.
func TestAbsenceExpires(t *testing.T) {
	s := trio(t)
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("1")})
	s.change(s.nodes[0], Put{Key: oldKey, Delete: true})
	s.run(5 * time.Second)
	s.crash(s.nodes[0])
	s.skip(horizon + time.Hour)
	s.start(s.nodes[0])
	if k := s.nodes[0].engine.Stats().Tombstones; k != 1 {
		t.Error("a deletion expires before a peer confirms the clock")
	}
	s.run(10 * time.Second)
	for _, n := range s.nodes {
		if n.engine.Stats().Tombstones != 0 {
			t.Errorf("node %d: the deletion does not expire", n.i)
		}
	}
}
