// Package clock compares the clocks of nodes.
package clock

import (
	"cmp"
	"slices"
	"time"
)

const minSkew = 2 * time.Second // smaller differences between clocks are ignored

// Apart reports whether an offset between two clocks is not an error of measurement.
func Apart(d time.Duration) bool { return d > minSkew || d < -minSkew }

// Compare returns the offset of most peers' clocks from the local clock, given all, sorted. Two
// peers that agree are a majority over this node, and one that agrees with this node is a majority
// over the other. If there is no majority, known is false, and differs is the largest offset if
// there is one above 2 s.
func Compare(all []time.Duration) (most time.Duration, known bool, differs time.Duration) {
	switch n := len(all); {
	case n >= 3 || n == 2 && !Apart(all[1]-all[0]):
		return all[n/2], true, 0
	case n == 2 && (!Apart(all[0]) || !Apart(all[1])):
		return 0, true, 0
	case n == 0:
		return 0, false, 0
	}
	differs = slices.MaxFunc(all, func(a, b time.Duration) int { return cmp.Compare(a.Abs(), b.Abs()) })
	if !Apart(differs) {
		differs = 0
	}
	return 0, false, differs
}
