package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// news is an entry with a new version, and the peer that sent it.
type news struct {
	slot   Slot
	from   string
	parked bool // the version is parked
}

// known reports whether a version need not be requested: it is present, parked, lost, or was
// rejected.
func (e *Engine) known(h Head) bool {
	if en := e.entries[h.Slot]; en != nil && !en.head.Version.Less(h.Version) {
		return true
	}
	if r := e.refused[h]; r != nil && r.until.After(e.now) {
		return true
	}
	if e.withholds(h) != nil {
		return true
	}
	if r := e.aside(h.Slot); r != nil && !r.Version().Less(h.Version) {
		return true
	}
	p := e.pending[h.Slot]
	return p != nil && !p.manifest.Version().Less(h.Version)
}

// knowsDeletions reports whether a node that last agreed with a peer at this time has seen every
// deletion whose tombstone may have expired.
func (e *Engine) knowsDeletions(agreed time.Time) bool {
	margin := e.cfg.Limits.Horizon / 30 // a date further ahead comes from a wrong clock
	away := e.poolTime().Sub(agreed)
	return !agreed.IsZero() && away < e.cfg.Limits.Horizon-margin && away > -margin
}

// admit merges a record from a peer, and reports whether it is new and the winner. peerAgreed is
// the time at which the peer last agreed with another.
func (e *Engine) admit(r *Record, from string, peerAgreed time.Time) bool {
	h := r.Head()
	if why := e.objection(r); why != "" {
		e.forged.Take(e.now, 1)
		e.refuseByPolicy(r, why)
		return false
	}
	if why := e.voids(r); why != "" {
		e.refuseRecord(r, why)
		return false
	}
	en := e.entries[h.Slot]
	if en == nil || en.head.Version.Less(h.Version) {
		if r.HLC.Date() > record.Wall(e.poolTime().Add(maxSkew)) {
			e.park(r, from)
			return false
		}
		if e.mustHold(r) {
			e.hold(r, from)
			return false
		}
		if why := e.reasonAgainst(en, r, peerAgreed); why != "" {
			e.refuseRecord(r, why)
			return false
		}
	}
	if en == nil {
		e.setRecord(nil, r)
		return true
	}
	winner, loser, rel := Merge(en.record, r)
	if loser != nil && rel != Superseded {
		e.addConflict(winner, loser, rel)
	}
	if winner != r || en.head.Version == h.Version {
		if en.head.Version == h.Version && !bytes.Equal(winner.Encoded(), en.record.Encoded()) {
			first := en.record.Signer() == sign.ID{}
			e.account(en.record, -1)
			en.record = winner // a different signature
			e.account(winner, 1)
			e.out.Write = append(e.out.Write, recordOp(winner))
			e.out.Changed = append(e.out.Changed, Change{Key: r.Key})
			return first
		}
		return false
	}
	e.setRecord(en, r)
	e.resolve(r)
	return true
}

// reasonAgainst returns why a record that would win is rejected, or "".
func (e *Engine) reasonAgainst(en *entry, r *Record, peerAgreed time.Time) string {
	if en == nil && r.Deleted && r.HLC.Date() < e.cut {
		return whyExpired // its target is unknown here, and other nodes will soon drop it too
	}
	if en == nil && !r.Deleted && r.HLC.Date() < e.cut && e.knowsDeletions(e.agreed) && !e.excludedBefore(r) &&
		e.holds.held[r.Key.Slot()] == nil {
		if !peerAgreed.IsZero() && !e.knowsDeletions(peerAgreed) {
			return whyGuest // the peer was away too long, and will move the record to limbo itself
		}
		e.toLimbo(r, "it is older than all remembered deletions, and this node does not have it")
		return whyLimbo
	}
	return e.overLimit(e.extentIn(en), e.extentOf(r))
}

// sortedSlots returns the slots of a map in order, so the same events produce the same actions.
func sortedSlots[V any](m map[Slot]V) []Slot {
	return slices.SortedFunc(maps.Keys(m), func(a, b Slot) int { return bytes.Compare(a[:], b[:]) })
}

func (e *Engine) toLimbo(r *Record, why string) {
	slot := r.Key.Slot()
	old := e.limbo[slot]
	if old == nil && len(e.limbo) >= e.cfg.Limits.Limbo {
		e.count("limbo full")
		return
	}
	if old != nil && !old.Version().Less(r.Version()) {
		return
	}
	e.limbo[slot] = r
	e.write(bucketLimbo, string(slot[:]), r.Encoded())
	e.note("limbo", fmt.Sprintf("%s may have been deleted long ago and is in limbo: %s", r.Key, why))
}

// expire drops tombstones older than the horizon, and old marks of forgotten nodes. The time is
// truncated, so all nodes expire the same entries.
func (e *Engine) expire() {
	step := max(e.cfg.Limits.Horizon/720, time.Millisecond) // an hour if the horizon is 30 days
	e.ancient = record.Wall(e.poolTime().Add(-e.cfg.Limits.Horizon).Truncate(step))
	age := e.ageTime()
	cut := record.Wall(age.Add(-e.cfg.Limits.Horizon).Truncate(step))
	if cut == e.cut {
		return
	}
	e.cut = cut
	oldest := uint64(max(age.Add(-forgetFor).Unix(), 0))
	old := map[Slot]*entry{}
	for slot, en := range e.entries {
		if en.record != nil && en.record.Deleted && en.record.HLC.Date() < cut ||
			en.manifest != nil && en.manifest.Forgotten && started(en.manifest) < oldest && !e.live.Up(en.manifest.Node) {
			old[slot] = en
		}
	}
	for _, slot := range sortedSlots(old) {
		if en := old[slot]; en.record != nil {
			e.dropRecord(en)
		} else {
			e.dropOwner(en.manifest.Owner())
		}
	}
	for _, c := range e.conflicts.older(age.Add(-conflictsFor)) {
		e.dropConflict(c)
	}
}

// foreign reports whether an entry belongs to another cluster. Earlier builds name none, but do not
// sign.
func (e *Engine) foreign(cluster string, signature []byte) bool {
	return (cluster != "" || len(signature) > 0) && e.cfg.Cluster != "" && cluster != e.cfg.Cluster
}

// receiveRecords merges the records of a message.
func (e *Engine) receiveRecords(m *message) {
	agreed := time.Time{}
	if m.Agreed > 0 {
		agreed = time.UnixMilli(int64(min(m.Agreed, 1<<52)))
	}
	for _, r := range m.Records {
		slot := r.Key.Slot()
		if en := e.entries[slot]; en != nil && en.record != nil && bytes.Equal(en.record.Encoded(), r.Encoded()) {
			e.dropKnown(slot)
			continue
		}
		if e.foreign(r.Cluster, r.Signature) {
			e.refuseRecord(r, whyCluster)
			e.dropKnown(slot)
			continue
		}
		if e.flooded(m) {
			continue
		}
		r = r.Clone()
		if err := r.Verify(); err != nil {
			e.distrust(r.Head(), Refusal{Key: r.Key, Writer: r.Writer, Version: r.ID(), Detail: err.Error()}, whySignature)
			continue
		}
		if e.admit(r, m.From, agreed) {
			e.news = append(e.news, news{slot: slot, from: m.From})
		}
		e.dropKnown(slot)
	}
}
