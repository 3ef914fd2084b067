package gossip

import (
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Directory holds the items of a published directory.
type Directory struct {
	ID           engine.NodeID
	Name, Detail string
	Items        []engine.OwnItem
	Signer       sign.ID // key of the node that published it, or zero
}

// Directories returns the IDs of all published directories, sorted.
func (n *Node) Directories() (out []engine.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.engine.Directories() {
		out = append(out, m.Node)
	}
	return out
}

// Directory returns a published directory. It returns false if the pool has none with this ID.
func (n *Node) Directory(id engine.NodeID) (Directory, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.engine.Directories() {
		if m.Node == id {
			return Directory{ID: id, Name: m.Name, Detail: m.Detail, Items: n.engine.Items(m), Signer: m.Signer()}, true
		}
	}
	return Directory{}, false
}

// Manifests returns the first manifests of all nodes and directories.
func (n *Node) Manifests() []*engine.Manifest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.engine.Nodes(), n.engine.Directories())
}

// SetDirectory publishes the items of a directory instead of those that this or another node
// published before.
func (n *Node) SetDirectory(o engine.Own) error {
	if err := engine.CheckOwn(o.Items); err != nil {
		return err
	}
	n.step(o)
	return nil
}
