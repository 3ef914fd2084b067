package engine

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// withheld is an entry that was in force until the policy excluded it: a record, or all manifests
// of an owner. It comes back if the policy permits it again.
type withheld struct {
	record    *Record
	manifests []*Manifest
	bodies    map[BodyHash][]byte
	why       string
	since     time.Time // wall time
	size      int
}

// Limits of withheld entries. Their bytes are at most an eighth of Limits.Bytes.
const (
	maxWithheld  = 16384 // records and owners
	withheldEach = 4     // versions of one of them
)

// reconsider judges all entries, withholds those that are not permitted, returns withheld ones that
// are permitted again, and requests the versions that were refused before.
func (e *Engine) reconsider() {
	if e.cfg.Policy != nil {
		e.withholdRecords()
		e.withholdManifests()
		for _, slot := range sortedSlots(e.parked) {
			r := e.parked[slot].record
			if why := e.objection(r); why != "" {
				e.unpark(slot)
				e.refuseByPolicy(r, why)
			}
		}
		for _, slot := range sortedSlots(e.pending) {
			p := e.pending[slot]
			if why := e.cfg.Policy.Manifest(p.manifest); why != "" {
				e.dropPending(p)
				e.distrust(p.manifest.Head(), Refusal{Node: p.manifest.Node, Detail: why}, whyPolicy)
			}
		}
	}
	e.returnWithheld()
	for _, id := range slices.SortedFunc(maps.Keys(e.published), func(a, b NodeID) int {
		return bytes.Compare(a[:], b[:])
	}) {
		if p := e.published[id]; len(p.changed) > 0 {
			e.publish(p)
		}
	}
	e.askRefused(ReasonTrust, ReasonName)
}

func (e *Engine) withholdRecords() {
	for _, slot := range sortedSlots(e.entries) {
		en := e.entries[slot]
		if en.record == nil {
			continue
		}
		if why := e.objection(en.record); why != "" {
			e.withhold(&withheld{record: en.record, why: why, since: e.wall, size: len(en.record.Encoded())})
			e.dropRecord(en)
		}
	}
}

func (e *Engine) withholdManifests() {
	for _, m := range append(e.owners(false), e.owners(true)...) {
		o := m.Owner()
		why := ""
		for _, en := range e.sets[o].shards {
			if why == "" && o != e.own.owner {
				why = e.cfg.Policy.Manifest(en.manifest)
			}
		}
		if why == "" {
			continue
		}
		w := &withheld{bodies: map[BodyHash][]byte{}, why: why, since: e.wall}
		for _, en := range e.sets[o].shards {
			w.manifests = append(w.manifests, en.manifest)
			w.size += len(en.manifest.Encoded())
			for _, x := range en.manifest.Entries {
				b := e.bodies[x.Hash].data
				w.bodies[x.Hash] = b
				w.size += len(b)
			}
		}
		e.withhold(w)
		if p := e.published[o.ID]; o.Directory && p != nil {
			p.changed = append(p.changed, 0) // Reconsider publishes it when it is permitted
		}
		e.dropOwner(o)
	}
}

// withhold stores an entry that is no longer in force.
func (e *Engine) withhold(w *withheld) {
	e.count("withheld")
	if e.withheldCount >= maxWithheld || e.withheldBytes+w.size > e.cfg.Limits.Bytes/8 {
		e.count("withheld entry dropped: too many")
		return
	}
	e.putWithheld(w)
	e.write(bucketWithheld, w.key(), w.encode())
	if list := e.withheld[w.Head().Slot]; len(list) > withheldEach {
		e.dropWithheld(list[0])
		e.count("withheld entry dropped: too many of a key")
	}
}

// putWithheld adds an entry to those of its slot, which are sorted by version.
func (e *Engine) putWithheld(w *withheld) {
	h := w.Head()
	list := append(e.withheld[h.Slot], w)
	slices.SortFunc(list, func(a, b *withheld) int {
		if a.Head().Version.Less(b.Head().Version) {
			return -1
		}
		return 1
	})
	e.withheld[h.Slot] = list
	e.withheldBytes += w.size
	e.withheldCount++
}

func (e *Engine) dropWithheld(w *withheld) {
	slot := w.Head().Slot
	e.withheldBytes -= w.size
	e.withheldCount--
	e.withheld[slot] = slices.DeleteFunc(slices.Clone(e.withheld[slot]), func(x *withheld) bool { return x == w })
	if len(e.withheld[slot]) == 0 {
		delete(e.withheld, slot)
	}
	e.write(bucketWithheld, w.key(), nil)
}

