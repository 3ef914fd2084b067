package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/limits"
)

// Reasons of refusals.
const (
	ReasonClock   = "clock"   // dated in the future; the version takes effect at its date
	ReasonCluster = "cluster" // it belongs to another cluster
	ReasonDamaged = "damaged" // a saved value is unreadable, and no peer has sent the entry yet
	ReasonLimbo   = "limbo"   // it may have been deleted long ago
	ReasonLimit   = "limit"   // it exceeds a limit of this node
	ReasonName    = "name"    // it claims a display name that belongs to another key
	ReasonEra     = "era"     // of an era that has not begun here
	ReasonVoid    = "void"    // a heal of the pool made it void
	ReasonOld     = "old"     // a deletion that expires soon, or a part of an earlier set of items
	ReasonTrust   = "trust"   // its signature is not valid, or its signer may not write it
)

// Refusal is a version that this node knows and does not apply. While there is one, the roots of
// two nodes can differ.
type Refusal struct {
	Key     Key    // zero for a manifest and for unreadable values
	Node    NodeID // owner of a manifest; zero for a record
	Writer  Writer // of a record
	Version string // Record.ID; "" if unknown
	Reason  string // one of the Reason constants
	Detail  string
	Since   time.Time // wall time of the first refusal
	// Withheld means that the version was in force before the policy excluded it.
	Withheld bool
}

// refusal is a rejected version that is not requested again before until. It is listed for
// refusedFor longer.
type refusal struct {
	Refusal
	until  time.Time
	extent *limits.Extent // of a record

	byPolicy bool
}

// Parameters of refusals.
const (
	refusedFor = 10 * time.Minute // a rejected version is not requested again for this time
	maxRefused = 16384            // rejected versions to remember
	maxDamaged = 100              // unreadable values to list
	listedEach = 100              // refusals of a reason that Refusals returns
)

// reasonOf returns the reason for a text that counts rejected versions.
func reasonOf(why string) string {
	switch why {
	case whyFuture, whyParkedFull:
		return ReasonClock
	case whyLimbo, whyGuest:
		return ReasonLimbo
	case whyCluster:
		return ReasonCluster
	case whyEra:
		return ReasonEra
	case whyVoid, whyEvicted:
		return ReasonVoid
	case whyExpired, whyEarlierSet:
		return ReasonOld
	case whySignature, whyPolicy, whyUnsigned, whyAlive:
		return ReasonTrust
	}
	return ReasonLimit
}

// Why a version was rejected, as counters name it.
const (
	whyFuture        = "future"
	whyParkedFull    = "future, and too many of them"
	whyExpired       = "expired"
	whyLimbo         = "limbo"
	whyGuest         = "guest"
	whyWriterFull    = limits.WriterFull
	whyStoreFull     = limits.StoreFull
	whyDeletionsFull = limits.DeletionsFull
	whyEarlierSet    = "shard of an earlier set"
	whyCluster       = "other cluster"
	whyEra           = "era that has not begun; it takes effect after the heal of the pool arrives"
	whyVoid          = "void since a heal of the pool"
	whyEvicted       = "its owner or signer was evicted by a heal of the pool"
	whySignature     = "signature not valid"
	whyPolicy        = "not permitted"
	whyUnsigned      = "no signature, but the node has a key"
	whyAlive         = "its node is alive"
)

// refuseRecord records a rejected version, so it is not requested again for some time.
func (e *Engine) refuseRecord(r *Record, why string) {
	e.refuse(r.Head(),
		refusal{Refusal: Refusal{Key: r.Key, Writer: r.Writer, Version: r.ID()}, extent: e.extentOf(r)}, why)
}

// refuseManifest records a rejected version, so it is not requested again for some time.
func (e *Engine) refuseManifest(m *Manifest, why string) {
	e.refuse(m.Head(), refusal{Refusal: Refusal{Node: m.Node}}, why)
}

