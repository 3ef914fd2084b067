package gossip

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// States of members.
const (
	StateAlive = "alive"
	StateDead  = "dead" // it does not answer
	StateLeft  = "left" // it has said that it goes for good
)

// Member is a node of the cluster as this node sees it.
type Member struct {
	Node    NodeID
	Epoch   uint64 // of its boot
	Name    string
	Zone    string
	Addr    netip.AddrPort
	Version string
	State   string    // [StateAlive], [StateDead] or [StateLeft]
	Since   time.Time // of the state, as far as it is known here
	Self    bool

	engine.PeerState // what its last answer to a probe has said
}

// memberEvent is a change that memberlist has told.
type memberEvent struct {
	name string
	meta meta
	addr netip.AddrPort
	up   bool
}

// known is a node that was seen since the start, or that is on disk.
type known struct {
	Member
	name string // of the member
}

const (
	bucketRoster = "roster" // node id → address, of nodes that were seen
	maxRoster    = 16384
	rosterFor    = 24 * time.Hour // a dead node is tried again
)

// noteMember queues what memberlist tells. Nothing is dropped: there are no more events than
// members change.
func (n *Node) noteMember(o *memberlist.Node, up bool) {
	m, err := decodeMeta(o.Meta)
	if err != nil {
		return
	}
	ip, _ := netip.AddrFromSlice(o.Addr)
	ev := memberEvent{name: o.Name, meta: m, addr: netip.AddrPortFrom(ip.Unmap(), o.Port), up: up}
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
	n.memberEvents = append(n.memberEvents, ev)
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// takeMembers gives the engine what memberlist has told. A later boot of a node replaces earlier
// ones, whatever memberlist still thinks of them. The caller holds mu.
func (n *Node) takeMembers() (out []engine.Event, ops []Op) {
	n.memberMu.Lock()
	events := n.memberEvents
	n.memberEvents = nil
	n.memberMu.Unlock()
	for _, ev := range events {
		id := ev.meta.node
		if id == n.opt.Self {
			if ev.up && ev.name != n.member && ev.meta.epoch > n.meta.epoch {
				n.opt.Log.Error("another node uses the identity of this one, or has; remove the identity of one of them, "+
					"so that it gets a new one", "addr", ev.addr)
				n.counters.cloned.Add(1)
			}
			continue
		}
		old, seen := n.roster[id]
		switch {
		case ev.up && seen && old.Epoch > ev.meta.epoch:
			continue // an earlier boot
		case ev.up && !seen && len(n.roster) >= maxRoster:
			n.counters.rosterFull.Add(1)
		case ev.up:
			if seen && old.name != ev.name && old.State == StateAlive {
				out = append(out, engine.PeerUp{Member: ev.name, Node: id}, engine.PeerDown{Member: old.name})
			} else {
				out = append(out, engine.PeerUp{Member: ev.name, Node: id})
			}
			n.addrs[ev.name] = ev.addr.String()
			n.roster[id] = known{Member{Node: id, Epoch: ev.meta.epoch, Name: ev.meta.name, Zone: ev.meta.zone,
				Version: ev.meta.version, Addr: ev.addr, State: StateAlive, Since: time.Now()}, ev.name}
			if old.Addr != ev.addr {
				ops = append(ops, Op{Bucket: bucketRoster, Key: string(id[:]), Value: []byte(ev.addr.String())})
			}
		default:
			delete(n.addrs, ev.name)
			if !seen || old.name != ev.name {
				continue
			}
			out = append(out, engine.PeerDown{Member: ev.name})
			old.State, old.Since = StateDead, time.Now()
			n.roster[id] = old
		}
	}
	return out, ops
}

// loadRoster takes the nodes that were seen before the start: they are tried when the seeds do not
// answer.
func (n *Node) loadRoster(saved []Op) {
	for _, op := range saved {
		addr, err := netip.ParseAddrPort(string(op.Value))
		if op.Bucket != bucketRoster || err != nil || len(op.Key) != len(NodeID{}) || len(n.roster) >= maxRoster {
			continue
		}
		id := NodeID([]byte(op.Key))
		n.roster[id] = known{Member: Member{Node: id, Addr: addr, State: StateDead, Since: time.Now()}}
	}
}

// Members returns all nodes that are known, this one among them, by name and node. A node that
// memberlist suspects is alive until it is dead: its list of members gives the suspicion only to
// those who read it while it changes.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := []Member{{Node: n.opt.Self, Epoch: n.meta.epoch, Name: n.opt.Name, Zone: n.opt.Zone, Version: n.opt.Version,
		Addr: n.addr, State: StateAlive, Since: n.started, Self: true}}
	for _, k := range n.roster {
		if k.State == StateDead && n.left(k.Node) {
			k.State = StateLeft
		}
		k.PeerState = n.engine.Peer(k.name)
		out = append(out, k.Member)
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node.String(), b.Node.String()))
	})
	return out
}

// left reports whether a node said that it goes for good, or was forgotten. The caller holds mu.
func (n *Node) left(id NodeID) bool {
	m := n.engine.Manifest(id)
	return m != nil && (m.Leaving || m.Forgotten)
}

// compareMembers asks for a push/pull with a peer that knows other members. What has just changed
// here is left to what is on its way.
func (n *Node) compareMembers(o *memberlist.Node, hash uint64) {
	if hash == n.membersHash.Load() {
		return
	}
	n.memberMu.Lock()
	fresh := time.Since(n.membersAt) < membersSettle && !n.membersWait
	n.membersWait = fresh
	n.memberMu.Unlock()
	if fresh {
		return
	}
	select {
	case n.exchange <- o.Name + "/" + o.Address():
	default: // one is under way
	}
}
