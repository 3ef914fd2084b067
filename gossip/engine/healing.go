package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/heal"
)

// Heal begins an era: the versions that its statement voids are dropped, and refused for ever. The
// engine saves it.
type Heal struct{ heal.Statement }

func (Heal) event() {}

// Era returns the current era. Local changes are written in it.
func (e *Engine) Era() uint8 { return e.heals.Era() }

// Heals returns the statements in force, by era.
func (e *Engine) Heals() []heal.Statement { return slices.Clone(e.heals.All()) }

// Voided returns the entries that a statement would drop, without those that are not in force. A
// node or directory is represented by its first manifest.
func (e *Engine) Voided(s heal.Statement) (records []*Record, owners []*Manifest) {
	var l heal.List
	l.Add(s)
	for _, r := range e.Versions() {
		if l.Void(voidable(r)) != "" {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b *Record) int { return a.Key.Compare(b.Key) })
	for _, m := range append(e.owners(false), e.owners(true)...) {
		if e.evicts(&l, m) {
			owners = append(owners, m)
		}
	}
	return records, owners
}

func voidable(r *Record) heal.Version {
	return heal.Version{Era: r.HLC.Era(), Date: r.HLC.Time(), Kind: r.Key.Kind, Writer: r.Writer, Signer: r.Signer()}
}

// evicts reports whether the owner or the signer of a manifest was evicted. This node keeps its own
// items.
func (e *Engine) evicts(l *heal.List, m *Manifest) bool {
	return m.Owner() != e.own.owner && (l.Evicts(m.Node) || l.Evicts(m.Signer()))
}

// voids returns why a record from a peer is void, or is of an era that has not begun, or "".
func (e *Engine) voids(r *Record) string {
	switch {
	case e.heals.Void(voidable(r)) != "":
		return whyVoid
	case r.HLC.Era() > e.heals.Era():
		return whyEra
	}
	return ""
}

// heal puts a statement into force, and requests versions of its era.
func (e *Engine) heal(s heal.Statement) {
	if s.Validate() != nil || !e.heals.Add(s) {
		return
	}
	e.note("heal", fmt.Sprintf("the pool was healed at %s: era %d begins", s.At.UTC().Format(time.RFC3339), s.Era))
	e.dropVoid()
	e.resetEpochs()
	e.out.Durable = append(e.out.Durable, Op{Bucket: bucketHeals, Key: s.Key(), Value: s.Encode()})
	e.askRefused(ReasonEra, ReasonVoid)
}

// resetEpochs drops items whose epoch is too far ahead for other nodes to accept them, and
// publishes those of this node with the present epoch.
func (e *Engine) resetEpochs() {
	limit := e.seconds() + futureEpoch
	for _, m := range append(e.owners(false), e.owners(true)...) {
		if started(m) > limit {
			e.dropOwner(m.Owner())
		}
	}
	for _, slot := range sortedSlots(e.pending) {
		if p := e.pending[slot]; p != nil && started(p.manifest) > limit {
			e.dropPending(p)
		}
	}
	if e.own.epoch > limit {
		e.own.epoch = 0
		e.startEpoch()
	}
	if e.own.published && e.sets[e.own.owner] == nil {
		e.publish(&e.own.publication)
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.published), func(a, b NodeID) int {
		return bytes.Compare(a[:], b[:])
	}) {
		if p := e.published[id]; e.sets[p.owner] == nil && !e.heals.Evicts(id) {
			p.epoch = 0
			e.publish(p)
		}
	}
}

// askRefused requests the versions again that were refused for some reasons.
func (e *Engine) askRefused(reasons ...string) {
	for _, r := range e.refused {
		if slices.Contains(reasons, r.Reason) {
			r.until = e.now
		}
	}
	for _, p := range e.peers {
		p.tries, p.roots = 0, [2]Digest{}
	}
	e.joinTries, e.joinAt = joinTries, e.now
}

// dropVoid drops all void versions.
func (e *Engine) dropVoid() {
	void := func(r *Record) bool { return e.voids(r) == whyVoid }
	for _, slot := range sortedSlots(e.entries) {
		switch en := e.entries[slot]; {
		case en == nil: // of an owner that was dropped
		case en.record != nil && void(en.record):
			e.count("void")
			e.note("void", fmt.Sprintf("%s of %s is void: %s", en.record.Key, en.record.HLC.Time().UTC().Format(time.RFC3339),
				e.heals.Void(voidable(en.record))))
			e.dropRecord(en)
		case en.manifest != nil && e.evicts(&e.heals, en.manifest):
			e.count("void")
			e.note("void", fmt.Sprintf("the items of %s are void: it was evicted", en.manifest.Node))
			e.dropOwner(en.manifest.Owner())
		}
	}
	for _, c := range e.conflicts.all() {
		if void(c.Record) {
			e.dropConflict(c)
		}
	}
	for _, slot := range sortedSlots(e.parked) {
		if void(e.parked[slot].record) {
			e.unpark(slot)
		}
	}
	for _, slot := range sortedSlots(e.limbo) {
		if void(e.limbo[slot]) {
			delete(e.limbo, slot)
			e.write(bucketLimbo, string(slot[:]), nil)
		}
	}
	for _, slot := range sortedSlots(e.holds.held) {
		if void(e.holds.held[slot]) {
			e.dropHeld(slot)
		}
	}
	for _, w := range e.allWithheld() {
		if w.record != nil && void(w.record) ||
			w.record == nil && e.evicts(&e.heals, w.manifests[0]) {
			e.dropWithheld(w)
		}
	}
	for _, slot := range sortedSlots(e.pending) {
		if p := e.pending[slot]; p != nil && e.evicts(&e.heals, p.manifest) {
			e.dropPending(p)
		}
	}
}