func (e *Engine) refuse(h Head, r refusal, why string) {
	e.count("refused: " + why)
	old := e.refused[h]
	if old == nil {
		if len(e.refused) >= maxRefused || why == whySignature && len(e.refused) >= maxRefused/4 {
			e.count("refusal not remembered: too many")
			return
		}
		r.Since = e.wall
		old = &r
		e.refused[h] = old
	}
	old.byPolicy = old.byPolicy || why == whyPolicy
	old.Reason, old.Detail, old.until = reasonOf(why), cmp.Or(r.Detail, why), e.now.Add(refusedFor)
	switch {
	case why == whySignature, why == whyAlive:
		old.until = e.now // the version is not refused with a valid signature, or later
	case strings.HasPrefix(old.Detail, ReasonName+": "):
		old.Reason = ReasonName
	}
	if old.Reason == ReasonLimit && e.now.Sub(e.limitNote) >= time.Minute {
		e.limitNote = e.now
		e.note("limit",
			fmt.Sprintf("%s of a peer is not stored (%s), so this node differs from its peers; raise the limit or "+
				"delete records that are not needed", old.subject(), why))
	}
}

// subject names the entry.
func (r *Refusal) subject() string {
	if r.Key == (Key{}) {
		return "the manifest of node " + r.Node.String()
	}
	return r.Key.String()
}

// addDamaged lists an unreadable saved value.
func (e *Engine) addDamaged(op Op, err error) {
	e.count("damaged")
	e.note("damaged", fmt.Sprintf("skipped an unreadable saved value of %s: %v", op.Bucket, err))
	d := Refusal{Reason: ReasonDamaged, Detail: fmt.Sprintf("%s: %v", op.Bucket, err), Since: e.wall}
	switch {
	case len(e.damaged) >= maxDamaged:
	case op.Record != nil:
		d.Key = op.Record.Key
		e.damaged[d.Key.Slot()] = d
	case len(op.Key) == len(Slot{}):
		e.damaged[Slot([]byte(op.Key))] = d
	}
}

// pruneRefusals drops versions that are superseded, or were not offered for long. Versions that
// would no longer exceed a limit are requested again.
func (e *Engine) pruneRefusals() {
	for h, r := range e.refused {
		en := e.entries[h.Slot]
		if r.Reason == ReasonLimit && r.extent != nil && r.until.After(e.now) && e.overLimit(e.extentIn(en), r.extent) == "" {
			r.until = e.now
		}
		if en != nil && !en.head.Version.Less(h.Version) || e.now.Sub(r.until) >= refusedFor {
			delete(e.refused, h)
		}
	}
	for slot := range e.damaged {
		if e.entries[slot] != nil {
			delete(e.damaged, slot)
		}
	}
}

// Refusals returns up to 100 versions of each reason that this node does not apply, the first ones
// first, and the number of all of them by reason.
func (e *Engine) Refusals() (list []Refusal, total map[string]int) {
	all := e.allRefusals()
	slices.SortFunc(all, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), a.Since.Compare(b.Since), a.Key.Compare(b.Key),
			cmp.Compare(string(a.Node[:]), string(b.Node[:])), cmp.Compare(a.Version, b.Version))
	})
	total = map[string]int{}
	for _, r := range all {
		if total[r.Reason]++; total[r.Reason] <= listedEach {
			list = append(list, r)
		}
	}
	return list, total
}

func (e *Engine) allRefusals() []Refusal {
	var all []Refusal
	of := func(r *Record, reason, detail string, since time.Time) {
		all = append(all,
			Refusal{Key: r.Key, Writer: r.Writer, Version: r.ID(), Reason: reason, Detail: detail, Since: since})
	}
	for _, p := range e.parked {
		of(p.record, ReasonClock, "takes effect at "+p.record.HLC.Time().UTC().Format(time.RFC3339), p.since)
	}
	for _, w := range e.allWithheld() {
		r := Refusal{Version: "", Reason: ReasonTrust, Detail: w.why, Since: w.since, Withheld: true}
		if w.record != nil {
			r.Key, r.Writer, r.Version = w.record.Key, w.record.Writer, w.record.ID()
		} else {
			r.Node = w.manifests[0].Node
		}
		all = append(all, r)
	}
	for _, r := range e.limbo {
		of(r, ReasonLimbo, whyLimbo, time.Time{})
	}
	for h, r := range e.refused {
		if l := e.limbo[h.Slot]; l == nil || l.Version() != h.Version {
			all = append(all, r.Refusal)
		}
	}
	for _, r := range e.damaged {
		all = append(all, r)
	}
	return all
}
