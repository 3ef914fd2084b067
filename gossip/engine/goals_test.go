package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// lan returns a network of n nodes that know and agree with each other, with a one-way delay of 0.2
// to 0.4 ms.
func lan(t testing.TB, seed uint64, n int, loss float64) *sim {
	s := newSim(t, seed, n, Limits{})
	s.delay = func() time.Duration { return 200*time.Microsecond + time.Duration(s.rng.IntN(200))*time.Microsecond }
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(5 * time.Second)
	s.loss = loss
	clear(s.sent)
	return s
}

// change writes on a node and returns the records.
func (s *sim) change(n *simNode, puts ...Put) []*Record {
	records, ops, err := n.engine.Prepare(s.local(n), puts)
	if err != nil {
		s.t.Fatal(err)
	}
	n.durable(ops)
	s.step(n, Committed{records})
	return records
}

// spreadOf makes changes on a node and returns the sorted times at which the other nodes had all of
// them.
func (s *sim) spreadOf(size, count int, limit time.Duration) []time.Duration {
	var puts []Put
	for i := range count {
		puts = append(puts, Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, MediaType: "text",
			Body: []byte(strings.Repeat("x", size-10) + fmt.Sprint(i))})
	}
	origin := s.nodes[0]
	began := s.now
	have := map[int]int{}
	var times []time.Duration
	s.delivered = func(n *simNode) {
		if n == origin || have[n.i] == count {
			return
		}
		have[n.i] = 0
		for _, p := range puts {
			if r := n.engine.Record(p.Key); r != nil && len(r.Body) == len(p.Body) {
				have[n.i]++
			}
		}
		if have[n.i] == count {
			times = append(times, s.now.Sub(began))
		}
	}
	s.change(origin, puts...)
	s.run(limit)
	s.delivered = nil
	slices.Sort(times)
	return times
}

func percentile(times []time.Duration, percent int) time.Duration {
	return times[min(len(times)-1, len(times)*percent/100)]
}

// TestGoalsOfSpread measures in virtual time how changes spread on a LAN, and compares the results
// with the goals.
func TestGoalsOfSpread(t *testing.T) {
	for _, c := range []struct {
		name           string
		n, size, count int
		loss           float64
		p50, p99, all  time.Duration
		copies         float64 // bytes sent, divided by the bytes required
		uploads        int
		runs           int
	}{
		{name: "1 KB to 200", n: 200, size: 900, count: 1, p50: 5 * time.Millisecond, p99: 100 * time.Millisecond,
			all: 250 * time.Millisecond, copies: 5, runs: 3},
		{name: "16 KB to 200", n: 200, size: 16 << 10, count: 1, p50: 20 * time.Millisecond, p99: 250 * time.Millisecond,
			all: 250 * time.Millisecond, copies: 1.1, uploads: 8, runs: 3},
		{name: "1 KB to 200, 10 % loss", n: 200, size: 900, count: 1, loss: 0.1, p50: 8 * time.Millisecond,
			p99: 150 * time.Millisecond, all: 375 * time.Millisecond, copies: 5, runs: 3},
		{name: "1 KB to 200, 30 % loss", n: 200, size: 900, count: 1, loss: 0.3, p50: 2 * time.Second, p99: 2 * time.Second,
			all: 2 * time.Second, copies: 6, runs: 3},
		{name: "1,000 of 1 KB to 50", n: 50, size: 900, count: 1000, p50: 2 * time.Second, p99: 2 * time.Second,
			all: 2 * time.Second, copies: 3.5, runs: 1},
	} {
		var p50, p99, all time.Duration
		copies, uploads := 0.0, 0
		for seed := range uint64(c.runs) {
			s := lan(t, seed+1, c.n, c.loss)
			origin := s.nodes[0]
			times := s.spreadOf(c.size, c.count, 4*time.Second)
			if len(times) != c.n-1 {
				t.Fatalf("%s, seed %d: %d of %d nodes have all", c.name, seed+1, len(times), c.n-1)
			}
			p50, p99, all = max(p50, percentile(times, 50)), max(p99, percentile(times, 99)), max(all, times[len(times)-1])
			total := s.sent["packets"] + s.sent["streams"]
			copies = max(copies, float64(total)/float64((c.n-1)*c.count*(c.size+100)))
			uploads = max(uploads, origin.uploads)
		}
		t.Logf("%-24s p50 %v (goal %v), p99 %v (%v), all %v (%v), %.2fx bytes (%.1fx), uploads of the origin %d (%d); "+
			"worst of %d seeds", c.name, p50, c.p50, p99, c.p99, all, c.all, copies, c.copies, uploads, c.uploads, c.runs)
		if p50 > c.p50 || p99 > c.p99 || all > c.all || copies > c.copies || c.uploads > 0 && uploads > c.uploads {
			t.Errorf("%s: a goal is not met", c.name)
		}
	}
}

