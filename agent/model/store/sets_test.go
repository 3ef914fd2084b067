package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestSetsOfChanges checks that the set of each snapshot holds exactly its resources in order, also
// if it is derived from the set of an earlier or later snapshot.
func TestSetsOfChanges(t *testing.T) {
	s, random := memory(t), rand.New(rand.NewPCG(1, 2))
	var skipped []*store.Snapshot // their sets are built after those of later snapshots
	check := func(snap *store.Snapshot) {
		t.Helper()
		var list []*resource.Resource
		for _, r := range snap.Records() {
			list = append(list, r.Resource)
		}
		if got := snap.Set().All(); !slices.Equal(got, list) || snap.Set().Len() != len(list) {
			t.Fatalf("revision %d: %d resources, want %d", snap.Revision(), len(got), len(list))
		}
	}
	for step := range 300 {
		ops := map[string]store.Op{}
		for range 1 + random.IntN(4) {
			name := fmt.Sprint("n", random.IntN(40))
			if _, ok := s.Snapshot().Get(key(name)); ok && random.IntN(3) == 0 {
				ops[name] = store.Op{Delete: key(name)}
			} else {
				ops[name] = store.Op{Put: res(name, fmt.Sprint(step))}
			}
		}
		b := store.Batch{Source: api, Author: "t"}
		for _, op := range ops {
			b.Ops = append(b.Ops, op)
		}
		if _, err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
		if snap := s.Snapshot(); random.IntN(4) == 0 {
			skipped = append(skipped, snap)
		} else {
			check(snap)
		}
	}
	for _, snap := range skipped {
		check(snap)
	}
}
