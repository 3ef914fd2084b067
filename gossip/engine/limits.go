package engine

import (
	"bytes"
	"fmt"
	"slices"
	"time"
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

func (l Limits) withDefaults() Limits {
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

// usage counts the records of a writer that are in force, without deletions.
type usage struct{ records, bytes int }

// Usage counts the records in force whose last change is by one writer. Deletions do not count.
type Usage struct {
	Writer         Writer
	Records, Bytes int
}

// extent holds the properties of a version that count against limits.
type extent struct {
	writer  Writer
	size    int
	deleted bool
}

func extentOf(r *Record) *extent {
	if r == nil {
		return nil
	}
	return &extent{r.Writer, len(r.Encoded()), r.Deleted}
}

// delta describes how the totals of the engine change.
type delta struct {
	records, bytes int // of the writer of the new version
	deletions      int
	total          int // bytes of all entries
}

// deltaOf returns how the totals change if a version replaces another, which may be nil.
func deltaOf(old, x *extent) (d delta) {
	if d.total = x.size; x.deleted {
		d.deletions = 1
	} else {
		d.records, d.bytes = 1, x.size
	}
	if old == nil {
		return d
	}
	if d.total -= old.size; old.deleted {
		d.deletions--
	} else if old.writer == x.writer {
		d.records--
		d.bytes -= old.size
	}
	return d
}

// account adds a record to the totals, or removes it if sign is -1.
func (e *Engine) account(r *Record, sign int) {
	e.bytes += sign * len(r.Encoded())
	if r.Deleted {
		e.tombs += sign
		return
	}
	u := e.usage[r.Writer]
	if u == nil {
		u = &usage{}
		e.usage[r.Writer] = u
	}
	u.records += sign
	u.bytes += sign * len(r.Encoded())
	if u.records == 0 {
		delete(e.usage, r.Writer)
	}
}

func (e *Engine) usageOf(w Writer) usage {
	if u := e.usage[w]; u != nil {
		return *u
	}
	return usage{}
}

// receiveLimit returns how much a node accepts from peers whose limit for their own changes is n.
// It is higher, because nodes receive changes in different orders.
func receiveLimit(n int) int { return n + (n+3)/4 }

// overLimit returns the limit that a version from a peer would exceed, or "". The deletion of a
// record in force is always accepted.
func (e *Engine) overLimit(old, x *extent) string {
	d, u, l := deltaOf(old, x), e.usageOf(x.writer), e.cfg.Limits
	switch {
	case x.deleted && old != nil:
		return ""
	case x.deleted && e.tombs >= receiveLimit(l.Tombstones):
		return whyDeletionsFull
	case d.records > 0 && u.records+d.records > receiveLimit(l.WriterRecords),
		d.bytes > 0 && u.bytes+d.bytes > receiveLimit(l.WriterBytes):
		return whyWriterFull
	case d.total > 0 && e.bytes+d.total > receiveLimit(l.Bytes):
		return whyStoreFull
	}
	return ""
}

// batch sums the changes of a call of Prepare.
type batch struct{ delta }

func (b *batch) add(old, x *extent) {
	d := deltaOf(old, x)
	b.records += d.records
	b.bytes += d.bytes
	b.deletions += d.deletions
	if b.total += d.total; x.deleted && d.total > 0 && old != nil {
		b.total -= d.total // a full store accepts deletions
	}
}

// checkBatch returns an error if local changes would exceed a limit together.
func (e *Engine) checkBatch(b batch) error {
	l, u := e.cfg.Limits, e.usageOf(Writer(e.cfg.Self[:8]))
	const remedy = "nothing was stored; delete records that are not needed, or make some changes on another node"
	switch {
	case b.records > 0 && u.records+b.records > l.WriterRecords:
		return fmt.Errorf("%w: %d records of the pool would have their last change on this node, at most %d are allowed; "+
			remedy, ErrFull, u.records+b.records, l.WriterRecords)
	case b.bytes > 0 && u.bytes+b.bytes > l.WriterBytes:
		return fmt.Errorf("%w: the records that were last changed on this node would have %d bytes, at most %d are allowed; "+
			remedy, ErrFull, u.bytes+b.bytes, l.WriterBytes)
	case b.deletions > 0 && e.tombs+b.deletions > l.Tombstones:
		return fmt.Errorf("%w: %d deletions would be stored, at most %d are allowed; nothing was stored; a deletion expires "+
			"after %s", ErrFull, e.tombs+b.deletions, l.Tombstones, l.Horizon)
	case b.total > 0 && e.bytes+b.total > l.Bytes+l.Bytes/8: // more than for manifests: policies have priority
		return fmt.Errorf("%w: all records and items of the pool would have %d bytes, at most %d are allowed; nothing was "+
			"stored; delete records that are not needed", ErrFull, e.bytes+b.total, l.Bytes+l.Bytes/8)
	}
	return nil
}

// maxFull limits the list of writers at their limit.
const maxFull = 100

// fullWriters returns the writers that have reached the limit for own changes of this node.
func (e *Engine) fullWriters() (out []Usage) {
	for w, u := range e.usage {
		if u.records >= e.cfg.Limits.WriterRecords || u.bytes >= e.cfg.Limits.WriterBytes {
			out = append(out, Usage{w, u.records, u.bytes})
		}
	}
	slices.SortFunc(out, func(a, b Usage) int { return bytes.Compare(a.Writer[:], b.Writer[:]) })
	return out[:min(len(out), maxFull)]
}
