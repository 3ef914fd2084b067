package engine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine/limits"
)

// Limits bounds stored and accepted data; see package limits.
type Limits = limits.Limits

// usage counts the records of a writer that are in force, without deletions.
type usage struct{ records, bytes int }

// Usage counts the records in force whose last change is by one writer. Deletions do not count.
type Usage struct {
	Writer         Writer
	Records, Bytes int
}

// account adds a record to the totals, or removes it if sign is -1.
func (e *Engine) account(r *Record, sign int) {
	e.bytes += sign * len(r.Encoded())
	if r.Deleted {
		e.contain(Key{Kind: r.Key.Kind, Name: r.Key.Name}, 0)
		e.tombs += sign
		return
	}
	e.contain(r.Key, sign)
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
func (e *Engine) overLimit(old, x *limits.Extent) string {
	d, u, l := limits.DeltaOf(old, x), e.usageOf(x.Writer), e.cfg.Limits
	switch {
	case x.Deleted && old != nil:
		return ""
	case x.Deleted && e.tombs >= receiveLimit(l.Tombstones):
		return whyDeletionsFull
	case d.Records > 0 && u.records+d.Records > receiveLimit(l.WriterRecords),
		d.Bytes > 0 && u.bytes+d.Bytes > receiveLimit(l.WriterBytes):
		return whyWriterFull
	case d.Total > 0 && e.bytes+d.Total > receiveLimit(l.Bytes):
		return whyStoreFull
	}
	return ""
}

// checkBatch returns an error if local changes would exceed a limit together.
func (e *Engine) checkBatch(b limits.Batch) error {
	l, u := e.cfg.Limits, e.usageOf(Writer(e.cfg.Self[:8]))
	const remedy = "nothing was stored; delete records that are not needed, or make some changes on another node"
	switch {
	case b.Records > 0 && u.records+b.Records > l.WriterRecords:
		return fmt.Errorf("%w: %d records of the pool would have their last change on this node, at most %d are allowed; "+
			remedy, ErrFull, u.records+b.Records, l.WriterRecords)
	case b.Bytes > 0 && u.bytes+b.Bytes > l.WriterBytes:
		return fmt.Errorf("%w: the records that were last changed on this node would have %d bytes, at most %d are allowed; "+
			remedy, ErrFull, u.bytes+b.Bytes, l.WriterBytes)
	case b.Deletions > 0 && e.tombs+b.Deletions > l.Tombstones:
		return fmt.Errorf("%w: %d deletions would be stored, at most %d are allowed; nothing was stored; a deletion expires "+
			"after %s", ErrFull, e.tombs+b.Deletions, l.Tombstones, l.Horizon)
	case b.Total > 0 && e.bytes+b.Total > l.Bytes+l.Bytes/8: // more than for manifests: policies have priority
		return fmt.Errorf("%w: all records and items of the pool would have %d bytes, at most %d are allowed; nothing was "+
			"stored; delete records that are not needed", ErrFull, e.bytes+b.Total, l.Bytes+l.Bytes/8)
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
