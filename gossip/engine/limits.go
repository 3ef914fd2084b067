package engine

import (
	"github.com/nearside-mesh/nearside/gossip/engine/limits"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Limits bounds stored and accepted data; see package limits.
type Limits = limits.Limits

// Usage counts the records in force whose last change is by one sender; see package limits.
type Usage = limits.Usage

// account adds a record to the totals, or removes it if sign is -1.
func (e *Engine) account(r *Record, sign int) {
	e.bytes += sign * len(r.Encoded())
	if r.Deleted {
		e.contain(Key{Kind: r.Key.Kind, Name: r.Key.Name}, 0)
		e.tombs += sign
		return
	}
	e.contain(r.Key, sign)
	e.accounts.Add(e.extentOf(r), sign)
}

func (e *Engine) extentOf(r *Record) *limits.Extent { return limits.ExtentOf(r, e.cfg.Known) }

// self returns the account of this node.
func (e *Engine) self() (a limits.Account) {
	if e.cfg.Signer != nil {
		return limits.Account(sign.Fingerprint(e.cfg.Signer.Public()))
	}
	copy(a[:], e.cfg.Self[:8])
	return a
}

// totals returns what counts against the limits at present, for a version of a sender.
func (e *Engine) totals(a limits.Account) limits.Delta {
	u := e.accounts.Of(a)
	return limits.Delta{Records: u.Records, Bytes: u.Bytes, Deletions: e.tombs, Total: e.bytes}
}

// overLimit returns the limit that a version from a peer would exceed, or "".
func (e *Engine) overLimit(old, x *limits.Extent) string {
	return e.cfg.Limits.Over(old, x, e.totals(x.Account), &e.accounts, e.cfg.Signer != nil)
}
