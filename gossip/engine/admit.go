package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// news is an entry that has a new version, and who brought it.
type news struct {
	slot Slot
	from string
}

// refuse remembers a version that is not taken.
func (e *Engine) refuse(h Head, why string) {
	e.count("refused: " + why)
	if len(e.refused) < maxRefused {
		e.refused[h] = e.now.Add(refusedFor)
	}
}

// known reports whether a version need not be asked for: it is there, it has lost, or it was
// refused.
func (e *Engine) known(h Head) bool {
	if en := e.entries[h.Slot]; en != nil && !en.head.Version.Less(h.Version) {
		return true
	}
	if _, ok := e.refused[h]; ok {
		return true
	}
	p := e.pending[h.Slot]
	return p != nil && !p.manifest.Version().Less(h.Version)
}

// mainland reports whether somebody who agreed last at a time knows of every deletion whose
// tombstone may be gone.
func (e *Engine) mainland(agreed time.Time) bool {
	return !agreed.IsZero() && e.judged().Sub(agreed) < e.cfg.Limits.Horizon-e.cfg.Limits.Horizon/30
}

// admit takes a record of a peer, and reports whether it is new and the winner. peerAgreed is when
// the peer last agreed with another.
func (e *Engine) admit(r *Record, peerAgreed time.Time) bool {
	h := r.head()
	en := e.entries[h.Slot]
	if en == nil || en.head.Version.Less(h.Version) {
		if why := e.reasonAgainst(en, r, h, peerAgreed); why != "" {
			e.refuse(h, why)
			return false
		}
	}
	if en == nil {
		e.setRecord(nil, r)
		return true
	}
	winner, loser, rel := Merge(en.record, r)
	if loser != nil && rel != Superseded {
		e.lost(winner, loser, rel)
	}
	if winner != r || en.head.Version == h.Version {
		if en.head.Version == h.Version && !bytes.Equal(winner.raw, en.record.raw) {
			en.record = winner // another signature
			e.out.Write = append(e.out.Write, recordOp(winner))
		}
		return false
	}
	e.setRecord(en, r)
	e.resolve(r)
	return true
}

// reasonAgainst says why a record that would win is not taken, "" if it is.
func (e *Engine) reasonAgainst(en *entry, r *Record, h Head, peerAgreed time.Time) string {
	if r.HLC > wall(e.judged().Add(maxSkew)) {
		return e.park(r, h)
	}
	if en == nil && r.HLC < e.cut {
		switch {
		case r.Deleted:
			return "expired" // what it deletes is not here, and it is not kept elsewhere for long either
		case e.mainland(e.agreed) && e.mainland(peerAgreed):
			e.toLimbo(r, "it is older than deletions are remembered here, and unknown here")
			return "limbo"
		case e.mainland(e.agreed) && !peerAgreed.IsZero():
			return "guest" // who brings it was away for so long that it will put it aside itself
		case e.mainland(e.agreed):
			e.toLimbo(r, "it is older than deletions are remembered here, and unknown here")
			return "limbo"
		}
	}
	return e.reasonOfBounds(en, r)
}

// reasonOfBounds says which bound a record would pass.
func (e *Engine) reasonOfBounds(en *entry, r *Record) string {
	if r.Deleted && en != nil {
		return "" // it takes less than what it replaces
	}
	records, size := 1, len(r.raw)
	if en != nil && en.record.Writer == r.Writer {
		records, size = 0, size-len(en.record.raw)
	}
	if u := e.usage[r.Writer]; u != nil && size > 0 &&
		(u.records+records > e.cfg.Limits.WriterRecords || u.bytes+size > e.cfg.Limits.WriterBytes) {
		return "writer full"
	}
	if e.bytes+size > e.cfg.Limits.Bytes+e.cfg.Limits.Bytes/8 { // more than nodes get: policies come first
		return "store full"
	}
	return ""
}