// withholds returns a withheld version, or nil.
func (e *Engine) withholds(h Head) *withheld {
	for _, w := range e.withheld[h.Slot] {
		if w.Head() == h {
			return w
		}
	}
	return nil
}

// allWithheld returns all withheld entries, by slot and version.
func (e *Engine) allWithheld() (out []*withheld) {
	for _, slot := range sortedSlots(e.withheld) {
		out = append(out, e.withheld[slot]...)
	}
	return out
}

// dropSuperseded drops withheld versions that are not later than the one in force.
func (e *Engine) dropSuperseded(inForce Head) {
	for _, w := range e.withheld[inForce.Slot] {
		if !inForce.Version.Less(w.Head().Version) {
			e.dropWithheld(w)
		}
	}
}

// returnWithheld puts entries into force that the policy permits again.
func (e *Engine) returnWithheld() {
	for _, w := range e.allWithheld() {
		slot := w.Head().Slot
		switch en := e.entries[slot]; {
		case w.record != nil && e.objection(w.record) == "":
			e.dropWithheld(w)
			e.returnRecord(en, w.record)
		case w.record == nil && !slices.ContainsFunc(w.manifests, e.excluded):
			e.dropWithheld(w)
			if en == nil || en.head.Version.Less(w.Head().Version) && !e.stale(w.manifests[0]) {
				e.setManifests(w.manifests, w.bodies)
			}
		default:
			continue
		}
		e.news = append(e.news, news{slot: slot})
	}
}

// returnRecord puts a withheld record into force, however old it is.
func (e *Engine) returnRecord(en *entry, r *Record) {
	if en != nil {
		e.admit(r, "", e.agreed)
	} else if why := e.overLimit(nil, e.extentOf(r)); why != "" {
		e.refuseRecord(r, why)
	} else {
		e.setRecord(nil, r)
	}
}

func (e *Engine) excluded(m *Manifest) bool {
	return e.cfg.Policy != nil && e.cfg.Policy.Manifest(m) != ""
}

// key returns the key of the saved entry.
func (w *withheld) key() string { return string(w.Head().Append(nil)) }

func (w *withheld) Head() Head {
	if w.record != nil {
		return w.record.Head()
	}
	return w.manifests[0].Head()
}

// Fields of a saved withheld entry, after its time.
const (
	withheldRecord = iota + 1
	withheldManifest
	withheldBody
)

func (w *withheld) encode() []byte {
	b := putTime(w.since)
	if w.record != nil {
		b = wire.AppendBytes(b, withheldRecord, w.record.Encoded())
	}
	for _, m := range w.manifests {
		b = wire.AppendBytes(b, withheldManifest, m.Encoded())
	}
	for _, h := range slices.SortedFunc(maps.Keys(w.bodies), compareBodies) {
		b = protowire.AppendBytes(protowire.AppendTag(b, withheldBody, protowire.BytesType), w.bodies[h])
	}
	return b
}

func compareBodies(a, b BodyHash) int { return bytes.Compare(a[:], b[:]) }

// loadWithheld restores a saved withheld entry.
func (e *Engine) loadWithheld(value []byte) error {
	if len(value) < 8 {
		return errWithheld
	}
	w := &withheld{bodies: map[BodyHash][]byte{}, why: whyPolicy, since: getTime(value[:8]), size: len(value)}
	err := wire.Walk("withheld entry", value[8:], func(n protowire.Number) bool { return n > withheldRecord },
		func(f wire.Field) error {
			b, err := f.Take(len(value))
			switch {
			case err != nil:
			case f.Num == withheldRecord:
				w.record, err = e.loadRecord(b)
			case f.Num == withheldManifest:
				var m *Manifest
				m, err = e.loadManifest(b)
				w.manifests = append(w.manifests, m)
			case f.Num == withheldBody:
				w.bodies[HashBody(b)] = b
			}
			return err
		})
	if err == nil && w.record == nil {
		err = w.checkSet(e)
	}
	if err == nil {
		e.putWithheld(w)
	}
	return err
}

// checkSet returns an error unless all shards and bodies of an owner are present.
func (w *withheld) checkSet(e *Engine) error {
	if len(w.manifests) == 0 || len(w.manifests) != w.manifests[0].Shards {
		return errWithheld
	}
	for i, m := range w.manifests {
		if m.Index != i || m.Owner() != w.manifests[0].Owner() || !e.complete(m, w.bodies) {
			return errWithheld
		}
	}
	return nil
}

var errWithheld = errors.New("withheld entry is truncated")
