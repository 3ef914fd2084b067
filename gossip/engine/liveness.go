package engine

import (
	"cmp"
	"slices"
	"time"
)

// Figures of liveness.
const (
	removeAfter = 30 * time.Second // a dead node's things are not used any more
	holdWindow  = 60 * time.Second // in which deaths count as one event
	holdPercent = 30               // of all nodes: more than that at once is rather a cut than their death
)

// Serving says what becomes of the things that a node owns.
type Serving int

const (
	// Serve them as they are.
	Serve Serving = iota
	// Unhealthy ones are used where there are no others.
	Unhealthy
	// Removed ones are not used, and kept in the store.
	Removed
)

// String returns "serve", "unhealthy" or "removed".
func (s Serving) String() string { return [...]string{"serve", "unhealthy", "removed"}[s] }

// nodeLife is what is known of the life of a node. A suspect node is alive here.
type nodeLife struct {
	members int // names of it that are up; more than one for a moment after a restart
	died    time.Time
	vouched time.Time // somebody reached what it owns
	held    bool      // it died together with many others
	left    bool      // it said so, or was forgotten
}

type liveness struct {
	nodes map[NodeID]*nodeLife
	start time.Time
	self  NodeID
}

// unseenFor is how long after a start a node may be missing that is known from the disk alone.
const unseenFor = 30 * time.Second

// look counts nodes as dead that nobody has seen since the start, though there are others. Without
// any others, everything on disk is served.
func (l *liveness) look(now time.Time) {
	if since := now.Sub(l.start); since >= 0 && since < unseenFor || l.alone() {
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

// shift moves all times with the clock.
func (l *liveness) shift(by time.Duration) {
	l.start = l.start.Add(by)
	for _, n := range l.nodes {
		if !n.died.IsZero() {
			n.died = n.died.Add(by)
		}
		if !n.vouched.IsZero() {
			n.vouched = n.vouched.Add(by)
		}
	}
}

func (l *liveness) node(n NodeID) *nodeLife {
	if l.nodes[n] == nil {
		l.nodes[n] = &nodeLife{}
	}
	return l.nodes[n]
}

func (l *liveness) up(n NodeID) bool { return l.nodes[n] != nil && l.nodes[n].members > 0 }

// alone reports whether no other node is up.
func (l *liveness) alone() bool {
	for _, n := range l.nodes {
		if n.members > 0 {
			return false
		}
	}
	return true
}

// owns says what the manifest of a node says of it.
func (l *liveness) owns(n NodeID, leaving, forgotten bool) {
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
	recent, alive := 0, 1 // this node is
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

// release ends the hold when most of those that died together are back: then the others are dead.
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

// hold reports whether so many nodes died at once that a cut is suspected.
func (l *liveness) hold() bool {
	for _, o := range l.nodes {
		if o.held && !o.left {
			return true
		}
	}
	return false
}

// serving says what becomes of the things of a node, and since when it is dead.
func (l *liveness) serving(n NodeID, now time.Time) Serving {
	life := l.nodes[n]
	switch {
	case life == nil:
		return Serve // it has not been seen since the start: what is on disk is served until somebody knows better
	case life.left:
		return Removed
	case life.members > 0 || life.died.IsZero():
		return Serve
	case life.held || now.Sub(life.died) < removeAfter:
		return Unhealthy
	}
	return Removed
}

// gone lists nodes that have been dead for so long that they are forgotten.
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
