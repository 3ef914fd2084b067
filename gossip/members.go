package gossip

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// States of members.
const (
	StateAlive = "alive"
	StateDead  = "dead" // the member does not respond
	StateLeft  = "left" // the member left permanently
	// StateRefused means that the member is alive, and that this node does not use it.
	StateRefused = "refused"
)

// Member is a node of the cluster as this node sees it.
type Member struct {
	Node     engine.NodeID
	Epoch    uint64 // epoch of the last start
	Name     string
	Zone     string
	Addr     netip.AddrPort
	Version  string
	Protocol Protocol  // zero: not seen since the start
	Features uint64    // feature bits
	State    string    // [StateAlive], [StateDead], [StateLeft], or [StateRefused]
	Since    time.Time // start of State; of an absent node, when it was last known to be alive
	Self     bool
	Signed   bool   // it has proven that Node is the fingerprint of its key
	Reason   string // of StateRefused

	// Incompatible means that the member and this node have no protocol version in common. They
	// exchange no messages.
	Incompatible bool
	// PacketsLost means that packets to the member are lost, so it gets messages over a stream.
	PacketsLost bool

	engine.PeerState // state reported by its last probe response
}

// memberEvent is a membership change reported by memberlist.
type memberEvent struct {
	name string
	meta meta
	addr netip.AddrPort
	up   bool
	same bool // another process uses the member name of this node
	sent bool // another process with this node's ID sent a probe
}

// changes collects the effects of membership changes: the caller executes them without the lock.
type changes struct {
	events []engine.Event
	ops    []engine.Op
	lines  []string // of the log
	probes []probe
}

// noteMember queues a membership change. The queue is unbounded: it holds at most one event for
// each change.
func (n *Node) noteMember(o *memberlist.Node, up bool) {
	m, err := decodeMeta(o.Meta)
	if err != nil {
		return
	}
	ev := memberEvent{name: o.Name, meta: m, addr: addrOf(o), up: up}
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if was := n.live[o.Name]; was != up {
		n.membersHash.Add(map[bool]uint64{true: memberHash(o.Name), false: -memberHash(o.Name)}[up])
		n.membersAt = time.Now()
		if up {
			n.live[o.Name] = true
		} else {
			delete(n.live, o.Name)
		}
	}
	n.queueMember(ev)
}

// queueMember queues a membership change. The caller holds memberMu.
func (n *Node) queueMember(ev memberEvent) {
	n.memberEvents = append(n.memberEvents, ev)
	n.wakeLoop()
}

// wakeLoop makes the loop read the queue of membership changes.
func (n *Node) wakeLoop() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// takeMembers converts queued membership changes to engine events. A later start of a node replaces
// earlier ones, even if memberlist still lists those, unless the earlier one still responds at
// another address. The caller holds mu.
func (n *Node) takeMembers() (out changes) {
	n.memberMu.Lock()
	events := n.memberEvents
	n.memberEvents = nil
	n.memberMu.Unlock()
	self := n.self.Load()
	for _, ev := range events {
		if ev.meta.node == self.meta.node {
			n.noteRival(ev, &out)
		}
	}
	if n.undecided() { // this node may have to leave this ID to another process before it sends anything
		events = slices.DeleteFunc(events, func(ev memberEvent) bool { return ev.meta.node == self.meta.node })
		n.memberMu.Lock()
		n.memberEvents = append(events, n.memberEvents...)
		n.memberMu.Unlock()
		return out
	}
	for _, ev := range events {
		switch {
		case ev.meta.node == self.meta.node:
		case ev.up:
			n.judgeMember(ev, true, &out)
		case !n.doubt(ev, &out):
			delete(n.refused, ev.name)
			delete(n.up, ev.name)
			n.memberDown(ev, &out)
		}
	}
	return out
}

func (n *Node) memberUp(ev memberEvent, out *changes) {
	old, seen := n.roster[ev.meta.node]
	switch {
	case !seen && !n.admit(out):
	case !seen || old.name == ev.name || old.State != StateAlive && ev.meta.epoch >= old.Epoch:
		n.use(ev, out)
	case old.State != StateAlive:
		out.probes = append(out.probes, probe{target: ev, rival: ev}) // an earlier start, or the original of a copy
	case ev.meta.epoch <= old.Epoch: // it is used if the later start ends
	case ev.addr == old.Addr:
		n.use(ev, out)
	default:
		out.probes = append(out.probes, probe{target: n.up[old.name], rival: ev})
	}
}

