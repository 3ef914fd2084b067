package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// policyWorld writes, excludes, and permits keys at random on nodes that learn of the policy at
// different times, with restarts and partitions. In the end all keys are permitted.
func policyWorld(t *testing.T, seed uint64) error {
	s := newSim(t, seed, 3, Limits{Horizon: horizon, ShardItems: 2})
	s.cluster = "here"
	s.sign()
	policies := make([]*judges, len(s.nodes))
	for i, n := range s.nodes {
		policies[i] = &judges{map[sign.ID]bool{}}
		for _, o := range s.nodes {
			policies[i].writers[sign.ID(o.id)] = true
		}
		n.policy = policies[i]
		s.start(n)
	}
	s.join()
	newest := map[Key]*Record{}
	permit := func(n, of int, ok bool) {
		policies[n].writers[sign.ID(s.nodes[of].id)] = ok
		s.step(s.nodes[n], Reconsider{})
	}
	for range 40 {
		n := s.nodes[s.rng.IntN(len(s.nodes))]
		switch s.rng.IntN(8) {
		case 0, 1, 2:
			p := Put{Key: simKeys[s.rng.IntN(len(simKeys))], Delete: s.rng.IntN(4) == 0}
			if !p.Delete {
				p.Body = fmt.Append(nil, s.rng.Uint64())
			}
			records, ops, err := n.engine.Prepare(s.local(n), []Put{p})
			if err != nil {
				break // this key is excluded
			}
			n.durable(ops)
			s.step(n, Committed{records})
			if old := newest[p.Key]; old == nil || old.Version().Less(records[0].Version()) {
				newest[p.Key] = records[0]
			}
		case 3, 4:
			permit(s.rng.IntN(3), s.rng.IntN(3), s.rng.IntN(2) == 0)
		case 5:
			s.publish(n.i, ownItems(s.rng.IntN(6), fmt.Sprint(s.rng.IntN(3))))
		case 6:
			s.restart(n)
		case 7:
			s.isolate(s.rng.IntN(4)) // 3: all nodes are connected
		}
		s.run(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
	}
	clear(s.cut)
	for n := range s.nodes {
		for of := range s.nodes {
			permit(n, of, true)
		}
	}
	s.join()
	s.run(2 * time.Minute)
	for _, n := range s.nodes {
		e := n.engine
		if e.Root() != s.nodes[0].engine.Root() || e.Root() != rebuilt(e) {
			return fmt.Errorf("node %d differs in %v", n.i, s.differences(n, s.nodes[0]))
		}
		if len(e.withheld) > 0 || e.withheldBytes != 0 {
			return fmt.Errorf("node %d withholds %d entries", n.i, len(e.withheld))
		}
		for k, r := range newest {
			if got := e.Record(k); got == nil || got.Version() != r.Version() {
				return fmt.Errorf("node %d has %+v, not the newest version %s of %v", n.i, got, r.ID(), k)
			}
		}
		for _, o := range s.nodes {
			if len(s.itemsOf(n.i, o.i)) != len(o.items) {
				return fmt.Errorf("node %d has %d items of node %d, want %d", n.i, len(s.itemsOf(n.i, o.i)), o.i, len(o.items))
			}
		}
	}
	return nil
}

// TestSeedsPolicy checks that nodes agree after any sequence of exclusions, and lose no write.
func TestSeedsPolicy(t *testing.T) {
	for seed := range uint64(*seeds / 10) {
		if err := policyWorld(t, *fromSeed+seed); err != nil {
			t.Fatalf("seed %d: %v", *fromSeed+seed, err)
		}
	}
}
