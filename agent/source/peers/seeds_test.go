package peers

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
)

var (
	oneSeed  = flag.Uint64("seed", 0, "replay this seed of TestSeeds, and print its events")
	seeds    = flag.Int("seeds", 1000, "number of seeds that TestSeeds runs")
	fromSeed = flag.Uint64("from", 1, "first seed")
)

// runWorld runs one seed: operations and faults, then a quiet period.
func runWorld(t testing.TB, dir string, seed uint64) (w *world, err error) {
	w = newWorld(t, dir, seed, 0)
	names := 1 + w.rng.IntN(3)
	if w.limited = w.rng.IntN(4) == 0; w.limited {
		names = 12
		w.limits.WriterRecords, w.limits.Tombstones = 4, 6
	}
	for i := range names {
		w.keys = append(w.keys, resource.Key{Kind: "Note", Mesh: "m", Name: string(rune('a' + i))})
	}
	w.limits.ShardItems = []int{0, 0, 2}[w.rng.IntN(3)]
	w.loss, w.dup = []float64{0, 0.1, 0.5}[w.rng.IntN(3)], []float64{0, 0.2}[w.rng.IntN(2)]
	defer w.clean()
	for _, n := range w.nodes {
		w.start(n)
	}
	for range 20 + w.rng.IntN(30) {
		w.operate()
		if w.rng.IntN(3) > 0 {
			w.run(w.millis(1500))
		}
	}
	w.logf("peace")
	clear(w.cut)
	w.loss, w.dup, w.noPackets = 0, 0, w.rng.IntN(4) == 0
	for _, n := range w.nodes {
		if n.clock = 0; !n.up {
			w.run(time.Second)
			w.start(n)
		}
	}
	w.run(20 * time.Second)
	w.skip(150 * time.Minute) // records dated in the future take effect
	w.run(90 * time.Second)
	return w, w.verify()
}

// TestSeeds checks that after any sequence of writes, changes of files, losses, partitions, kills,
// restored and lost disks, and clock errors, all stores are equal, acknowledged writes are in force
// or listed as conflicts, and all agents show what their files and the pool have.
func TestSeeds(t *testing.T) {
	dir := disktest.TempDir(t)
	if *oneSeed != 0 {
		w, err := runWorld(t, dir, *oneSeed)
		for _, l := range w.trace {
			t.Log(l)
		}
		for _, n := range w.nodes {
			refusals, _ := n.source.node.Refusals()
			t.Logf("node %d: %s, refusals %v, %q", n.i, list(n.store.Versions()), refusals, n.notes)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	counts, full := map[string]int{}, 0
	if testing.Short() {
		*seeds = min(*seeds, 50)
	}
	for seed := *fromSeed; seed < *fromSeed+uint64(*seeds); seed++ {
		w, err := runWorld(t, dir, seed)
		if err != nil || t.Failed() {
			t.Fatalf("seed %d: %v\nreplay with: go test ./agent/source/peers -run TestSeeds -v -seed %d", seed, err, seed)
		}
		for what, k := range w.counts {
			counts[what] += k
		}
		if w.truth.dropped {
			full++
		}
	}
	t.Logf("%d seeds: %v; in %d seeds a list of conflicts was full, so the test did not check that all losers are listed",
		*seeds, counts, full)
	if full > *seeds/3 {
		t.Error("too many seeds did not check for losers")
	}
}

// TestSeedsReplay checks that runs of a seed are identical.
func TestSeedsReplay(t *testing.T) {
	dir := disktest.TempDir(t)
	for seed := uint64(1); seed <= 20; seed++ {
		a, _ := runWorld(t, dir, seed)
		b, _ := runWorld(t, dir, seed)
		if !slices.Equal(a.trace, b.trace) {
			t.Fatalf("two runs of seed %d differ", seed)
		}
	}
}
