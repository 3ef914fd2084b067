package record

import (
	"bytes"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Relation describes how the losing version of a merge relates to the winner.
type Relation int

const (
	// Superseded: the winner was derived from it, has the same content, or is the same version.
	Superseded Relation = iota
	// Concurrent: the winner was written without knowledge of it.
	Concurrent
	// Undecided: it is older than the winner's lineage reaches. It is stored as a conflict too, so no
	// write is lost silently.
	Undecided
)

// String returns "superseded", "concurrent" or "undecided".
func (r Relation) String() string {
	return [...]string{"superseded", "concurrent", "undecided"}[r]
}

// Merge returns the winning version of a key, the loser, and their relation. Both must have the
// same key; either may be nil. The winner is the greater version, so merging is commutative,
// associative, and idempotent. If one version has two signatures, a verified one wins, and then the
// greater encoding.
func Merge(a, b *Record) (winner, loser *Record, rel Relation) {
	switch {
	case a == nil:
		return b, nil, Superseded
	case b == nil:
		return a, nil, Superseded
	case a.Version() == b.Version():
		if signed := b.signer != (sign.ID{}); signed != (a.signer != sign.ID{}) {
			if signed {
				a, b = b, a
			}
		} else if bytes.Compare(a.raw, b.raw) < 0 {
			a, b = b, a
		}
		return a, b, Superseded
	case a.Version().Less(b.Version()):
		a, b = b, a
	}
	return a, b, relate(a, b)
}

// relate returns the relation of a losing version to the winner.
func relate(winner, loser *Record) Relation {
	switch {
	case winner.Knows(loser), SameContent(winner, loser):
		return Superseded
	case loser.HLC < winner.reach():
		return Undecided
	}
	return Concurrent
}

// SameContent reports whether two versions have the same content.
func SameContent(a, b *Record) bool {
	return a.Deleted == b.Deleted && a.MediaType == b.MediaType && bytes.Equal(a.Body, b.Body)
}
