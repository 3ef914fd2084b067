package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed  = flag.Uint64("seed", 0, "replay this seed of TestSeeds, and print its events")
	seeds    = flag.Int("seeds", 1000, "number of seeds that TestSeeds runs")
	fromSeed = flag.Uint64("from", 1, "first seed")
)

// change is a write of the test.
type change struct {
	r      *Record
	parent *change
	node   int
	at     time.Time
	// fragile: its only durable copy may be lost with a restored disk, or it was not acknowledged
	fragile bool
}

// truth holds all writes of a run.
type truth struct {
	all   map[Hash]*change
	saves map[int][]time.Time // times of the disk states that can be restored
}

var (
	manyKeys = []Key{{Kind: "A", Mesh: "m", Name: "1"}, {Kind: "A", Mesh: "m", Name: "2"}, {Kind: "B", Mesh: "",
		Name: "3"}, {Kind: "B", Mesh: "", Name: "4"}, {Kind: "B", Mesh: "", Name: "5"}, {Kind: "B", Mesh: "", Name: "6"},
		{Kind: "B", Mesh: "m", Name: "6"}, {Kind: "B", Mesh: "m", Name: "7"}, {Kind: "B", Mesh: "m", Name: "8"}}
	simKeys = manyKeys[:3]
)

// world runs one seed: operations and faults, then a quiet period.
func world(t testing.TB, seed uint64) (s *sim, ops int, err error) {
	s = newSim(t, seed, 3, Limits{Horizon: 200 * time.Hour, ShardItems: 2})
	if seed%2 == 0 {
		s.known = 0
	}
	s.nodes = s.nodes[:2+s.rng.IntN(2)]
	if s.rng.IntN(3) == 0 {
		for i := len(s.nodes); i < 5; i++ {
			s.nodes = append(s.nodes, &simNode{i: i, id: NodeID{0, byte(i), 1}, disk: map[string]Op{}})
		}
	}
	if seed%4 == 3 {
		s.sign()
	}
	s.history = &truth{all: map[Hash]*change{}, saves: map[int][]time.Time{}}
	s.loss = []float64{0, 0.1, 0.5}[s.rng.IntN(3)]
	s.dup = []float64{0, 0.2}[s.rng.IntN(2)]
	rounds := 20 + s.rng.IntN(40)
	switch s.keys = simKeys; s.rng.IntN(5) {
	case 0:
		s.keys, rounds = simKeys[:1], 3*rounds // more versions than a lineage holds
	case 1:
		s.keys = manyKeys
	case 2:
		s.keys, s.limits.WriterRecords, s.limits.Tombstones, s.limits.Parked = manyKeys, 2, 2, 2
	}
	for _, n := range s.nodes {
		s.start(n)
	}
	for range rounds {
		s.operate()
		ops++
		if s.rng.IntN(3) > 0 {
			s.run(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
		}
	}
	s.logf("peace")
	clear(s.cut)
	s.loss, s.dup = 0, 0
	for _, n := range s.nodes {
		n.clock = 0
		if !n.up {
			s.start(n)
		}
	}
	s.run(20 * time.Second)
	s.skip(150 * time.Minute) // records dated in the future take effect
	s.run(90 * time.Second)
	if err := s.verify(); err != nil {
		return s, ops, err
	}
	if err := s.verifyDirectory(); err != nil {
		return s, ops, err
	}
	return s, ops, s.verify()
}

// operate runs one random operation or fault.
func (s *sim) operate() {
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	o := s.nodes[s.rng.IntN(len(s.nodes))]
	switch k := s.rng.IntN(100); {
	case k < 45:
		s.write(n)
	case k < 55:
		s.own(n)
	case k < 63: // partition into two sides
		side := s.rng.IntN(1 << len(s.nodes))
		s.logf("cut %b", side)
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				s.cut[[2]int{a.i, b.i}] = side>>a.i&1 != side>>b.i&1
			}
		}
	case k < 68:
		s.logf("cut %d to %d", n.i, o.i)
		s.cut[[2]int{n.i, o.i}] = true
	case k < 78:
		s.logf("heal")
		clear(s.cut)
	case k < 84:
		if n.up {
			s.logf("crash %d", n.i)
			s.crash(n)
		}
	case k < 86 && n.up:
		n.old = append(n.old, maps.Clone(n.disk))
		s.history.saves[n.i] = append(s.history.saves[n.i], s.now)
	case k < 88 && len(n.old) > 0:
		i := s.rng.IntN(len(n.old))
		s.logf("restore %d from %v", n.i, s.history.saves[n.i][i].Sub(simStart))
		s.crash(n)
		n.disk = maps.Clone(n.old[i])
		for _, w := range s.history.all {
			w.fragile = w.fragile || w.node == n.i && !w.at.Before(s.history.saves[n.i][i])
		}
		s.start(n)
	case k < 93:
		n.clock = []time.Duration{0, 0, time.Hour, -time.Hour, 15 * time.Second}[s.rng.IntN(5)]
		s.logf("clock of %d %v", n.i, n.clock)
	default:
		if !n.up {
			s.logf("start %d", n.i)
			s.start(n)
		}
	}
}

