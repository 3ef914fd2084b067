package gossip

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// rosterEntry is a node seen since the start, or loaded from disk.
type rosterEntry struct {
	Member
	name  string    // member name in memberlist
	seen  time.Time // last known time at which it was alive, by the wall clock
	death time.Time // by the process's clock; zero if it is alive
	died  bool      // its death is known, and not only its absence since this node's start
	left  bool      // it left, and the log says so
}

// Parameters of the roster.
const (
	bucketRoster = "roster" // node ID → row of each node that was seen
	maxRoster    = 16384
	rosterFor    = 24 * time.Hour   // how long to retry a dead node
	leftFor      = 10 * time.Minute // how long to list a node that left
	absentGrace  = time.Hour        // how long to retry nodes that were alive before this node's start
	seenInterval = 10 * time.Minute // between updates of the rows of live nodes
	sweepEvery   = 10 * time.Second
)

// row returns the entry as text: the address, the time at which the node was last seen alive, the
// time of its death or "-", and its name, separated by spaces.
func (k *rosterEntry) row() []byte {
	died := "-"
	if k.died {
		died = k.Since.UTC().Format(time.RFC3339)
	}
	return []byte(strings.Join([]string{k.Addr.String(), k.seen.UTC().Format(time.RFC3339), died, k.Name}, " "))
}

// parseRow parses a row. Rows of earlier builds have only an address.
func parseRow(row string) (k rosterEntry, err error) {
	fields := append(strings.SplitN(row, " ", 4), "", "", "")
	if k.Addr, err = netip.ParseAddrPort(fields[0]); err != nil {
		return k, err
	}
	k.State = StateDead
	k.seen, _ = time.Parse(time.RFC3339, fields[1]) // zero: unknown
	at, err := time.Parse(time.RFC3339, fields[2])
	k.died = err == nil
	k.Since = at
	if !k.died {
		k.Since = k.seen
	}
	k.Name = fields[3][:min(len(fields[3]), maxMetaText)]
	return k, nil
}

func (k *rosterEntry) op() engine.Op {
	return engine.Op{Bucket: bucketRoster, Key: string(k.Node[:]), Value: k.row()}
}

func dropRow(id engine.NodeID) engine.Op { return engine.Op{Bucket: bucketRoster, Key: string(id[:])} }

// loadRoster loads the nodes seen before the start. The node tries them if the seeds do not
// respond.
func (n *Node) loadRoster(saved []engine.Op) {
	now, wall := time.Now(), n.wall()
	for _, op := range saved {
		if op.Bucket != bucketRoster || len(op.Key) != len(engine.NodeID{}) || len(n.roster) >= n.opt.rosterLimit {
			continue
		}
		k, err := parseRow(string(op.Value))
		if err != nil {
			continue
		}
		k.Node = engine.NodeID([]byte(op.Key))
		if k.Since.IsZero() || k.Since.After(wall) {
			k.Since = wall
		}
		ago := wall.Sub(k.Since)
		if !k.died {
			ago = min(ago, rosterFor-absentGrace)
		}
		k.death = now.Add(-ago)
		n.roster[k.Node] = k
	}
}

// admit reports whether the roster has capacity for another node. A full roster drops the node that
// has been dead for the longest time. The caller holds mu.
func (n *Node) admit(out *changes) bool {
	if len(n.roster) < n.opt.rosterLimit {
		return true
	}
	var oldest *rosterEntry
	for _, k := range n.roster {
		if k.State != StateAlive && (oldest == nil || k.death.Before(oldest.death) ||
			k.death.Equal(oldest.death) && cmp.Compare(k.Node.String(), oldest.Node.String()) < 0) {
			oldest = &k
		}
	}
	if oldest == nil {
		n.counters.rosterFull.Add(1)
		return false
	}
	n.dropNode(oldest.Node, out)
	return true
}

// dropNode removes a node from the roster and its row from disk. The caller holds mu.
func (n *Node) dropNode(id engine.NodeID, out *changes) {
	delete(n.roster, id)
	out.ops = append(out.ops, dropRow(id))
}

// sweepRoster removes nodes that have been dead for rosterFor, have left, or were forgotten, and
// records that live nodes are alive. The caller holds mu.
func (n *Node) sweepRoster(out *changes) {
	now, wall := time.Now(), n.wall()
	if now.Sub(n.sweptAt) < sweepEvery {
		return
	}
	n.sweptAt = now
	refresh := now.Sub(n.seenAt) >= seenInterval
	if refresh {
		n.seenAt = now
	}
	for id, k := range n.roster {
		dead := now.Sub(k.death)
		switch m := n.engine.Manifest(id); {
		case k.State == StateAlive:
			if refresh {
				k.seen = wall
				n.roster[id] = k
				out.ops = append(out.ops, k.op())
			}
		case dead >= rosterFor || m != nil && m.Forgotten || m != nil && m.Leaving && dead >= leftFor:
			n.dropNode(id, out)
		case m != nil && m.Leaving && !k.left:
			k.left = true
			n.roster[id] = k
			out.ops = append(out.ops, dropRow(id))
			out.lines = append(out.lines, k.line("has left"))
		}
	}
	sortOps(out.ops)
}

// sortOps sorts operations by key: those of a sweep are in random order.
func sortOps(ops []engine.Op) {
	slices.SortStableFunc(ops, func(a, b engine.Op) int { return cmp.Compare(a.Key, b.Key) })
}

// seenRows returns the rows of live nodes with the present time. The caller holds mu.
func (n *Node) seenRows() (ops []engine.Op) {
	wall := n.wall()
	for _, k := range n.roster {
		if k.State == StateAlive {
			k.seen = wall
			ops = append(ops, k.op())
		}
	}
	sortOps(ops)
	return ops
}

// line returns a line of the log about a member.
func (k *rosterEntry) line(what string) string {
	return "member " + cmp.Or(k.Name, k.Node.String()) + " (" + k.Addr.String() + ") " + what
}
