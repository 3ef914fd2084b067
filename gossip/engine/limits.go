package engine

import (
	"bytes"
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

// totals returns what counts against the limits at present, for a version of a writer.
func (e *Engine) totals(w Writer) limits.Delta {
	u := e.usageOf(w)
	return limits.Delta{Records: u.records, Bytes: u.bytes, Deletions: e.tombs, Total: e.bytes}
}

// overLimit returns the limit that a version from a peer would exceed, or "".
func (e *Engine) overLimit(old, x *limits.Extent) string {
	return e.cfg.Limits.Over(old, x, e.totals(x.Writer))
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
