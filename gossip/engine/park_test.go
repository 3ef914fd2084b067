package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// parkedWorld returns three nodes. Node 2 was isolated, its clock is an hour ahead, and it has
// written newKey. It now reaches only node 0.
func parkedWorld(t *testing.T) (*sim, *Record) {
	s := trio(t)
	s.isolate(2)
	s.run(5 * time.Minute)
	s.nodes[2].clock = time.Hour
	r := s.change(s.nodes[2], Put{Key: newKey, Body: []byte(strings.Repeat("2", 5000))})[0]
	s.isolate(1)
	s.cut[[2]int{0, 1}], s.cut[[2]int{1, 0}] = false, false
	received := 0
	s.posted = func(x Send) {
		if m, err := decodeMessage(x.Data); err == nil && x.To == s.nodes[1].member() {
			received += len(m.Records)
		}
	}
	s.run(30 * time.Second)
	if s.posted = nil; received != 1 {
		t.Errorf("node 1 has received the record %d times", received)
	}
	return s, r
}

// TestParkedRecords checks that records dated in the future are forwarded and reported, and take
// effect at their date, although their writer is gone and all nodes have restarted.
func TestParkedRecords(t *testing.T) {
	s, r := parkedWorld(t)
	if s.live(0, newKey) || s.live(1, newKey) {
		t.Fatal("a record dated in the future is in force")
	}
	s.crash(s.nodes[2])
	for i, n := range s.nodes[:2] {
		s.crash(n)
		s.start(n)
		list, total := n.engine.Refusals()
		if len(list) != 1 || total[ReasonClock] != 1 || list[0].Key != newKey || list[0].Version != r.ID() ||
			list[0].Writer != r.Writer || list[0].Reason != ReasonClock || s.now.Sub(list[0].Since) > time.Minute {
			t.Errorf("node %d refuses %+v, %v", i, list, total)
		}
	}
	s.run(58 * time.Minute)
	if s.live(0, newKey) || s.live(1, newKey) {
		t.Error("a record takes effect before its date")
	}
	s.run(2 * time.Minute)
	for i, n := range s.nodes[:2] {
		if !s.live(i, newKey) || n.engine.Stats().Parked != 0 {
			t.Errorf("node %d: the record is in force: %v, parked: %d", i, s.live(i, newKey), n.engine.Stats().Parked)
		}
		s.crash(n)
		s.start(n)
		if st := n.engine.Stats(); st.Parked != 0 || !s.live(i, newKey) {
			t.Errorf("node %d: %d records are parked after a restart", i, st.Parked)
		}
	}
}

// TestParkedIsLaterThanChanges checks that other versions of a key are in force before the date of
// a parked one, and are listed as conflicts when it takes effect.
func TestParkedIsLaterThanChanges(t *testing.T) {
	s, _ := parkedWorld(t)
	s.crash(s.nodes[2])
	s.change(s.nodes[0], Put{Key: newKey, Body: []byte(strings.Repeat("3", 5000))})
	clear(s.cut)
	s.run(30 * time.Second)
	if r := s.nodes[1].engine.Record(newKey); r == nil || r.Body[0] != '3' {
		t.Error("the version in force does not arrive")
	}
	s.run(2 * time.Hour)
	for i := range 2 {
		if r := s.nodes[i].engine.Record(newKey); r.Body[0] != '2' {
			t.Errorf("node %d: the version %q is in force", i, r.Body[:1])
		}
		if c := s.nodes[i].engine.Conflicts(); len(c) != 1 || c[0].Record.Body[0] != '3' {
			t.Errorf("node %d: conflicts: %v", i, c)
		}
	}
}

// TestDamagedIsReported checks that an unreadable saved record is reported until a peer has sent
// it.
func TestDamagedIsReported(t *testing.T) {
	s := trio(t)
	r := s.change(s.nodes[0], Put{Key: newKey, Body: []byte("x")})[0]
	s.run(time.Second)
	n := s.nodes[2]
	s.crash(n)
	op := recordOp(r)
	n.disk[op.Bucket+"/"+op.Key] = Op{Bucket: op.Bucket, Key: op.Key, Value: op.Value[:len(op.Value)-1]}
	s.start(n)
	if list, total := n.engine.Refusals(); len(list) != 1 || list[0].Reason != ReasonDamaged || total[ReasonDamaged] != 1 {
		t.Errorf("refusals after a start: %+v, %v", list, total)
	}
	s.run(10 * time.Second)
	if list, _ := n.engine.Refusals(); len(list) != 0 || !s.live(2, newKey) {
		t.Errorf("live: %v, refusals: %+v", s.live(2, newKey), list)
	}
}

// TestParkedIsBounded checks that records which take effect early displace those that take effect
// late, so a node whose clock is far ahead does not delay the changes of others.
func TestParkedIsBounded(t *testing.T) {
	s := newSim(t, 1, 1, Limits{Parked: 3})
	n := s.nodes[0]
	s.start(n)
	send := func(name string, ahead time.Duration) {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: name}, nil, record.Wall(s.now.Add(ahead)), Writer{7}, false, "",
			[]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		s.step(n, Received{(&message{From: "x", Records: []*Record{r}}).encode()})
	}
	for i := range 5 {
		send(fmt.Sprint("year ", i), time.Duration(i)*time.Minute+365*24*time.Hour)
	}
	send("minute", time.Minute)
	send("hour", time.Hour)
	list, total := n.engine.Refusals()
	if st := n.engine.Stats(); st.Parked != 3 || total[ReasonClock] != 7 {
		t.Errorf("%d records are parked; refusals: %+v", st.Parked, list)
	}
	s.restart(n)
	s.run(2 * time.Minute)
	if !s.live(0, Key{Kind: "K", Mesh: "m", Name: "minute"}) {
		t.Error("an early record is not in force at its date")
	}
	s.skip(time.Hour)
	s.run(time.Second)
	if st := n.engine.Stats(); !s.live(0, Key{Kind: "K", Mesh: "m", Name: "hour"}) || st.Parked != 1 {
		t.Errorf("a later record is not in force at its date; %d are parked", st.Parked)
	}
}