func (n *Node) memberDown(ev memberEvent, out *changes) {
	delete(n.addrs, ev.name)
	n.packets.drop(ev.name)
	old, seen := n.roster[ev.meta.node]
	if !seen || old.name != ev.name || old.State != StateAlive {
		return
	}
	if next, ok := n.newest(ev.meta.node); ok {
		n.use(next, out)
		return
	}
	out.events = append(out.events, engine.PeerDown{Member: ev.name})
	old.State, old.Since, old.death, old.died = StateDead, n.wall(), time.Now(), true
	old.seen, old.left = old.Since, n.left(old.Node)
	n.roster[old.Node] = old
	if old.left {
		out.ops, out.lines = append(out.ops, dropRow(old.Node)), append(out.lines, old.line("has left"))
		return
	}
	out.ops, out.lines = append(out.ops, old.op()), append(out.lines, old.line("is dead"))
}

// newest returns the latest live start of a node.
func (n *Node) newest(id engine.NodeID) (out memberEvent, ok bool) {
	for _, ev := range n.up {
		if ev.meta.node == id && (!ok || ev.meta.epoch > out.meta.epoch) {
			out, ok = ev, true
		}
	}
	return out, ok
}

// use makes a live member the one that represents its node.
func (n *Node) use(ev memberEvent, out *changes) {
	id, m := ev.meta.node, &ev.meta
	old := n.roster[id]
	n.claim(&ev)
	apart := !m.protocol.overlaps(n.opt.protocol)
	if apart {
		out.events = append(out.events, engine.SilentUp{Member: ev.name, Node: id})
	} else {
		out.events = append(out.events, n.peerUp(&ev))
	}
	if old.State == StateAlive && old.name != ev.name {
		out.events = append(out.events, engine.PeerDown{Member: old.name})
		delete(n.addrs, old.name)
		n.packets.drop(old.name)
	}
	delete(n.addrs, ev.name)
	if !apart {
		n.addrs[ev.name] = ev.addr.String()
		n.packets.add(ev.name, time.Now())
	} else if !old.Incompatible {
		out.lines = append(out.lines, fmt.Sprintf("member %s (%s) speaks protocol %s, and this node %s: "+
			"they exchange no messages; upgrade the older one", m.name, ev.addr, m.protocol, n.opt.protocol))
	}
	k := rosterEntry{Member: Member{Node: id, Epoch: m.epoch, Name: m.name, Zone: m.zone, Version: m.version,
		Addr: ev.addr, Protocol: m.protocol, Features: m.features, State: StateAlive, Since: n.wall(),
		Signed: m.signature != "", Incompatible: apart}, name: ev.name, seen: n.wall()}
	if old.State == StateAlive && old.name == ev.name {
		k.Since = old.Since
	}
	if old.died {
		out.lines = append(out.lines, k.line("has returned"))
	}
	if old.State != StateAlive || old.Addr != k.Addr || old.Name != k.Name {
		out.ops = append(out.ops, k.op())
	}
	n.roster[id] = k
}

// peerUp is the event of a live member. The caller holds mu.
func (n *Node) peerUp(ev *memberEvent) engine.PeerUp {
	id, m := ev.meta.node, &ev.meta
	up := engine.PeerUp{Member: ev.name, Node: id, Name: m.name, Known: n.engine.KeyKnown(id), Features: m.features,
		Enrolled: m.signature != "" && n.opt.Enrolled != nil && n.opt.Enrolled(id)}
	if n.opt.known != nil {
		up.Known = n.opt.known(m.name)
	}
	return up
}

// Members returns all known nodes including this one, sorted by name and node ID. A member that
// memberlist suspects counts as alive: reading the suspicion from memberlist's list would race with
// its updates.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	self := n.self.Load()
	m := self.meta
	out := []Member{{Node: m.node, Epoch: m.epoch, Name: m.name, Zone: m.zone, Version: m.version, Protocol: m.protocol,
		Features: m.features, Addr: n.addr, State: StateAlive, Since: n.started, Self: true,
		Signed: self.signer != nil}}
	out = append(out, n.refusedMembers()...)
	now := time.Now()
	for _, k := range n.roster {
		if k.State == StateDead && n.left(k.Node) {
			k.State = StateLeft
		}
		k.PeerState = n.engine.Peer(k.name)
		k.PacketsLost = k.State == StateAlive && !k.Incompatible && n.packets.lostTo(k.name, now)
		out = append(out, k.Member)
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node.String(), b.Node.String()))
	})
	return out
}

// left reports whether a node left permanently or was forgotten. The caller holds mu.
func (n *Node) left(id engine.NodeID) bool {
	m := n.engine.Manifest(id)
	return m != nil && (m.Leaving || m.Forgotten)
}

// compareMembers requests a push/pull with a peer whose member list differs. Right after a local
// change it defers once, because an update may be on its way.
func (n *Node) compareMembers(o *memberlist.Node, hash uint64) {
	if hash == n.membersHash.Load() {
		return
	}
	n.memberMu.Lock()
	fresh := time.Since(n.membersAt) < membersGrace && !n.membersWait
	n.membersWait = fresh
	n.memberMu.Unlock()
	if fresh {
		return
	}
	select {
	case n.exchange <- o.Name + "/" + o.Address():
	default: // an exchange is already pending
	}
}
