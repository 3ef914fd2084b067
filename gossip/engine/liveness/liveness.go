// Package liveness decides from the deaths and returns of nodes whether their items are served. It
// reads no clock: callers pass monotonic times. A Table is not safe for concurrent use.
package liveness

import (
	"bytes"
	"maps"
	"slices"
	"time"
)

// ID identifies a node.
type ID = [16]byte

// Parameters of liveness.
const (
	removeAfter = 30 * time.Second // items of a dead node are removed after this time
	holdWindow  = 60 * time.Second // deaths in this window count as one event
	holdPercent = 30               // of all nodes; if more die at once, a network partition is more likely
	holdFor     = time.Hour        // a hold ends at this time after the deaths
	forgetGrace = 10 * time.Minute // after a start, in which dead nodes may return before they are forgotten
)

// GoneAfter is the time after its death at which a dead node is forgotten.
const GoneAfter = 24 * time.Hour

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

// Table holds the liveness of all nodes.
type Table struct {
	nodes   map[ID]*nodeLife
	start   time.Time
	self    ID
	unsaved map[ID]struct{} // died or returned, and this is not on disk yet
}

// New returns an empty table of the node self, which starts now.
func New(self ID, now time.Time) Table {
	return Table{nodes: map[ID]*nodeLife{}, start: now, self: self, unsaved: map[ID]struct{}{}}
}

// unseenFor is the time after a start in which a node known only from disk counts as alive.
const unseenFor = 30 * time.Second

// MarkUnseen counts nodes as dead that were not seen since the start, if other nodes are alive.
// Without other nodes, all items on disk are served.
func (l *Table) MarkUnseen(now time.Time) {
	if now.Sub(l.start) < unseenFor || l.isolated() {
		return
	}
	var unseen []ID
	for id, n := range l.nodes {
		if n.members == 0 && n.died.IsZero() && !n.left && id != l.self {
			unseen = append(unseen, id)
			n.members = 1
		}
	}
	for _, id := range unseen {
		l.MemberDown(id, now)
	}
}

func (l *Table) node(n ID) *nodeLife {
	if l.nodes[n] == nil {
		l.nodes[n] = &nodeLife{}
	}
	return l.nodes[n]
}

// Drop forgets a node that is not alive.
func (l *Table) Drop(n ID) {
	if !l.Up(n) {
		delete(l.nodes, n)
		l.unsaved[n] = struct{}{}
	}
}

// Up reports whether a node has a live member.
func (l *Table) Up(n ID) bool { return l.nodes[n] != nil && l.nodes[n].members > 0 }

// isolated reports whether no other node is alive.
func (l *Table) isolated() bool {
	for _, n := range l.nodes {
		if n.members > 0 {
			return false
		}
	}
	return true
}

// SetLeft records whether a node has left, according to its manifest.
func (l *Table) SetLeft(n ID, leaving, forgotten bool) {
	life := l.node(n)
	if life.left = leaving || forgotten; life.left && !life.died.IsZero() {
		l.unsaved[n] = struct{}{}
	}
}

// MemberUp records that a member of a node is alive.
func (l *Table) MemberUp(n ID, now time.Time) {
	life := l.node(n)
	life.members++
	if !life.died.IsZero() {
		life.died, life.held = time.Time{}, false
		l.unsaved[n] = struct{}{}
	}
	l.release(now)
}

// MemberDown records that a member of a node no longer responds.
func (l *Table) MemberDown(n ID, now time.Time) {
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
func (l *Table) release(now time.Time) {
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

// Hold reports whether so many nodes died at once that a network partition is suspected.
func (l *Table) Hold(now time.Time) bool {
	for _, o := range l.nodes {
		if o.holding(now) && !o.left {
			return true
		}
	}
	return false
}

// Serving tells how to use the items of a node.
func (l *Table) Serving(n ID, now time.Time) Serving {
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

// Gone returns nodes that have been dead long enough to be forgotten.
func (l *Table) Gone(now time.Time) []ID {
	if now.Sub(l.start) < forgetGrace {
		return nil
	}
	var out []ID
	for id, n := range l.nodes {
		if n.members == 0 && !n.died.IsZero() && !n.left && now.Sub(n.died) >= GoneAfter &&
			(n.vouched.IsZero() || now.Sub(n.vouched) >= GoneAfter) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// Vouch records that items of a node were reachable.
func (l *Table) Vouch(n ID, now time.Time) { l.node(n).vouched = now }

// Rename changes the ID of this node.
func (l *Table) Rename(self ID) {
	delete(l.nodes, self)
	l.self = self
}

// Death is the saved state of a node that is not alive.
type Death struct {
	Node ID
	At   time.Time // zero: the node is not dead
	Held bool
}

// Unsaved returns the nodes whose deaths changed since the last call, sorted by ID.
func (l *Table) Unsaved() (out []Death) {
	for _, id := range slices.SortedFunc(maps.Keys(l.unsaved), compare) {
		d := Death{Node: id}
		if n := l.nodes[id]; n != nil && !n.died.IsZero() && !n.left {
			d.At, d.Held = n.died, n.held
		}
		out = append(out, d)
	}
	clear(l.unsaved)
	return out
}

// Load restores a saved death. The node counts as dead until it is heard.
func (l *Table) Load(d Death) {
	n := l.node(d.Node)
	n.died, n.removed, n.held = d.At, d.At.Add(removeAfter), d.Held
}

func compare(a, b ID) int { return bytes.Compare(a[:], b[:]) }
