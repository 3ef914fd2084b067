package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// limited returns agreeing nodes with small limits.
func limited(t *testing.T, n int, l Limits) *sim {
	s := newSim(t, 1, n, l)
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(5 * time.Second)
	return s
}

// puts returns changes of the keys from first to last.
func puts(first, last int, p Put) (out []Put) {
	for i := first; i <= last; i++ {
		p.Key = Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}
		out = append(out, p)
	}
	return out
}

var write, remove = Put{Body: []byte("x")}, Put{Delete: true}

// settled reports an error unless all nodes have the same entries and refuse nothing.
func (s *sim) settled(what string) {
	s.t.Helper()
	s.run(10 * time.Second)
	for i, n := range s.nodes {
		if list, _ := n.engine.Refusals(); len(list) > 0 {
			s.t.Errorf("%s: node %d refuses %+v", what, i, list)
		}
		if d := s.differences(n, s.nodes[0]); len(d) > 0 {
			s.t.Errorf("%s: node %d differs from node 0: %v", what, i, d)
		}
	}
}

// TestBatchCountsAgainstLimits checks that changes that exceed a limit only together are refused
// together, and that all peers accept those that do not.
func TestBatchCountsAgainstLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		stored []Put
		puts   []Put
		full   bool
	}{
		{name: "records up to the limit", limits: Limits{WriterRecords: 10}, puts: puts(1, 10, write)},
		{name: "one record too many", limits: Limits{WriterRecords: 10}, puts: puts(1, 11, write), full: true},
		{name: "one more than stored", limits: Limits{WriterRecords: 10}, stored: puts(1, 9, write),
			puts: puts(10, 11, write), full: true},
		{name: "new versions", limits: Limits{WriterRecords: 10}, stored: puts(1, 10, write), puts: puts(1, 10, write)},
		{name: "a key twice", limits: Limits{WriterRecords: 10},
			puts: append(puts(1, 10, write), puts(1, 10, write)...)},
		{name: "one for another", limits: Limits{WriterRecords: 10}, stored: puts(1, 10, write),
			puts: append(puts(11, 11, write), puts(1, 1, remove)...)},
		{name: "too many bytes", limits: Limits{WriterBytes: 3000},
			puts: puts(1, 3, Put{Body: []byte(strings.Repeat("x", 1000))}), full: true},
		{name: "bytes up to the limit", limits: Limits{WriterBytes: 3300},
			puts: puts(1, 3, Put{Body: []byte(strings.Repeat("x", 1000))})},
		{name: "too many bytes in all", limits: Limits{Bytes: 3000},
			puts: puts(1, 4, Put{Body: []byte(strings.Repeat("x", 1000))}), full: true},
		{name: "deletions up to the limit", limits: Limits{Tombstones: 10}, stored: puts(1, 12, write),
			puts: puts(1, 10, remove)},
		{name: "one deletion too many", limits: Limits{Tombstones: 10}, stored: puts(1, 12, write),
			puts: puts(1, 11, remove), full: true},
		{name: "deletions of deleted names", limits: Limits{Tombstones: 10}, stored: puts(1, 10, remove),
			puts: puts(1, 10, remove)},
	} {
		s := limited(t, 3, c.limits)
		n := s.nodes[0]
		if c.stored != nil {
			s.change(n, c.stored...)
			s.settled(c.name + ": before")
		}
		before := n.engine.Root()
		records, _, err := n.engine.Prepare(s.local(n), c.puts)
		if errors.Is(err, ErrFull) != c.full || !c.full && err != nil ||
			c.full && (records != nil || n.engine.Root() != before) {
			t.Errorf("%s: %d records, %v", c.name, len(records), err)
		}
		if !c.full {
			s.change(n, c.puts...)
		}
		s.settled(c.name)
	}
}

