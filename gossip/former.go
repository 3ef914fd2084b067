package gossip

import (
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Former is an earlier identity of this node. Once the node has published its items under its
// present ID, it declares that the former ID has left.
type Former struct {
	Node engine.NodeID
	// Signer is its key, or nil for the ID of an earlier release. With it, peers give the name of this
	// node from the former to the present key at once.
	Signer sign.Signer
	// Retired is called after peers know that the former ID is not used any more. It may be called
	// again after a restart. Nil: not called.
	Retired func()
}

// retirement is the state of a former identity.
type retirement struct {
	Former
	at   time.Time // wall time at which it was declared; zero: by an earlier start
	done bool
}

// retireFormer declares that former IDs of this node have left, and returns functions to call
// without the lock. The caller holds mu.
func (n *Node) retireFormer(out *changes) (retired []func()) {
	if !n.engine.Published() {
		return nil
	}
	for i := range n.former {
		f := &n.former[i]
		if f.done || f.Node == n.engine.Self() || n.inUse(f.Node) {
			continue
		}
		m := n.engine.Manifest(f.Node)
		if m != nil && !m.Leaving && !m.Forgotten {
			out.events = append(out.events, engine.Retire{Node: f.Node, Signer: f.Signer})
			f.at = n.wall()
			continue
		}
		if agreed := n.engine.Stats().Agreed; agreed.After(f.at) && agreed.After(n.started) {
			if f.done = true; f.Retired != nil {
				retired = append(retired, f.Retired)
			}
		}
	}
	return retired
}

// inUse reports whether another process uses an ID, or may use it: an earlier start of this node
// counts as alive until peers know of its death. The caller holds mu.
func (n *Node) inUse(id engine.NodeID) bool {
	for _, ev := range n.up {
		if ev.meta.node == id && ev.addr != n.addr {
			return true
		}
	}
	return false
}

// statement returns the statement of a former key that names this one, or "".
func (n *Node) statement(id engine.NodeID) (string, error) {
	for _, f := range n.former {
		if f.Signer != nil && f.Node != id {
			b, err := pins.Statement(f.Signer, n.opt.Cluster, n.opt.Name, sign.ID(id))
			return string(b), err
		}
	}
	return "", nil
}
