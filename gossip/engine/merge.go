package engine

import "bytes"

// Relation is what a merge says about the version that did not win.
type Relation int

const (
	// Superseded: the winner was made from it, or has the same content, or both are the same version.
	Superseded Relation = iota
	// Concurrent: whoever wrote the winner did not know it.
	Concurrent
	// Undecided: it is older than the lineage of the winner reaches. It is kept as a conflict too:
	// nothing is lost unseen.
	Undecided
)

// String returns "superseded", "concurrent" or "undecided".
func (r Relation) String() string {
	return [...]string{"superseded", "concurrent", "undecided"}[r]
}

// Merge picks the version of a key that all nodes come to, and says what the other one is to it.
// Both must be of one key; either may be nil. The winner is the greater version, so that merging is
// commutative, associative and idempotent; of one version with two signatures, the greater one is
// taken.
func Merge(a, b *Record) (winner, loser *Record, rel Relation) {
	switch {
	case a == nil:
		return b, nil, Superseded
	case b == nil:
		return a, nil, Superseded
	case a.Version() == b.Version():
		if bytes.Compare(a.raw, b.raw) < 0 {
			a, b = b, a
		}
		return a, b, Superseded
	case a.Version().Less(b.Version()):
		a, b = b, a
	}
	return a, b, relate(a, b)
}

// relate says what a version that lost is to the one that won.
func relate(winner, loser *Record) Relation {
	switch {
	case winner.knows(loser), sameContent(winner, loser):
		return Superseded
	case loser.HLC < winner.reach():
		return Undecided
	}
	return Concurrent
}

// sameContent reports whether two versions say the same, so that neither takes anything away from
// the other.
func sameContent(a, b *Record) bool {
	return a.Deleted == b.Deleted && a.MediaType == b.MediaType && bytes.Equal(a.Body, b.Body)
}
