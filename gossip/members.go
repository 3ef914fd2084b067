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
	StateDead  = "dead" // the member does not respond
	StateLeft  = "left" // the member left permanently
)

// Member is a node of the cluster as this node sees it.
type Member struct {
	Node    engine.NodeID
	Epoch   uint64 // epoch of the last start
	Name    string
	Zone    string
	Addr    netip.AddrPort
	Version string
	State   string    // [StateAlive], [StateDead] or [StateLeft]
	Since   time.Time // time at which this node saw State change
	Self    bool

	engine.PeerState // state reported by its last probe response
}

// memberEvent is a membership change reported by memberlist.
type memberEvent struct {
	name string
	meta meta
	addr netip.AddrPort
	up   bool
}

// rosterEntry is a node seen since the start, or loaded from disk.
type rosterEntry struct {
	Member
	name string // member name in memberlist
}

const (
	bucketRoster = "roster" // node ID → address of each node that was seen
	maxRoster    = 16384
	rosterFor    = 24 * time.Hour // how long to retry a dead node
)

// noteMember queues a membership change. The queue is unbounded: it holds at most one event for
// each change.
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

// takeMembers converts queued membership changes to engine events. A later start of a node replaces
// earlier ones, even if memberlist still lists those. The caller holds mu.
func (n *Node) takeMembers() (out []engine.Event, ops []engine.Op) {
	n.memberMu.Lock()
	events := n.memberEvents
	n.memberEvents = nil
	n.memberMu.Unlock()
	for _, ev := range events {
		id := ev.meta.node
		if id == n.opt.Self {
			if ev.up && ev.name != n.member && ev.meta.epoch > n.meta.epoch {
				n.opt.Log.Error("another node uses or used this node's identity; remove the identity of one of the two nodes, "+
					"so it gets a new one", "addr", ev.addr)
				n.counters.cloned.Add(1)
			}
			continue
		}
		old, seen := n.roster[id]
		switch {
		case ev.up && seen && old.Epoch > ev.meta.epoch:
			continue // an earlier start
		case ev.up && !seen && len(n.roster) >= maxRoster:
			n.counters.rosterFull.Add(1)
		case ev.up:
			if seen && old.name != ev.name && old.State == StateAlive {
				out = append(out, engine.PeerUp{Member: ev.name, Node: id}, engine.PeerDown{Member: old.name})
			} else {
				out = append(out, engine.PeerUp{Member: ev.name, Node: id})
			}
			n.addrs[ev.name] = ev.addr.String()
			n.roster[id] = rosterEntry{Member{Node: id, Epoch: ev.meta.epoch, Name: ev.meta.name, Zone: ev.meta.zone,
				Version: ev.meta.version, Addr: ev.addr, State: StateAlive, Since: time.Now()}, ev.name}
			if old.Addr != ev.addr {
				ops = append(ops, engine.Op{Bucket: bucketRoster, Key: string(id[:]), Value: []byte(ev.addr.String())})
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

// loadRoster loads the nodes seen before the start. The node tries them if the seeds do not
// respond.
func (n *Node) loadRoster(saved []engine.Op) {
	for _, op := range saved {
		addr, err := netip.ParseAddrPort(string(op.Value))
		if op.Bucket != bucketRoster || err != nil || len(op.Key) != len(engine.NodeID{}) || len(n.roster) >= maxRoster {
			continue
		}
		id := engine.NodeID([]byte(op.Key))
		n.roster[id] = rosterEntry{Member: Member{Node: id, Addr: addr, State: StateDead, Since: time.Now()}}
	}
}

// Members returns all known nodes including this one, sorted by name and node ID. A member that
// memberlist suspects counts as alive: reading the suspicion from memberlist's list would race with
// its updates.
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