// write changes some keys on a node. The node may crash at any point.
func (s *sim) write(n *simNode) {
	if !n.up {
		return
	}
	var puts []Put
	for _, i := range s.rng.Perm(len(s.keys))[:1+s.rng.IntN(2)*s.rng.IntN(len(s.keys))] {
		p := Put{Key: s.keys[i], Delete: s.rng.IntN(4) == 0, MediaType: "text"}
		if !p.Delete {
			p.Body = []byte(fmt.Sprint("body ", s.rng.IntN(1000), strings.Repeat("x", s.rng.IntN(2)*2000)))
		}
		puts = append(puts, p)
	}
	records, ops, err := n.engine.Prepare(s.local(n), puts)
	if err != nil {
		s.logf("write on %d refused: %v", n.i, err)
		if errors.Is(err, ErrFull) {
			s.full++
		}
		return
	}
	var changes []*change
	for _, r := range records {
		w := &change{r: r, node: n.i, at: s.now, fragile: true}
		if parent := n.engine.Record(r.Key); parent != nil {
			w.parent = s.history.all[parent.Version().Digest]
		}
		s.history.all[r.Version().Digest] = w
		changes = append(changes, w)
		s.logf("write %v on %d: %s hlc %d deleted %v", r.Key, n.i, r.ID(), r.HLC, r.Deleted)
	}
	switch s.rng.IntN(20) {
	case 0:
		s.crash(n)
		return
	case 1:
		n.durable(ops)
		s.crash(n)
		return
	}
	if s.rng.IntN(4) == 0 {
		boot := n.boot
		s.run(time.Duration(s.rng.IntN(10)) * time.Millisecond) // duration of the disk write
		if !n.up || n.boot != boot {
			return
		}
	}
	n.durable(ops)
	for _, w := range changes {
		w.fragile, w.at = false, s.now
	}
	s.step(n, Committed{records})
}

// verify compares the state of all nodes with the writes.
func (s *sim) verify() error {
	greatest := s.greatest()
	for _, n := range s.nodes {
		st := n.engine.Stats()
		if err := s.verifyEntries(n); err != nil {
			return fmt.Errorf("%w\n%s\n%s", err, s.dump(n), s.dump(s.nodes[0]))
		}
		if n.engine.tree.Sum != rebuilt(n.engine) {
			return fmt.Errorf("the tree of node %d does not match its entries", n.i)
		}
		if st.Limbo > 0 || st.Parked > 0 || st.Wants > 0 || st.Pulls > 0 || st.Pending > 0 || st.News > 0 || st.Cloned {
			return fmt.Errorf("node %d is not idle: %+v", n.i, st)
		}
		if st.Conflicts > conflictsEach*len(s.keys) {
			return fmt.Errorf("node %d lists %d conflicts", n.i, st.Conflicts)
		}
		for _, o := range s.nodes { // differences at the end are lasting: a limit of a node is reached
			p, differ := n.engine.Peer(o.member()), n.engine.Root() != o.engine.Root()
			if o != n && (p.Differs.IsZero() == differ || len(p.Differences) > 0 && !differ) {
				return fmt.Errorf("node %d differs from node %d: %v; it reports %+v", n.i, o.i, differ, p)
			}
		}
		s.detectDropped(n)
		if err := s.verifyOwn(n); err != nil {
			return err
		}
	}
	// Digests that are current or listed as conflicts on any node.
	seen := map[Hash]bool{}
	content := map[string]bool{}
	see := func(w *change) {
		for ; w != nil && !seen[w.r.Version().Digest]; w = w.parent {
			seen[w.r.Version().Digest] = true
			content[fmt.Sprint(w.r.Key, w.r.Deleted, string(w.r.Body))] = true
		}
	}
	for _, n := range s.nodes {
		for _, k := range s.keys {
			if r := n.engine.Record(k); r != nil {
				see(s.history.all[r.Version().Digest])
			}
		}
		for _, c := range n.engine.Conflicts() {
			see(s.history.all[c.Record.Version().Digest])
		}
	}
	// A write with the same content as one of these is not lost, and its ancestors were overwritten
	// with knowledge of them.
	for before := -1; before != len(seen); {
		before = len(seen)
		for _, w := range s.history.all {
			if content[fmt.Sprint(w.r.Key, w.r.Deleted, string(w.r.Body))] {
				see(w)
			}
		}
	}
	for _, w := range s.history.all {
		if w.fragile {
			continue
		}
		en := greatest[w.r.Key.Slot()]
		if en == nil || en.head.Version.Less(w.r.Version()) {
			return fmt.Errorf("an acknowledged write is lost: %v %s on node %d; in force is %v",
				w.r.Key, w.r.ID(), w.node, en)
		}
		if !s.dropped && !seen[w.r.Version().Digest] {
			return fmt.Errorf("an acknowledged write was lost silently: %v %s on node %d", w.r.Key, w.r.ID(), w.node)
		}
	}
	return nil
}

