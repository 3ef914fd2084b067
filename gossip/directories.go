package gossip

import (
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Directory holds the items of a published directory.
type Directory struct {
	ID           engine.NodeID
	Name, Detail string
	Items        []engine.OwnItem
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
			return Directory{ID: id, Name: m.Name, Detail: m.Detail, Items: n.engine.Items(m)}, true
		}
	}
	return Directory{}, false
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