// TestGoalsOfAgreement checks that two nodes with the same 100,000 entries exchange nothing, and
// that ten differences cost only their share.
func TestGoalsOfAgreement(t *testing.T) {
	if testing.Short() {
		t.Skip("fills two stores with 100,000 entries")
	}
	s := newSim(t, 1, 2, Limits{WriterRecords: 200000, WriterBytes: 1 << 30})
	s.delay = func() time.Duration { return 250 * time.Microsecond }
	var saved []Op
	for i := range 100000 {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(s.now),
			Writer{byte(i), byte(i >> 8)}, false, "text", []byte(strings.Repeat("x", 100)))
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, recordOp(r))
	}
	for _, n := range s.nodes {
		apply(n.disk, saved)
		s.start(n)
	}
	s.join()
	s.run(3 * time.Second)
	clear(s.sent)
	s.run(30 * time.Second)
	if s.sent["packets"] > 0 || s.sent["streams"] > 2*30*60 {
		t.Errorf("two equal nodes have sent %v, the goal is no packets and 60 bytes per second", s.sent)
	}
	s.cut[[2]int{0, 1}], s.cut[[2]int{1, 0}] = true, true
	var puts []Put
	for i := range 10 {
		puts = append(puts,
			Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i * 7919)}, Body: []byte(fmt.Sprint("new ", i))})
	}
	records := s.change(s.nodes[0], puts...)
	s.run(time.Second)
	bodies := 0
	for _, r := range records {
		bodies += len(r.Encoded())
	}
	clear(s.sent)
	messages := 0
	s.posted = func(Send) { messages++ }
	clear(s.cut)
	for s.nodes[1].engine.tree.Sum != s.nodes[0].engine.tree.Sum {
		s.run(time.Millisecond)
	}
	sent := s.sent["packets"] + s.sent["streams"] - bodies
	t.Logf("10 of 100,000 entries differ: %d bytes beside the bodies (goal 6 KB), %d messages (4 round trips are 8)",
		sent, messages)
	if sent > 6<<10 || messages > 8 {
		t.Error("a goal is not met")
	}
}

// TestColdJoin checks that an empty node gets 20,000 entries with little overhead.
func TestColdJoin(t *testing.T) {
	s := newSim(t, 1, 4, Limits{})
	s.delay = func() time.Duration { return 250 * time.Microsecond }
	var saved []Op
	raw := 0
	for i := range 20000 {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(s.now), Writer{byte(i)}, false,
			"text", []byte(strings.Repeat("x", 600)))
		if err != nil {
			t.Fatal(err)
		}
		raw += len(r.Encoded())
		saved = append(saved, recordOp(r))
	}
	for _, n := range s.nodes[:3] {
		apply(n.disk, saved)
		s.start(n)
	}
	s.join()
	s.run(3 * time.Second)
	clear(s.sent)
	began := s.now
	s.start(s.nodes[3])
	s.meet(s.nodes[3], s.nodes[0])
	s.meet(s.nodes[0], s.nodes[3])
	for s.nodes[3].engine.tree.Sum != s.nodes[0].engine.tree.Sum {
		if s.run(10 * time.Millisecond); s.now.Sub(began) > time.Minute {
			t.Fatalf("the node has %d of 20,000 entries after a minute", s.nodes[3].engine.tree.Count)
		}
	}
	sent := float64(s.sent["packets"]+s.sent["streams"]) / float64(raw)
	t.Logf("20,000 entries: %v of virtual time, %.2fx their bytes (goal 1.2x)", s.now.Sub(began), sent)
	if s.now.Sub(began) > 5*time.Second || sent > 1.2 {
		t.Error("a goal is not met")
	}
}