// greatest returns the greatest version of each entry on any node.
func (s *sim) greatest() map[Slot]*entry {
	out := map[Slot]*entry{}
	for _, n := range s.nodes {
		for slot, en := range n.engine.entries {
			if out[slot] == nil || out[slot].head.Version.Less(en.head.Version) {
				out[slot] = en
			}
		}
	}
	return out
}

// verifyEntries checks that a node has the greatest version of each entry, or reports the limit
// that it would exceed.
func (s *sim) verifyEntries(n *simNode) error {
	list, _ := n.engine.Refusals()
	for slot, en := range s.greatest() {
		if have := n.engine.entries[slot]; have != nil && bytes.Equal(have.encoded(), en.encoded()) {
			continue
		}
		if en.record == nil || !slices.ContainsFunc(list, func(r Refusal) bool {
			return r.Key == en.record.Key && r.Version == en.record.ID() && r.Reason == ReasonLimit
		}) {
			return fmt.Errorf("node %d lacks %x:%d and does not report why: %+v", n.i, slot[:2], en.head.Order, list)
		}
		s.lacking++
	}
	return nil
}

func (s *sim) dump(n *simNode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %d, peers %v:", n.i, n.engine.alive)
	for _, slot := range sortedSlots(n.engine.entries) {
		fmt.Fprintf(&b, " %x:%d:%x", slot[:2], n.engine.entries[slot].head.Order, n.engine.entries[slot].head.Digest[:4])
	}
	return b.String()
}

// TestSeeds checks that after any sequence of writes, losses, repetitions, partitions, crashes,
// restores, and clock errors, all nodes agree on the greatest version, acknowledged writes are
// current or listed as conflicts, and no deleted record is restored.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		s, _, err := world(t, *oneSeed)
		for _, l := range s.trace {
			t.Log(l)
		}
		for _, n := range s.nodes {
			t.Logf("node %d: %+v", n.i, n.notes)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	ops, conflicts, full, limited, refused, lacking := 0, 0, 0, 0, 0, 0
	for seed := *fromSeed; seed < *fromSeed+uint64(*seeds); seed++ {
		s, n, err := world(t, seed)
		if err != nil {
			t.Fatalf("seed %d: %v\nreplay with: go test ./gossip/engine -run TestSeeds -v -seed %d", seed, err, seed)
		}
		ops += n
		limited += s.full
		refused += s.refused
		lacking += s.lacking
		if s.dropped {
			full++
		}
		for _, n := range s.nodes {
			conflicts += n.engine.Stats().Conflicts
		}
	}
	t.Logf("%d seeds, %d operations, %d conflicts listed in the end; in %d seeds a list was full, "+
		"so the test did not check that all losers are listed; limits refused %d local changes, "+
		"%d versions of peers, and %d of them in the end", *seeds, ops, conflicts, full, limited, refused, lacking)
	if full > *seeds/3 {
		t.Error("too many seeds did not check for losers")
	}
	if (conflicts == 0 || limited == 0 || refused == 0) && *seeds >= 100 {
		t.Error("no conflicts, or no limit was reached in any seed: the test does not cover them")
	}
}

// TestSeedsReplay checks that runs of a seed are identical.
func TestSeedsReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, _, _ := world(t, seed)
		b, _, _ := world(t, seed)
		if !slices.Equal(a.trace, b.trace) || !maps.Equal(a.sent, b.sent) {
			t.Fatalf("two runs of seed %d differ", seed)
		}
	}
}
