package engine

import (
	"cmp"
	"slices"
	"time"
)

// Parameters of liveness.
const (
	removeAfter = 30 * time.Second // items of a dead node are removed after this time
	holdWindow  = 60 * time.Second // deaths in this window count as one event
	holdPercent = 30               // of all nodes; if more die at once, a network partition is more likely
)

// Serving tells how to use the items of a node.
type Serving int

const (
	// Serve: use the items.
	Serve Serving = iota
	// Unhealthy: use the items only if there are no others.
	Unhealthy
	// Removed: do not use the items. They stay in the store.
	Removed
)

// String returns "serve", "unhealthy" or "removed".
func (s Serving) String() string { return [...]string{"serve", "unhealthy", "removed"}[s] }

// nodeLife is the liveness of a node. A suspect node counts as alive.
type nodeLife struct {
	members int // live members of the node; more than one briefly after a restart
	died    time.Time
	vouched time.Time // last time its items were reachable
	held    bool      // died at the same time as many others
	left    bool      // left permanently, or was forgotten
}

type liveness struct {
	nodes map[NodeID]*nodeLife
	start time.Time
	self  NodeID
}

// unseenFor is the time after a start in which a node known only from disk counts as alive.
const unseenFor = 30 * time.Second

// markUnseen counts nodes as dead that were not seen since the start, if other nodes are alive.
// Without other nodes, all items on disk are served.
func (l *liveness) markUnseen(now time.Time) {
	if now.Sub(l.start) < unseenFor || l.isolated() {
		return
	}
	var unseen []NodeID
	for id, n := range l.nodes {
		if n.members == 0 && n.died.IsZero() && !n.left && id != l.self {
			unseen = append(unseen, id)
			n.members = 1
		}
	}
	for _, id := range unseen {
		l.memberDown(id, now)
	}
}

func (l *liveness) node(n NodeID) *nodeLife {
	if l.nodes[n] == nil {
		l.nodes[n] = &nodeLife{}
	}
	return l.nodes[n]
}

func (l *liveness) up(n NodeID) bool { return l.nodes[n] != nil && l.nodes[n].members > 0 }

// isolated reports whether no other node is alive.
func (l *liveness) isolated() bool {
	for _, n := range l.nodes {
		if n.members > 0 {
			return false
		}
	}
	return true
}

// setLeft records whether a node has left, according to its manifest.
func (l *liveness) setLeft(n NodeID, leaving, forgotten bool) {
	life := l.node(n)
	life.left = leaving || forgotten
}

func (l *liveness) memberUp(n NodeID, now time.Time) {
	life := l.node(n)
	life.members++
	life.died, life.held = time.Time{}, false
	l.release(now)
}

func (l *liveness) memberDown(n NodeID, now time.Time) {
	life := l.node(n)
	if life.members--; life.members > 0 {
		return
	}
	life.members = 0
	life.died = now
	recent, alive := 0, 1 // this node
	for _, o := range l.nodes {
		if o.members > 0 {
			alive++
		} else if o.recent(now) && !o.left {
			recent++
		}
	}
	if total := alive + recent; recent*2 >= total || recent >= 2 && recent*100 > total*holdPercent {
		for _, o := range l.nodes {
			o.held = o.held || o.members == 0 && o.recent(now) && !o.left
		}
	}
}

func (n *nodeLife) recent(now time.Time) bool {
	return !n.died.IsZero() && now.Sub(n.died) < holdWindow
}

// release ends a hold when most of the nodes that died at once are back. The others count as dead.
func (l *liveness) release(now time.Time) {
	held, alive := 0, 1
	for _, o := range l.nodes {
		if o.members > 0 {
			alive++
		} else if o.held && !o.left {
			held++
		}
	}
	if held == 0 || held*2 >= held+alive || held*100 > (held+alive)*holdPercent {
		return
	}
	for _, o := range l.nodes {
		if o.held {
			o.held, o.died = false, now
		}
	}
}

// hold reports whether so many nodes died at once that a network partition is suspected.
func (l *liveness) hold() bool {
	for _, o := range l.nodes {
		if o.held && !o.left {
			return true
		}
	}
	return false
}

// serving tells how to use the items of a node.
func (l *liveness) serving(n NodeID, now time.Time) Serving {
	life := l.nodes[n]
	switch {
	case life == nil:
		return Serve // not seen since the start: serve items on disk until a peer reports otherwise
	case life.left:
		return Removed
	case life.members > 0 || life.died.IsZero():
		return Serve
	case life.held || now.Sub(life.died) < removeAfter:
		return Unhealthy
	}
	return Removed
}

// gone returns nodes that have been dead long enough to be forgotten.
func (l *liveness) gone(now time.Time) []NodeID {
	var out []NodeID
	for id, n := range l.nodes {
		if n.members == 0 && !n.died.IsZero() && !n.held && !n.left && now.Sub(n.died) >= goneAfter &&
			(n.vouched.IsZero() || now.Sub(n.vouched) >= goneAfter) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b NodeID) int { return cmp.Compare(string(a[:]), string(b[:])) })
	return out
}
