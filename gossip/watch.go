package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Change says what has changed: a record by its key, or what a node owns or what becomes of it.
type Change = engine.Change

// Watcher tells one reader what has changed. Changes of the same thing are one change: whoever is
// slow misses no state, only steps to it.
type Watcher struct {
	n     *Node
	bell  chan struct{}
	dirty map[Change]struct{} // under the node's mu
}

// Watch returns a watcher whose first Take is everything that there is. Close it when it is not
// needed any more.
func (n *Node) Watch() *Watcher {
	w := &Watcher{n: n, bell: make(chan struct{}, 1), dirty: map[Change]struct{}{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.engine.Records() {
		w.dirty[Change{Key: r.Key}] = struct{}{}
	}
	for _, m := range n.engine.Nodes() {
		w.dirty[Change{Node: m.Node}] = struct{}{}
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

// C has a value when there is something to take.
func (w *Watcher) C() <-chan struct{} { return w.bell }

// Take returns what has changed since the last call, in no order.
func (w *Watcher) Take() []Change {
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

// told notes changes for all watchers. The caller holds mu.
func (n *Node) told(changes []Change) {
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

// tellServing tells watchers of nodes whose things are served otherwise than before.
func (n *Node) tellServing() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var changed []Change
	now := time.Now()
	for _, m := range n.engine.Nodes() {
		s := n.engine.Serving(m.Node, now)
		if old, ok := n.serving[m.Node]; !ok || old != s {
			n.serving[m.Node] = s
			if ok {
				changed = append(changed, Change{Node: m.Node})
			}
		}
	}
	n.told(changed)
}
