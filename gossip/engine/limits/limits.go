// Package limits holds the limits of an engine.
package limits

import (
	"errors"
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Limits bounds stored and accepted data. Zero values select the defaults in brackets. A node
// accepts a quarter more from its peers than local changes may use, so no change that is within the
// limits of its writer is refused by a peer with the same limits.
type Limits struct {
	Horizon       time.Duration // lifetime of tombstones [30 days]
	WriterRecords int           // records in force with their last change on one node [10,000]
	WriterBytes   int           // their bytes [32 MiB]
	Bytes         int           // bytes of all entries [512 MiB]; 1/8 more for local changes of records
	Conflicts     int           // versions that lost to a concurrent write [1,000]
	Parked        int           // records dated in the future [1,000]
	Limbo         int           // records that may have been deleted long ago [1,000]
	Tombstones    int           // deletions [200,000]
	ShardItems    int           // items per shard of a node or directory [128]
}

// WithDefaults returns the limits with the defaults of zero values.
func (l Limits) WithDefaults() Limits {
	set := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	if l.Horizon == 0 {
		l.Horizon = 30 * 24 * time.Hour
	}
	set(&l.WriterRecords, 10000)
	set(&l.WriterBytes, 32<<20)
	set(&l.Bytes, 512<<20)
	set(&l.Conflicts, 1000)
	set(&l.Parked, 1000)
	set(&l.Limbo, 1000)
	set(&l.Tombstones, 200000)
	set(&l.ShardItems, 128)
	return l
}

// Extent holds the properties of a version that count against limits.
type Extent struct {
	Account Account
	Size    int
	Deleted bool
	Signed  bool
	Unknown bool // the kind is unknown
}

// ExtentOf returns the extent of a record, or nil for none. known tells which kinds are known; nil
// means all.
func ExtentOf(r *record.Record, known func(kind string) bool) *Extent {
	if r == nil {
		return nil
	}
	return &Extent{AccountOf(r), len(r.Encoded()), r.Deleted, r.Signer() != sign.ID{}, known != nil && !known(r.Key.Kind)}
}

// Delta describes how the totals of the engine change.
type Delta struct {
	Records, Bytes int // of the sender of the new version
	Deletions      int
	Total          int // bytes of all entries
}

// DeltaOf returns how the totals change if a version replaces another, which may be nil.
func DeltaOf(old, x *Extent) (d Delta) {
	if d.Total = x.Size; x.Deleted {
		d.Deletions = 1
	} else {
		d.Records, d.Bytes = 1, x.Size
	}
	if old == nil {
		return d
	}
	if d.Total -= old.Size; old.Deleted {
		d.Deletions--
	} else if old.Account == x.Account {
		d.Records--
		d.Bytes -= old.Size
	}
	return d
}

// Batch sums the changes of a call of Prepare.
type Batch struct{ Delta }

// Add adds a change.
func (b *Batch) Add(old, x *Extent) {
	d := DeltaOf(old, x)
	b.Records += d.Records
	b.Bytes += d.Bytes
	b.Deletions += d.Deletions
	if b.Total += d.Total; x.Deleted && d.Total > 0 && old != nil {
		b.Total -= d.Total // a full store accepts deletions
	}
}

// ErrFull means that a limit is reached.
var ErrFull = errors.New("a storage limit is reached")

// Limits that a version from a peer can exceed.
const (
	WriterFull    = "writer full"
	StoreFull     = "store full"
	DeletionsFull = "too many deletions"
	UnsignedFull  = "too many unsigned records"
	UnknownFull   = "too many records of unknown kinds"
)

// Received returns how much a node accepts from peers whose limit for their own changes is n. It is
// higher, because nodes receive changes in different orders.
func Received(n int) int { return n + (n+3)/4 }

// Over returns the limit that a version from a peer would exceed, or "", given the present totals.
// The deletion of a record in force is always accepted. signs reports whether nodes of the pool
// sign their records, so unsigned ones are those of earlier builds.
func (l Limits) Over(old, x *Extent, now Delta, a *Accounts, signs bool) string {
	d := DeltaOf(old, x)
	if why := a.over(l, x, signs); why != "" && d.Total > 0 {
		return why
	}
	switch {
	case x.Deleted && old != nil:
		return ""
	case x.Deleted && now.Deletions >= Received(l.Tombstones):
		return DeletionsFull
	case d.Records > 0 && now.Records+d.Records > Received(l.WriterRecords),
		d.Bytes > 0 && now.Bytes+d.Bytes > Received(l.WriterBytes):
		return WriterFull
	case d.Total > 0 && now.Total+d.Total > Received(l.Bytes):
		return StoreFull
	}
	return ""
}

// Check returns an error if local changes would exceed a limit together, given the present totals.
func (l Limits) Check(b Batch, now Delta) error {
	const remedy = "nothing was stored; delete records that are not needed, or make some changes on another node"
	switch {
	case b.Records > 0 && now.Records+b.Records > l.WriterRecords:
		return fmt.Errorf("%w: %d records of the pool would have their last change on this node, at most %d are allowed; "+
			remedy, ErrFull, now.Records+b.Records, l.WriterRecords)
	case b.Bytes > 0 && now.Bytes+b.Bytes > l.WriterBytes:
		return fmt.Errorf("%w: the records that were last changed on this node would have %d bytes, at most %d are allowed; "+
			remedy, ErrFull, now.Bytes+b.Bytes, l.WriterBytes)
	case b.Deletions > 0 && now.Deletions+b.Deletions > l.Tombstones:
		return fmt.Errorf("%w: %d deletions would be stored, at most %d are allowed; nothing was stored; a deletion expires "+
			"after %s", ErrFull, now.Deletions+b.Deletions, l.Tombstones, l.Horizon)
	case b.Total > 0 && now.Total+b.Total > l.Bytes+l.Bytes/8: // more than for manifests: policies have priority
		return fmt.Errorf("%w: all records and items of the pool would have %d bytes, at most %d are allowed; nothing was "+
			"stored; delete records that are not needed", ErrFull, now.Total+b.Total, l.Bytes+l.Bytes/8)
	}
	return nil
}
