package gossip

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Watcher reports changes to one reader. Changes of the same object are merged, so a slow reader
// misses intermediate states but never the last one.
type Watcher struct {
	n     *Node
	bell  chan struct{}
	dirty map[engine.Change]struct{} // under the node's mu
}

// Watch returns a watcher. Its first Take returns all records and nodes. The caller must close it.
func (n *Node) Watch() *Watcher {
	w := &Watcher{n: n, bell: make(chan struct{}, 1), dirty: map[engine.Change]struct{}{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.engine.Records() {
		w.dirty[engine.Change{Key: r.Key}] = struct{}{}
	}
	for _, m := range n.engine.Nodes() {
		w.dirty[engine.Change{Node: m.Node}] = struct{}{}
	}
	n.watchers[w] = struct{}{}
	w.ring()
	return w
}

func (w *Watcher) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// C returns a channel that has a value when Take would return changes.
func (w *Watcher) C() <-chan struct{} { return w.bell }

// Take returns the changes since the last call, in no particular order.
func (w *Watcher) Take() []engine.Change {
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	out := slices.Collect(maps.Keys(w.dirty))
	clear(w.dirty)
	return out
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	delete(w.n.watchers, w)
}

// notify reports changes to all watchers. The caller holds mu.
func (n *Node) notify(changes []engine.Change) {
	if len(changes) == 0 {
		return
	}
	for w := range n.watchers {
		for _, c := range changes {
			w.dirty[c] = struct{}{}
		}
		w.ring()
	}
}

// notifyServing reports nodes whose Serving state has changed to watchers.
func (n *Node) notifyServing() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var changed []engine.Change
	for _, m := range n.engine.Nodes() {
		s := n.engine.Serving(m.Node)
		if old, ok := n.serving[m.Node]; !ok || old != s {
			n.serving[m.Node] = s
			changed = append(changed, engine.Change{Node: m.Node})
		}
	}
	n.notify(changed)
}
