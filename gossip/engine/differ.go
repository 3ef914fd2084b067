package engine

import (
	"slices"
	"time"
)

// Parameters of checks: comparisons of the roots of two nodes over a stream, which depend neither
// on packets nor on probes.
const (
	checkMin     = 10 * time.Second // minimum and
	checkSpread  = 20 * time.Second // range of the random interval of checks
	checkMax     = 2 * time.Minute  // maximum interval of the checks of a peer whose root differs
	checksEach   = 2                // such peers checked per second
	walkFor      = 3 * time.Second  // duration of a comparison
	confirmAfter = 5 * time.Second  // a difference that two comparisons with this distance find is lasting
	unwalked     = 3                // different roots without a comparison, after which the difference is lasting
	maxDiffs     = 256              // differences with a peer to remember
	listedDiffs  = 20               // differences with a peer that Peer returns
	maxEcho      = 256              // heads in an answer to leaves
)

// Difference is an entry of which this node and a peer have different versions.
type Difference struct {
	Key    Key    // zero for a manifest, and for an entry that this node has never seen
	Node   NodeID // owner of a manifest
	Slot   Slot   // hash of the key
	Reason string // as this node knows it
}

// String names the entry.
func (d Difference) String() string {
	switch {
	case d.Key != Key{}:
		return d.Key.String()
	case d.Node != NodeID{}:
		return "items of " + d.Node.String()
	}
	return "unknown entry " + d.Slot.String()
}

// diff is a difference found by a comparison. A zero version is a missing entry.
type diff struct {
	own, peer   Version
	since, last time.Time
}

// checks holds the state of the end-to-end comparisons with a peer.
type checks struct {
	rootAt  time.Time // time of root; zero: unknown
	differs bool      // root was another than the local one then
	unequal time.Time // first report of such a root since walked; zero: none
	reports int       // such reports since walked
	last    time.Time // time of the last check
	every   time.Duration
	walked  time.Time // last time at which a comparison listed heads
	diffs   map[Slot]*diff
}

// noteRoot stores the root that a peer reported. equal means that it found no difference.
func (e *Engine) noteRoot(p *peer, root Digest, equal bool) {
	p.root, p.checks.rootAt = root, e.now
	switch {
	case equal || root == e.tree.Sum:
		p.checks = checks{rootAt: e.now, last: p.checks.last}
		if root == e.tree.Sum {
			e.agree()
		}
	case p.checks.unequal.IsZero():
		p.checks.differs, p.checks.unequal, p.checks.reports = true, e.now, 1
	default:
		p.checks.reports++
	}
}

// walk records that a comparison with the peer lists the differences.
func (c *checks) walk(now time.Time) { c.walked, c.unequal = now, time.Time{} }

// runChecks starts a check with a random peer from time to time, and more often with peers whose
// root differs. Of two random peers it selects the one with the older report.
func (e *Engine) runChecks() {
	if e.checkAt.IsZero() || !e.checkAt.After(e.now) {
		if !e.checkAt.IsZero() {
			if two := e.pick(2, ""); len(two) > 0 {
				e.check(e.peers[slices.MinFunc(two, func(a, b string) int {
					return e.peers[a].checks.rootAt.Compare(e.peers[b].checks.rootAt)
				})])
			}
		}
		e.checkAt = e.now.Add(checkMin + time.Duration(e.cfg.Random(int(checkSpread))))
	}
	var due []*peer
	for _, m := range e.alive {
		if p := e.peers[m]; p.checks.differs && e.now.Sub(p.checks.last) >= max(p.checks.every, checkMin) {
			due = append(due, p)
		}
	}
	slices.SortStableFunc(due, func(a, b *peer) int { return a.checks.last.Compare(b.checks.last) })
	for _, p := range due[:min(len(due), checksEach)] {
		if _, list := e.differences(p); len(list) > 0 {
			p.checks.every = min(2*max(p.checks.every, checkMin), checkMax)
		} else {
			p.checks.every = 0
		}
		e.check(p)
	}
}

// check sends the root to a peer, which answers with its root, and starts a comparison if they
// differ.
func (e *Engine) check(p *peer) {
	p.checks.last = e.now
	root := e.tree.Sum
	e.count("checks")
	e.send(p.name, message{Root: &root, Stream: true})
}

// checked processes the root in a message.
func (e *Engine) checked(p *peer, m *message) {
	e.noteRoot(p, *m.Root, m.Last)
	if m.Last || len(m.Sums)+len(m.Leaves) > 0 {
		return // the last or a later message of the comparison
	}
	if *m.Root == e.tree.Sum {
		e.endCheck(p)
	} else if e.now.Sub(p.checks.walked) >= syncEach {
		out, root := e.opening(), e.tree.Sum
		out.Root, out.Stream = &root, true
		e.send(p.name, out)
	}
}

