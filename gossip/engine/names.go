package engine

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// bucketPins holds the keys of names.
const bucketPins = "pins"

const touchEvery = time.Minute // between updates of the pins of live nodes

// names binds names of nodes to keys. Its time is the wall time of the start plus the monotonic
// time since then, so a jump of the clock ends no pin.
type names struct {
	book    *pins.Book
	offset  time.Duration // from the monotonic to the wall clock, at the start
	loaded  bool
	touched time.Time
}

func (e *Engine) nameTime() time.Time { return e.now.Add(e.names.offset) }

// NameUsable returns the pin that prevents a member from using a name. ok is true if there is none.
func (e *Engine) NameUsable(name string, id NodeID, signed bool) (holder pins.Pin, ok bool) {
	if !signed {
		id = NodeID{}
	}
	return e.names.book.Usable(name, sign.ID(id), e.nameTime())
}

// ClaimName pins a name to the key of a live member, or returns the pin of another key.
func (e *Engine) ClaimName(name string, id NodeID) (holder pins.Pin, ok bool) {
	e.dropUnsigned(id)
	return e.names.book.Claim(name, sign.ID(id), e.nameTime())
}

// AssignName pins a name to another key, because an enrollment or the former key says so.
func (e *Engine) AssignName(name string, key sign.ID) {
	if p, ok := e.names.book.Holder(name); ok && p.Key != key {
		e.askRefused(ReasonName)
	}
	e.names.book.Assign(name, key, e.nameTime())
}

// KeyKnown returns the time since which this node knows the key of a node, or zero.
func (e *Engine) KeyKnown(id NodeID) time.Time {
	p, _ := e.names.book.Of(sign.ID(id))
	return p.First
}

// Names returns the keys of names, sorted by name.
func (e *Engine) Names() []pins.Pin { return e.names.book.All() }

// NameHolder returns the key of a name.
func (e *Engine) NameHolder(name string) (pins.Pin, bool) { return e.names.book.Holder(name) }

// usurps returns why a manifest may not use the name in it, or "". It ignores the name of
// a node that has left, which is only for display.
func (e *Engine) usurps(m *Manifest) string {
	if m.Directory || m.Node == e.cfg.Self || m.Forgotten || m.Leaving || m.Index > 0 {
		return ""
	}
	if holder, ok := e.names.book.Usable(m.Name, m.Signer(), e.nameTime()); !ok {
		return fmt.Sprintf("%s: %s belongs to key %s", ReasonName, m.Name, holder.Key)
	}
	return ""
}

// signs reports whether this node knows the key of a node.
func (e *Engine) signs(id NodeID) bool {
	if _, ok := e.names.book.Of(sign.ID(id)); ok {
		return true
	}
	s := e.sets[owner{ID: id}]
	return s != nil && s.first().Signer() == sign.ID(id)
}

// noteName pins the name in a manifest that is in force, or ends the pin of a node that is gone.
func (e *Engine) noteName(m *Manifest) {
	switch {
	case !e.names.loaded || m.Directory || m.Index > 0:
	case m.Leaving || m.Forgotten:
		if _, ok := e.names.book.Of(sign.ID(m.Node)); ok {
			e.names.book.Forget(sign.ID(m.Node))
			e.askRefused(ReasonName) // another node may use the name now
		}
	default:
		e.names.book.Claim(m.Name, m.Signer(), e.nameTime())
	}
}

// startNames ends loading.
func (e *Engine) startNames() {
	e.names.book.Start(e.nameTime())
	e.names.loaded = true
	e.claimOwn()
}

// claimOwn pins the name of this node.
func (e *Engine) claimOwn() {
	if e.cfg.Signer != nil {
		e.names.book.Claim(e.cfg.Name, sign.ID(e.cfg.Self), e.nameTime())
	}
}

// touchNames records which keys are alive.
func (e *Engine) touchNames() {
	if e.now.Sub(e.names.touched) >= touchEvery {
		e.names.touched = e.now
		for _, p := range e.names.book.All() {
			if id := NodeID(p.Key); id == e.cfg.Self || e.live.Up(id) {
				e.names.book.Touch(p.Key, e.nameTime())
			}
		}
	}
	for _, c := range e.names.book.Changes() {
		e.write(bucketPins, c.Name, c.Value)
	}
}

// Retire means that this node used another ID before. The engine declares that the former ID has
// left, so its items are in force only under the present ID. Signer is its key, or nil.
type Retire struct {
	Node   NodeID
	Signer sign.Signer
}

func (Retire) event() {}

func (e *Engine) retire(ev Retire) {
	s := e.sets[owner{ID: ev.Node}]
	if s == nil || ev.Node == e.cfg.Self || s.first().Leaving || s.first().Forgotten {
		return
	}
	m, err := Manifest{Node: ev.Node, Name: s.first().Name, Order: record.MakeOrder(s.first().Epoch()+1, 1), Leaving: true,
		Cluster: e.cfg.Cluster}.Seal(ev.Signer)
	if err != nil {
		e.note("own", "the former ID of this node cannot be retired: "+err.Error())
		return
	}
	e.setManifests([]*Manifest{m}, nil)
	e.news = append(e.news, news{slot: m.Slot()})
}