// park keeps a record that is dated in the future until its time comes.
func (e *Engine) park(r *Record, h Head) string {
	if old := e.parked[h.Slot]; old != nil && !old.Version().Less(h.Version) {
		return "future"
	}
	if e.parked[h.Slot] == nil && len(e.parked) >= e.cfg.Limits.Parked {
		return "future, and too many of them"
	}
	e.parked[h.Slot] = r
	e.note("future",
		fmt.Sprintf("%s is dated %s, in the future: it is put aside until then; check the clocks of the nodes",
			r.Key, r.HLC.Time().UTC().Format(time.RFC3339)))
	return "future"
}

func (e *Engine) releaseParked() {
	limit := wall(e.judged().Add(maxSkew))
	for _, slot := range sortedSlots(e.parked) {
		r := e.parked[slot]
		if r.HLC > limit {
			continue
		}
		delete(e.parked, slot)
		if e.admit(r, e.agreed) {
			e.news = append(e.news, news{slot: slot})
		}
	}
}

// sortedSlots returns the slots of a map in order: the same events give the same actions.
func sortedSlots[V any](m map[Slot]V) []Slot {
	return slices.SortedFunc(maps.Keys(m), func(a, b Slot) int { return bytes.Compare(a[:], b[:]) })
}

func (e *Engine) toLimbo(r *Record, why string) {
	slot := r.Key.slot()
	old := e.limbo[slot]
	if old == nil && len(e.limbo) >= e.cfg.Limits.Limbo {
		e.count("limbo full")
		return
	}
	if old != nil && !old.Version().Less(r.Version()) {
		return
	}
	e.limbo[slot] = r
	e.write(bucketLimbo, string(slot[:]), r.raw)
	e.note("limbo", fmt.Sprintf("%s may have been deleted long ago, and is put aside: %s", r.Key, why))
}

// expire drops tombstones that are older than the horizon, and marks of forgotten nodes. All nodes
// do so by the same hours.
func (e *Engine) expire() {
	step := max(e.cfg.Limits.Horizon/720, time.Millisecond) // an hour of 30 days
	cut := wall(e.judged().Add(-e.cfg.Limits.Horizon).Truncate(step))
	if cut == e.cut {
		return
	}
	e.cut = cut
	oldest := uint64(max(e.judged().Add(-forgetFor).Unix(), 0))
	old := map[Slot]*entry{}
	for slot, en := range e.entries {
		if en.record != nil && en.record.Deleted && en.record.HLC < cut ||
			en.manifest != nil && en.manifest.Forgotten && en.manifest.Epoch() < oldest && !e.live.up(en.manifest.Node) {
			old[slot] = en
		}
	}
	for _, slot := range sortedSlots(old) {
		if en := old[slot]; en.record != nil {
			e.dropRecord(en)
		} else {
			e.dropManifest(en)
		}
	}
	for _, c := range e.conflicts.older(e.now.Add(-conflictsFor)) {
		e.dropConflict(c)
	}
}

// receiveRecords takes the records of a message.
func (e *Engine) receiveRecords(m *message) {
	agreed := time.Time{}
	if m.Agreed > 0 {
		agreed = time.UnixMilli(int64(min(m.Agreed, 1<<52)))
	}
	for _, r := range m.Records {
		slot := r.Key.slot()
		if e.admit(r.clone(), agreed) {
			e.news = append(e.news, news{slot, m.From})
		}
		e.gotten(slot)
	}
}

// clone returns a record that does not retain the message that it came in.
func (r *Record) clone() *Record {
	c := *r
	c.raw = bytes.Clone(r.raw)
	c.Body, c.Signature = r.partOf(c.raw, r.Body), r.partOf(c.raw, r.Signature)
	return &c
}

// partOf returns the part of a copy of r.raw at which a part of r.raw is. Both end where their
// array does, so that their capacities tell where the part begins.
func (r *Record) partOf(raw, part []byte) []byte {
	if part == nil {
		return nil
	}
	at := cap(r.raw) - cap(part)
	return raw[at : at+len(part)]
}