// endCheck reports to a peer that its entries do not differ from those here.
func (e *Engine) endCheck(p *peer) {
	root := e.tree.Sum
	e.send(p.name, message{Root: &root, Last: true, Stream: true})
}

// noteDiffs stores the differences between the heads of a leaf here and at a peer. Other
// comparisons than checks show each node only a part of them.
func (e *Engine) noteDiffs(p *peer, l Leaves) (differs bool) {
	c := &p.checks
	c.walk(e.now)
	peers := make(map[Slot]Version, len(l.Heads))
	for _, h := range l.Heads {
		if l.Holds(h.Slot) {
			peers[h.Slot] = h.Version
		}
	}
	note := func(s Slot, own, peer Version) {
		differs = true
		if d := c.diffs[s]; d != nil && d.own == own && d.peer == peer {
			d.last = e.now
		} else if d != nil || len(c.diffs) < maxDiffs {
			c.diffs[s] = &diff{own, peer, e.now, e.now}
		}
	}
	if c.diffs == nil {
		c.diffs = map[Slot]*diff{}
	}
	for s, d := range c.diffs {
		if e.now.Sub(d.last) > checkMax+walkFor {
			delete(c.diffs, s)
		}
	}
	for _, h := range e.tree.At(l.Prefix) {
		if v := peers[h.Slot]; v != h.Version {
			note(h.Slot, h.Version, v)
		}
		delete(peers, h.Slot)
	}
	for _, s := range sortedSlots(peers) {
		note(s, Version{}, peers[s])
	}
	return differs
}

// echo sends the own heads of leaves that a peer has listed, so the peer knows the differences too.
func (e *Engine) echo(m *message, list []Leaves) {
	root := e.tree.Sum
	out := message{Root: &root, Stream: true, Echo: true}
	n := 0
	for _, l := range list {
		own := e.tree.At(l.Prefix)
		if n += len(own); n > maxEcho {
			break
		}
		out.Leaves = append(out.Leaves, Leaves{l.Prefix, own})
	}
	if len(out.Leaves) > 0 {
		e.send(m.From, out)
	}
}

// differences returns the lasting differences with a peer and the time of the first one, or the
// time since which the roots differ if no comparison has been possible. An earlier build differs
// permanently if there are shards or directories, which it ignores.
func (e *Engine) differences(p *peer) (since time.Time, list []Difference) {
	c := &p.checks
	if p.root == e.tree.Sum || !c.differs || p.features&FeatureShards == 0 && e.extended > 0 {
		return time.Time{}, nil
	}
	for _, slot := range sortedSlots(c.diffs) {
		d := c.diffs[slot]
		own := Version{}
		if en := e.entries[slot]; en != nil {
			own = en.head.Version
		}
		if own != d.own || c.walked.Sub(d.last) > walkFor || d.last.Sub(d.since) < confirmAfter {
			continue
		}
		if since.IsZero() || d.since.Before(since) {
			since = d.since
		}
		if len(list) < listedDiffs {
			list = append(list, e.explain(slot, d))
		}
	}
	if since.IsZero() && !c.unequal.IsZero() && c.reports >= unwalked {
		since = c.unequal
	}
	return since, list
}

// explain names an entry and the reason of a difference.
func (e *Engine) explain(slot Slot, d *diff) Difference {
	out := Difference{Slot: slot, Reason: "not sent by the peer"}
	if en := e.entries[slot]; en != nil && en.record != nil {
		out.Key = en.record.Key
	} else if en != nil {
		out.Node = en.manifest.Node
	}
	switch {
	case d.peer == Version{}:
		out.Reason = "only here"
		return out
	case d.peer.Less(d.own):
		out.Reason = "earlier version on the peer"
		return out
	}
	if w := e.withholds(Head{Slot: slot, Version: d.peer}); w != nil {
		out.Reason = "withheld here: " + w.why
	} else if r := e.refused[Head{Slot: slot, Version: d.peer}]; r != nil {
		out.Key, out.Node, out.Reason = r.Key, r.Node, "refused here: "+r.Detail
	} else if r := e.parked[slot]; r != nil && !r.record.Version().Less(d.peer) {
		out.Key, out.Reason = r.record.Key, "parked here: dated in the future"
	} else if r := e.limbo[slot]; r != nil && r.Version() == d.peer {
		out.Key, out.Reason = r.Key, "in limbo here"
	} else if r, ok := e.damaged[slot]; ok {
		out.Reason = "damaged here: " + r.Detail
	} else if p := e.pending[slot]; p != nil {
		out.Node, out.Reason = p.manifest.Node, "waits for bodies or shards here"
	} else if e.wants.bySlot[slot] != nil {
		out.Reason = "requested, not received"
	}
	return out
}
