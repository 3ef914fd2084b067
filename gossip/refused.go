package gossip

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// A member that memberlist lists can be refused: this node then exchanges no messages with it. The
// reasons are those of this node, so another node may use the member.

// Identity describes a member to [Options.Admit].
type Identity struct {
	Node   engine.NodeID
	Signed bool // the member has proven that Node is the fingerprint of its key
	Name   string
	Zone   string
	Addr   netip.AddrPort
}

const judgeEvery = 10 * time.Second // between decisions about all members

// maxListed limits the refused members that Members returns.
const maxListed = 100

// refusedMember is a live member that is not in use.
type refusedMember struct {
	memberEvent
	reason string
	since  time.Time // wall time
}

// refuse returns why a live member may not be used, or "". The caller holds mu.
func (n *Node) refuse(ev *memberEvent) string {
	m := &ev.meta
	signed := m.signature != ""
	if !signed && (n.identities.signs(m.node) || !n.engine.KeyKnown(m.node).IsZero()) {
		return errUnsigned.Error()
	}
	if n.opt.Admit != nil {
		if reason := n.opt.Admit(Identity{Node: m.node, Signed: signed, Name: m.name, Zone: m.zone,
			Addr: ev.addr}); reason != "" {
			return reason
		}
	}
	holder, ok := n.engine.NameUsable(m.name, m.node, signed)
	if !ok && m.statement != "" { // verified with the metadata
		if sign.Claimed([]byte(m.statement)) == holder.Key {
			n.engine.AssignName(m.name, sign.ID(m.node))
			return ""
		}
	}
	if !ok {
		return fmt.Sprintf("the name %s belongs to key %s, which this node has known since %s; give the node another name, "+
			"or run nearside forget for the node with that key if it is permanently gone", m.name, holder.Key,
			holder.First.UTC().Format(time.RFC3339))
	}
	return ""
}

// judgeMember decides whether a live member is used. fresh means that memberlist has reported it.
// The caller holds mu.
func (n *Node) judgeMember(ev memberEvent, fresh bool, out *changes) {
	old := n.refused[ev.name]
	reason := n.refuse(&ev)
	if reason == "" {
		if old != nil {
			delete(n.refused, ev.name)
			out.lines = append(out.lines, "member "+cmp.Or(ev.meta.name, ev.meta.node.String())+" is no longer refused")
		}
		if fresh || old != nil {
			n.up[ev.name] = ev
			n.memberUp(ev, out)
		} else if n.roster[ev.meta.node].name == ev.name {
			n.claim(&ev)
		}
		return
	}
	if _, used := n.up[ev.name]; used {
		delete(n.up, ev.name)
		n.memberDown(ev, out)
	}
	since := n.wall()
	if old != nil {
		since = old.since
	} else {
		out.lines = append(out.lines, fmt.Sprintf("member %s (%s) is refused: %s",
			cmp.Or(ev.meta.name, ev.meta.node.String()), ev.addr, reason))
	}
	n.refused[ev.name] = &refusedMember{ev, reason, since}
}

// claim pins the name of the member that represents a node with a key. A copy of the node does not
// represent it, and may have another name. The caller holds mu.
func (n *Node) claim(ev *memberEvent) {
	if ev.meta.signature != "" {
		n.engine.ClaimName(ev.meta.name, ev.meta.node)
	}
}

// judgeMembers decides again about all live members. The caller holds mu.
func (n *Node) judgeMembers(out *changes) {
	var all []memberEvent
	for _, ev := range n.up {
		all = append(all, ev)
	}
	for _, r := range n.refused {
		all = append(all, r.memberEvent)
	}
	slices.SortFunc(all, func(a, b memberEvent) int { return cmp.Compare(a.name, b.name) })
	for _, ev := range all {
		n.judgeMember(ev, false, out)
	}
}

// Reconsider decides again about all members and entries, because the policy or the result of
// [Options.Admit] has changed.
func (n *Node) Reconsider() {
	var out changes
	n.mu.Lock()
	n.judgeMembers(&out)
	for _, k := range n.roster {
		if ev, ok := n.up[k.name]; ok && k.State == StateAlive && !k.Incompatible {
			out.events = append(out.events, n.peerUp(&ev)) // it may be enrolled now
		}
	}
	n.mu.Unlock()
	n.execute(out)
	n.step(engine.Reconsider{})
}

// AssignName gives a name to a key, and ends a pin of the name to another key.
func (n *Node) AssignName(name string, key sign.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.engine.AssignName(name, key)
}

// Names returns the keys of names, sorted by name.
func (n *Node) Names() []pins.Pin {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Names()
}

// refusedMembers returns up to maxListed refused members, the first ones first, without earlier
// starts of members in use. The caller holds mu.
func (n *Node) refusedMembers() (out []Member) {
	for _, r := range n.refused {
		m := &r.meta
		if n.roster[m.node].State == StateAlive {
			continue
		}
		out = append(out, Member{Node: m.node, Epoch: m.epoch, Name: m.name, Zone: m.zone, Version: m.version, Addr: r.addr,
			Protocol: m.protocol, Features: m.features, State: StateRefused, Since: r.since, Signed: m.signature != "",
			Reason: r.reason})
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node.String(), b.Node.String()), cmp.Compare(a.Epoch, b.Epoch))
	})
	return out[:min(len(out), maxListed)]
}