// TestDeletedNamesBlockNothing creates and deletes records far more often than a node may have
// records. Only the limit of deletions ends that, and new records are accepted even then.
func TestDeletedNamesBlockNothing(t *testing.T) {
	s := limited(t, 3, Limits{WriterRecords: 3, Tombstones: 30})
	n := s.nodes[0]
	for i := range 10 {
		s.change(n, puts(3*i, 3*i+2, write)...)
		s.run(time.Second)
		s.change(n, puts(3*i, 3*i+2, remove)...)
		s.run(time.Second)
	}
	s.settled("after 30 deletions")
	s.change(n, puts(100, 102, write)...)
	s.settled("new records after 30 deletions")
	st := n.engine.Stats()
	if st.Own.Records != 3 || st.Own.Bytes == 0 || st.Own.Writer != Writer(n.id[:8]) || st.Limits.WriterRecords != 3 ||
		st.Tombstones != 30 || len(st.FullWriters) != 1 || st.FullWriters[0] != st.Own {
		t.Errorf("stats: %+v", st)
	}
	if _, _, err := n.engine.Prepare(s.local(n), puts(100, 100, remove)); !errors.Is(err, ErrFull) {
		t.Errorf("deletion 31 returns %v", err)
	}
}

// TestReceiversAcceptMore checks that a node accepts a quarter more than the limit of a writer,
// that it reports what exceeds this, and that it gets it when other records of the writer are
// deleted.
func TestReceiversAcceptMore(t *testing.T) {
	s := newSim(t, 1, 2, Limits{WriterRecords: 80})
	w := Writer{7}
	var saved []Op
	body := []byte(strings.Repeat("x", 30000)) // comparisons send two of them, and announce the others
	for i := range 130 {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(s.now), w, false, "", body)
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, recordOp(r))
	}
	apply(s.nodes[0].disk, saved)
	for _, n := range s.nodes {
		s.start(n)
	}
	s.join()
	s.run(10 * time.Second)
	n := s.nodes[1]
	list, total := n.engine.Refusals()
	if len(list) != 30 || total[ReasonLimit] != 30 || n.engine.Stats().Refusals[ReasonLimit] != 30 {
		t.Fatalf("refusals: %+v, %v", list, total)
	}
	for _, x := range list {
		r := s.nodes[0].engine.Record(x.Key)
		if r == nil || x.Version != r.ID() || x.Writer != w || x.Reason != ReasonLimit || x.Detail != whyWriterFull ||
			x.Since.Before(simStart) {
			t.Errorf("refusal: %+v", x)
		}
	}
	if f := n.engine.Stats().FullWriters; len(f) != 1 || f[0].Writer != w || f[0].Records != 100 {
		t.Errorf("full writers: %v", f)
	}
	s.run(25 * time.Minute)
	if l, _ := n.engine.Refusals(); !slices.Equal(l, list) {
		t.Errorf("refusals after 25 minutes: %+v", l)
	}
	for _, r := range n.engine.Records()[:30] {
		s.change(s.nodes[0], Put{Key: r.Key, Delete: true})
	}
	s.settled("after deletions")
}

// TestReceiversAcceptDeletions checks that a node accepts a quarter more deletions of unknown keys
// than the limit, and all deletions of records in force.
func TestReceiversAcceptDeletions(t *testing.T) {
	s := newSim(t, 1, 2, Limits{Tombstones: 4, WriterRecords: 3})
	n := s.nodes[0]
	s.start(n)
	live := s.change(n, puts(100, 100, write)...)[0]
	send := func(i int, parent *Record) {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, parent, record.Wall(s.now)+HLC(i), Writer{7},
			true, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.step(n, Received{(&message{From: "x", Records: []*Record{r}}).encode()})
	}
	for i := range 6 {
		send(i, nil)
	}
	st := n.engine.Stats()
	if list, _ := n.engine.Refusals(); st.Tombstones != 5 || len(list) != 1 || list[0].Detail != whyDeletionsFull {
		t.Errorf("%d deletions are stored; refusals: %+v", st.Tombstones, list)
	}
	send(100, live)
	if s.live(0, live.Key) {
		t.Error("a deletion of a record in force is refused")
	}
}
