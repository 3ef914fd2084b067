package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/heal"
)

const years = 20 * 365 * 24 * time.Hour

// heal heals some nodes with one statement.
func (s *sim) heal(st heal.Statement, nodes ...*simNode) {
	for _, n := range nodes {
		s.step(n, Heal{st})
	}
}

// future returns three nodes with a record in force that is dated 20 years ahead, because their
// clocks were.
func future(t *testing.T) *sim {
	s := trio(t)
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("Deny")})
	s.run(time.Second)
	for _, n := range s.nodes {
		n.clock = years
	}
	s.run(20 * time.Second) // they measure the clocks again
	s.change(s.nodes[1], Put{Key: oldKey, Body: []byte("Allow")})
	s.change(s.nodes[1], Put{Key: newKey, Body: []byte("held")})
	s.run(time.Second)
	for _, n := range s.nodes {
		n.clock = 0
		if r := n.engine.Record(oldKey); string(r.Body) != "Allow" {
			t.Fatalf("node %d: %q is in force", n.i, r.Body)
		}
	}
	s.run(time.Second)
	return s
}

// TestHeal checks that a change after a heal supersedes a record that is dated 20 years ahead, also
// on nodes that hear of the heal later, over restarts, and when the record comes back.
func TestHeal(t *testing.T) {
	s := future(t)
	bad := s.nodes[0].engine.Record(oldKey)
	_, _, err := s.nodes[0].engine.Prepare(s.local(s.nodes[0]), []Put{{Key: oldKey, Body: []byte("Deny")}})
	if err == nil || !strings.Contains(err.Error(), "nearside pool heal") {
		t.Errorf("a change of a record of the future: %v", err)
	}
	st := heal.Statement{Era: 1, At: s.now}
	if records, _ := s.nodes[0].engine.Voided(st); len(records) != 2 || records[0].Key != newKey {
		t.Errorf("the heal would void %v", records)
	}
	s.heal(st, s.nodes[0])
	if s.live(0, oldKey) || s.nodes[0].engine.Era() != 1 {
		t.Error("the record is in force after the heal")
	}
	s.change(s.nodes[0], Put{Key: oldKey, Body: []byte("Deny")})
	s.run(20 * time.Second)
	for _, n := range s.nodes[1:] {
		list, total := n.engine.Refusals()
		if string(n.engine.Record(oldKey).Body) != "Allow" || total[ReasonEra] != 1 || list[0].Key != oldKey {
			t.Errorf("node %d before the heal: %+v", n.i, list)
		}
	}
	s.crash(s.nodes[2])
	s.heal(st, s.nodes[1])
	s.run(5 * time.Second)
	s.start(s.nodes[2]) // it still has the record, and offers it
	s.run(20 * time.Second)
	s.heal(st, s.nodes[2])
	s.run(5 * time.Second)
	for range 2 {
		for _, n := range s.nodes {
			r := n.engine.Record(oldKey)
			if r == nil || string(r.Body) != "Deny" || r.HLC.Era() != 1 || r.HLC.Time().After(s.now) || s.live(n.i, newKey) {
				t.Errorf("node %d after the heal: %+v", n.i, r)
			}
			if len(n.engine.Conflicts()) != 0 || n.engine.Root() != s.nodes[0].engine.Root() {
				t.Errorf("node %d after the heal: conflicts %v", n.i, n.engine.Conflicts())
			}
			s.restart(n)
			s.step(n, Received{(&message{From: "x", Records: []*Record{bad}}).encode()})
			if n.engine.Stats().Counters["refused: "+whyVoid] == 0 {
				t.Errorf("node %d does not count the void record", n.i)
			}
		}
		s.join()
		s.run(10 * time.Second)
	}
}

