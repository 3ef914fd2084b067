package engine

import (
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
)

// Parameters of comparisons.
const (
	syncEach    = time.Second      // minimum interval of comparisons with a peer
	syncTries   = 3                // comparisons with unchanged roots, after which a difference counts as permanent
	syncLasting = 10 * time.Minute // interval of comparisons with a permanent difference
	syncWide    = 4096             // number of entries above which a comparison starts one level lower
	syncGive    = 64 << 10         // bytes sent without a request; the rest is announced
	syncHeads   = 4096             // maximum heads in a message of a comparison
)

// startSync starts a comparison with a peer whose root differs, or is unknown (nil). It is
// stateless: if a message is lost, the next comparison finds the difference.
func (e *Engine) startSync(p *peer, root *Digest) {
	since := e.now.Sub(p.synced)
	if since < syncEach {
		return
	}
	if root == nil {
		p.tries = 0
	} else if roots := [2]Digest{e.tree.Sum, *root}; p.roots != roots {
		p.roots, p.tries = roots, 0
	} else if p.tries++; p.tries >= syncTries && since < syncLasting {
		return // same difference as before: one side rejects an entry
	}
	if !e.starts.Take(e.now, 1) {
		return
	}
	p.synced = e.now
	e.count("comparisons")
	e.send(p.name, e.opening())
}

// opening returns the first message of a comparison.
func (e *Engine) opening() (m message) {
	switch n := e.tree.Count; {
	case n <= sumtree.LeafSize:
		m.Leaves = []Leaves{{Heads: e.tree.At(Prefix{})}}
	case n <= syncWide:
		m.Sums = []Sums{e.sumsOf(Prefix{})}
	default:
		for i := range 16 {
			m.Sums = append(m.Sums, e.sumsOf(Prefix{}.Child(i)))
		}
	}
	return m
}

func (e *Engine) sumsOf(p Prefix) Sums {
	s, _ := e.tree.Sums(p)
	return Sums{p, s}
}

// compare descends one level where the sums of a peer differ, and exchanges entries where the peer
// has listed its heads.
func (e *Engine) compare(m *message) {
	out := message{Stream: m.Stream}
	root := e.tree.Sum
	if m.Root != nil {
		out.Root = &root
	}
	heads := 0
	if m.Root != nil && len(m.Sums) > 0 {
		e.peers[m.From].checks.walk(e.now)
	}
	for _, s := range m.Sums {
		own, counts := e.tree.Sums(s.Prefix)
		for i := range s.Parts {
			if own[i] == s.Parts[i] || s.Prefix.Depth >= sumtree.MaxDepth-1 {
				continue
			}
			if heads > syncHeads || len(out.Sums) > 512 {
				break // the next comparison finds the rest
			}
			c := s.Prefix.Child(i)
			if counts[i] > sumtree.LeafSize {
				out.Sums = append(out.Sums, e.sumsOf(c))
				continue
			}
			l := Leaves{Prefix: c, Heads: e.tree.At(c)}
			heads += len(l.Heads) + 1
			out.Leaves = append(out.Leaves, l)
		}
	}
	given, have := 0, []Head(nil)
	var differing []Leaves
	for _, l := range m.Leaves {
		if m.Root != nil && e.noteDiffs(e.peers[m.From], l) {
			differing = append(differing, l)
		}
		if m.Echo {
			continue
		}
		given, have = e.exchange(m, l, &out, given, have)
	}
	if len(out.Sums)+len(out.Leaves)+len(out.Records)+len(out.Manifests) > 0 {
		e.send(m.From, out)
	} else if m.Root != nil && !m.Echo && len(differing) == 0 {
		e.endCheck(e.peers[m.From])
	}
	if len(have) > 0 {
		e.sendHeads(m.From, have, m.Stream)
	}
	if m.Root != nil && !m.Echo {
		e.echo(m, differing)
	}
}

// exchange compares all heads of a leaf with those of a peer. It requests versions that are newer
// on the peer and sends or announces versions that are newer here.
func (e *Engine) exchange(m *message, l Leaves, out *message, given int, have []Head) (int, []Head) {
	own, counts := e.tree.Sums(l.Prefix)
	total := 0
	for _, n := range counts {
		total += n
	}
	if total > syncWide && l.Depth < sumtree.MaxDepth-1 {
		out.Sums = append(out.Sums, Sums{l.Prefix, own}) // too many to compare individually
		return given, have
	}
	theirs := make(map[Slot]Version, len(l.Heads))
	for _, h := range l.Heads {
		if l.Holds(h.Slot) {
			theirs[h.Slot] = h.Version
		}
	}
	e.wantHeads(l.Heads, m.From, m.Stream)
	e.wants.compared = e.wants.compared || len(e.wants.bySlot) > 0
	for _, h := range e.tree.At(l.Prefix) {
		v, there := theirs[h.Slot]
		if there && !v.Less(h.Version) {
			continue
		}
		en := e.entries[h.Slot]
		if !there && e.moveToLimbo(en, m) {
			continue
		}
		size := 0
		if en.record != nil {
			size = len(en.record.Encoded())
		} else {
			size = len(en.manifest.Encoded())
		}
		switch {
		case given+size <= syncGive && en.record != nil:
			given += size
			out.Records = append(out.Records, en.record)
		case given+size <= syncGive:
			given += size
			out.Manifests = append(out.Manifests, en.manifest)
		case len(have) < headsEach:
			have = append(have, h)
		}
	}
	return given, have
}

// moveToLimbo drops a record into limbo if it is older than all remembered deletions and the peer
// does not have it, although the peer was never away and this node was. So a deleted record cannot
// return.
func (e *Engine) moveToLimbo(en *entry, m *message) bool {
	if en.record == nil || en.record.Deleted || en.record.HLC.Date() >= e.ancient || e.agreed.IsZero() ||
		e.knowsDeletions(e.agreed) || m.Agreed == 0 || !e.knowsDeletions(time.UnixMilli(int64(min(m.Agreed, 1<<52)))) {
		return false
	}
	e.toLimbo(en.record, "this node was away for longer than the lifetime of deletions, and a peer does not have it")
	e.dropRecord(en)
	return true
}
