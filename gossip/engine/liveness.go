package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// Parameters of liveness.
const (
	removeAfter = 30 * time.Second // items of a dead node are removed after this time
	holdWindow  = 60 * time.Second // deaths in this window count as one event
	holdPercent = 30               // of all nodes; if more die at once, a network partition is more likely
	holdFor     = time.Hour        // a hold ends at this time after the deaths
	goneAfter   = 24 * time.Hour   // a dead node is forgotten at this time after its death
	forgetGrace = 10 * time.Minute // after a start, in which dead nodes may return before they are forgotten
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
	members int       // live members of the node; more than one briefly after a restart
	died    time.Time // zero: alive, or not seen since the start
	removed time.Time // if dead: when its items are removed
	vouched time.Time // last time its items were reachable
	held    bool      // died at the same time as many others
	left    bool      // left permanently, or was forgotten
}

type liveness struct {
	nodes   map[NodeID]*nodeLife
	start   time.Time
	self    NodeID
	unsaved map[NodeID]struct{} // died or returned, and this is not on disk yet
}

func newLiveness(self NodeID, now time.Time) liveness {
	return liveness{nodes: map[NodeID]*nodeLife{}, start: now, self: self, unsaved: map[NodeID]struct{}{}}
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

// drop forgets a node that is not alive.
func (l *liveness) drop(n NodeID) {
	if !l.up(n) {
		delete(l.nodes, n)
		l.unsaved[n] = struct{}{}
	}
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
	if life.left = leaving || forgotten; life.left && !life.died.IsZero() {
		l.unsaved[n] = struct{}{}
	}
}

func (l *liveness) memberUp(n NodeID, now time.Time) {
	life := l.node(n)
	life.members++
	if !life.died.IsZero() {
		life.died, life.held = time.Time{}, false
		l.unsaved[n] = struct{}{}
	}
	l.release(now)
}

func (l *liveness) memberDown(n NodeID, now time.Time) {
	life := l.node(n)
	if life.members--; life.members > 0 {
		return
	}
	life.members = 0
	life.died, life.removed = now, now.Add(removeAfter)
	l.unsaved[n] = struct{}{}
	recent, alive := 0, 1 // this node
	for _, o := range l.nodes {
		if o.members > 0 {
			alive++
		} else if o.recent(now) && !o.left {
			recent++
		}
	}
	if total := alive + recent; recent*2 >= total || recent >= 2 && recent*100 > total*holdPercent {
		for id, o := range l.nodes {
			if !o.held && o.members == 0 && o.recent(now) && !o.left {
				o.held = true
				l.unsaved[id] = struct{}{}
			}
		}
	}
}

func (n *nodeLife) recent(now time.Time) bool {
	return !n.died.IsZero() && now.Sub(n.died) < holdWindow
}

// holding reports whether the node died at the same time as many others, at most an hour ago.
func (n *nodeLife) holding(now time.Time) bool { return n.held && now.Sub(n.died) < holdFor }

// release ends a hold when most of the nodes that died at once are back. The others count as dead.
func (l *liveness) release(now time.Time) {
	held, alive := 0, 1
	for _, o := range l.nodes {
		if o.members > 0 {
			alive++
		} else if o.holding(now) && !o.left {
			held++
		}
	}
	if held == 0 || held*2 >= held+alive || held*100 > (held+alive)*holdPercent {
		return
	}
	for id, o := range l.nodes {
		if o.held {
			o.held, o.removed = false, now.Add(removeAfter)
			l.unsaved[id] = struct{}{}
		}
	}
}

// hold reports whether so many nodes died at once that a network partition is suspected.
func (l *liveness) hold(now time.Time) bool {
	for _, o := range l.nodes {
		if o.holding(now) && !o.left {
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
	case life.holding(now) || now.Before(life.removed):
		return Unhealthy
	}
	return Removed
}

// gone returns nodes that have been dead long enough to be forgotten.
func (l *liveness) gone(now time.Time) []NodeID {
	if now.Sub(l.start) < forgetGrace {
		return nil
	}
	var out []NodeID
	for id, n := range l.nodes {
		if n.members == 0 && !n.died.IsZero() && !n.left && now.Sub(n.died) >= goneAfter &&
			(n.vouched.IsZero() || now.Sub(n.vouched) >= goneAfter) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, compareNodes)
	return out
}

// saveDeaths writes deaths and returns of nodes since the last call.
func (e *Engine) saveDeaths() {
	if len(e.live.unsaved) == 0 {
		return
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.live.unsaved), compareNodes) {
		n := e.live.nodes[id]
		if n == nil || n.died.IsZero() || n.left {
			e.write(bucketDeaths, string(id[:]), nil)
			continue
		}
		held := byte(0)
		if n.held {
			held = 1
		}
		e.write(bucketDeaths, string(id[:]), append(putTime(e.poolTime().Add(n.died.Sub(e.now))), held))
	}
	clear(e.live.unsaved)
}

// loadDeath restores a saved death. The node counts as dead until it is heard.
func (e *Engine) loadDeath(key string, value []byte) error {
	if len(key) != len(NodeID{}) || len(value) != 9 {
		return errors.New("time of a death is truncated")
	}
	n := e.live.node(NodeID([]byte(key)))
	n.died = e.now.Add(-max(e.wall.Sub(getTime(value[:8])), 0))
	n.removed, n.held = n.died.Add(removeAfter), value[8] != 0
	return nil
}

func compareNodes(a, b NodeID) int { return cmp.Compare(string(a[:]), string(b[:])) }