// TestHealEvicts checks that a heal drops the records, deletions, and items of an evicted node on
// all nodes, and refuses its later data. The node itself refuses changes.
func TestHealEvicts(t *testing.T) {
	s := trio(t)
	evil := s.nodes[2]
	evil.items = []OwnItem{{Key{Kind: "D", Mesh: "m", Name: "a"}, []byte("x")}}
	s.step(evil, Own{Items: evil.items})
	s.step(evil, Own{Owner: NodeID{77}, Name: "dir", Items: evil.items})
	kept := Key{Kind: "K", Mesh: "m", Name: "kept"}
	s.change(s.nodes[0], Put{Key: kept, Body: []byte("1")})
	s.change(evil, Put{Key: oldKey, Body: []byte("1")}, Put{Key: newKey, Body: []byte("1")})
	s.change(evil, Put{Key: newKey, Delete: true})
	s.run(5 * time.Second)
	st := heal.Statement{Era: 1, At: s.now, Evicted: []heal.ID{evil.id, {77}}}
	s.heal(st, s.nodes...)
	if _, _, err := evil.engine.Prepare(s.local(evil), []Put{{Key: newKey}}); err == nil {
		t.Error("the evicted node accepts a change")
	}
	r, err := Successor(s.now, nil, Put{Key: oldKey, Body: []byte("2")}, Origin{Node: evil.id, Era: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.nodes[:2] {
		s.step(n, Received{(&message{From: evil.member(), Records: []*Record{r}}).encode()})
	}
	s.step(evil, Own{Items: slices.Concat(evil.items, []OwnItem{{kept, []byte("y")}})})
	s.run(20 * time.Second)
	for _, n := range s.nodes[:2] {
		if s.live(n.i, oldKey) || n.engine.Record(newKey) != nil || !s.live(n.i, kept) ||
			n.engine.Manifest(evil.id) != nil || len(n.engine.Directories()) != 0 {
			t.Errorf("node %d after the heal: %v %v %v", n.i, n.engine.Records(), n.engine.Nodes(), n.engine.Directories())
		}
	}
}

// TestHealPurges checks that a heal drops records of other kinds than the listed ones, and that
// these kinds can be used again in the next era.
func TestHealPurges(t *testing.T) {
	s := trio(t)
	junk := Key{Kind: "Junk", Mesh: "m", Name: "1"}
	s.change(s.nodes[0], Put{Key: junk, Body: []byte("1")}, Put{Key: oldKey, Body: []byte("1")})
	s.run(5 * time.Second)
	s.heal(heal.Statement{Era: 1, At: s.now, Kinds: []string{"K"}}, s.nodes...)
	s.run(5 * time.Second)
	for i := range s.nodes {
		if s.live(i, junk) || !s.live(i, oldKey) {
			t.Errorf("node %d after the purge: %v", i, s.nodes[i].engine.Records())
		}
	}
	s.change(s.nodes[1], Put{Key: junk, Body: []byte("2")})
	s.run(5 * time.Second)
	if !s.live(0, junk) {
		t.Error("a record of the next era does not arrive")
	}
}

// TestStatements checks the encoding of heals.
func TestStatements(t *testing.T) {
	st := heal.Statement{Era: 63, At: simStart, Evicted: []heal.ID{{1}, {2}}, Kinds: []string{"A", "B"}}
	got, err := heal.Decode(st.Encode())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(st) {
		t.Errorf("%+v, %v; want %+v", got, err, st)
	}
	for _, bad := range []heal.Statement{{At: simStart}, {Era: 64, At: simStart}, {Era: 1},
		{Era: 1, At: simStart, Evicted: make([]heal.ID, 1025)}} {
		if _, err := heal.Decode(bad.Encode()); err == nil {
			t.Errorf("%d, %v, %d is accepted", bad.Era, bad.At, len(bad.Evicted))
		}
	}
	s := trio(t)
	s.step(s.nodes[0], Heal{heal.Statement{Era: 64, At: s.now}})
	if s.nodes[0].engine.Era() != 0 {
		t.Error("an invalid heal is in force")
	}
}

// TestHealSeeds heals pools in which clocks jump by years, in any order and with partitions,
// crashes, and restored disks. In the end all nodes agree, and no void version is in force.
func TestHealSeeds(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*seeds)/5; seed++ {
		s := newSim(t, seed, 3, Limits{Horizon: horizon, ShardItems: 2})
		s.history, s.keys = &truth{all: map[Hash]*change{}, saves: map[int][]time.Time{}}, manyKeys
		s.loss = []float64{0, 0.1, 0.5}[s.rng.IntN(3)]
		for _, n := range s.nodes {
			s.start(n)
		}
		var heals []heal.Statement
		for range 40 {
			n := s.nodes[s.rng.IntN(len(s.nodes))]
			switch k := s.rng.IntN(20); {
			case k == 0:
				n.clock = years
			case k == 1:
				st := heal.Statement{Era: uint8(len(heals) + 1), At: s.now}
				if s.rng.IntN(3) == 0 {
					st.Kinds = []string{"A"}
				}
				heals = append(heals, st)
			case k < 5 && len(heals) > 0:
				s.heal(heals[s.rng.IntN(len(heals))], n)
			default:
				s.operate()
			}
			s.run(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
		}
		clear(s.cut)
		s.loss = 0
		heals = append(heals, heal.Statement{Era: uint8(len(heals) + 1), At: s.now})
		for _, n := range s.nodes {
			if n.clock = 0; !n.up {
				s.start(n)
			}
			for _, i := range s.rng.Perm(len(heals)) {
				s.heal(heals[i], n)
			}
		}
		s.run(20 * time.Second)
		s.skip(150 * time.Minute)
		s.run(90 * time.Second)
		for _, n := range s.nodes {
			if n.engine.Root() != s.nodes[0].engine.Root() || n.engine.tree.Sum != rebuilt(n.engine) {
				t.Fatalf("seed %d: node %d does not agree\n%s\n%s", seed, n.i, s.dump(n), s.dump(s.nodes[0]))
			}
			for _, r := range n.engine.Versions() {
				if n.engine.heals.Void(voidable(r)) != "" || r.HLC.Time().After(s.now) {
					t.Fatalf("seed %d: node %d has a void version of %s", seed, n.i, r.Key)
				}
			}
		}
	}
}
