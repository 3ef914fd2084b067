package engine

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// SilentUp means that a member is alive with which this node exchanges no messages.
type SilentUp struct {
	Member string
	Node   NodeID
}

func (SilentUp) event() {}

// Identity confirms the ID of this node after another process has stopped using it, or changes it.
// In both cases the node publishes its items again.
type Identity struct {
	Node   NodeID
	Signer sign.Signer // key of the node, or nil
}

func (Identity) event() {}

// ParseMemberName is the reverse of MemberName.
func ParseMemberName(name string) (id NodeID, epoch uint64, err error) {
	return ident.ParseMemberName(name)
}

// Cloned reports whether this node publishes nothing, because another process seems to use its ID.
func (e *Engine) Cloned() bool { return e.own.cloned }

// Published reports whether this start has published the items of this node.
func (e *Engine) Published() bool { return e.own.published }

// Self returns the ID of this node.
func (e *Engine) Self() NodeID { return e.cfg.Self }

func (e *Engine) identify(ev Identity) {
	e.cfg.Signer = ev.Signer
	if ev.Node != e.cfg.Self {
		e.changeID(ev.Node)
		e.claimOwn()
	}
	e.own.adopted, e.own.cloned = 0, false
	if e.own.published {
		e.publish(&e.own.publication)
	}
}

// changeID gives this node a new ID and epoch. It drops a manifest of this process under the former
// ID: peers send the manifest of the node that keeps this ID.
func (e *Engine) changeID(id NodeID) {
	if s := e.sets[e.own.owner]; s != nil && s.first().Epoch() == e.own.epoch {
		e.dropOwner(e.own.owner)
		gone := func(slot Slot) bool { return e.entries[slot] == nil }
		e.rumors.queue = slices.DeleteFunc(e.rumors.queue, gone)
		maps.DeleteFunc(e.rumors.heads, func(slot Slot, _ *rumor) bool { return gone(slot) })
	}
	e.live.Rename(id)
	e.cfg.Self = id
	e.startEpoch()
	e.cfg.Member = MemberName(id, e.own.epoch)
}

// silentUp records that a member is alive with which this node exchanges no messages.
func (e *Engine) silentUp(ev SilentUp) {
	if _, ok := e.silent[ev.Member]; ok || e.peers[ev.Member] != nil {
		return
	}
	if e.silent == nil {
		e.silent = map[string]NodeID{}
	}
	e.silent[ev.Member] = ev.Node
	e.live.MemberUp(ev.Node, e.now)
}

func (e *Engine) silentDown(member string) {
	if id, ok := e.silent[member]; ok {
		delete(e.silent, member)
		e.live.MemberDown(id, e.now)
	}
}
