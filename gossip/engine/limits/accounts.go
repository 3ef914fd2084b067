package limits

import (
	"bytes"
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Bounds of all senders together, and of records of unknown kinds.
const (
	UnknownEach = 1 << 20  // bytes of unknown kinds that one sender signed
	UnknownAll  = 16 << 20 // bytes of unknown kinds
	// UnsignedShare is the share of [Limits.Bytes] that all unsigned records may use. Any member can
	// write them under any name.
	UnsignedShare = 4
)

// Account identifies the sender of a record: the key that signed it. The sender of an unsigned
// record is the writer that it names, followed by zeros, so it cannot use the account of a key.
type Account sign.ID

// AccountOf returns the account of a record.
func AccountOf(r *record.Record) (a Account) {
	if id := r.Signer(); id != (sign.ID{}) {
		return Account(id)
	}
	copy(a[:], r.Writer[:])
	return a
}

// Usage counts the records in force whose last change is by one sender. Deletions do not count.
type Usage struct {
	Writer         record.Writer // of a node; the first bytes of the key of an operator
	Records, Bytes int
	unknown        int // bytes of unknown kinds
}

// Accounts counts the records in force by sender.
type Accounts struct {
	of       map[Account]*Usage
	unsigned int // bytes
	unknown  int // bytes
}

// Add adds a record, or removes it if sign is -1.
func (a *Accounts) Add(x *Extent, sign int) {
	if a.of == nil {
		a.of = map[Account]*Usage{}
	}
	u := a.of[x.Account]
	if u == nil {
		u = &Usage{Writer: record.Writer(x.Account[:8])}
		a.of[x.Account] = u
	}
	u.Records += sign
	u.Bytes += sign * x.Size
	if !x.Signed {
		a.unsigned += sign * x.Size
	}
	if x.Unknown {
		u.unknown += sign * x.Size
		a.unknown += sign * x.Size
	}
	if u.Records == 0 {
		delete(a.of, x.Account)
	}
}

// Of returns the use of a sender.
func (a *Accounts) Of(id Account) Usage {
	if u := a.of[id]; u != nil {
		return *u
	}
	return Usage{Writer: record.Writer(id[:8])}
}

// over returns the limit that a new version of a sender would exceed besides its quota, or "".
// signs reports whether nodes of the pool sign their records.
func (a *Accounts) over(l Limits, x *Extent, signs bool) string {
	switch {
	case x.Deleted:
		return ""
	case x.Unknown && (a.Of(x.Account).unknown+x.Size > UnknownEach || a.unknown+x.Size > UnknownAll):
		return UnknownFull
	case !x.Signed && signs && a.unsigned+x.Size > l.Bytes/UnsignedShare:
		return UnsignedFull
	}
	return ""
}

// maxFull limits the list of senders at their limit.
const maxFull = 100

// Full returns up to 100 senders that have reached the limit for their own changes.
func (a *Accounts) Full(l Limits) (out []Usage) {
	for _, u := range a.of {
		if u.Records >= l.WriterRecords || u.Bytes >= l.WriterBytes {
			out = append(out, *u)
		}
	}
	slices.SortFunc(out, func(a, b Usage) int { return bytes.Compare(a.Writer[:], b.Writer[:]) })
	return out[:min(len(out), maxFull)]
}
