package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// trial is the search for the resources of one type for which a client rejects whole responses
// without naming any. All of such a response that was new to the client is suspected. Suspects are
// held back and sent again in halves, one group at a time, and only once the client has answered
// all else: what it accepts is in force, what it rejects is halved again, until the resources are
// left that it rejects by themselves. For k of n resources that takes at most 2k(1+log2 n)
// responses.
//
// Which names are suspected is told by [rejection.suspect] alone: a group may hold names that are
// suspected no longer.
type trial struct {
	test []string   // may be sent now; nil for none
	wait [][]string // are held back; the last one is the next
}

// goOn forgets the names that are suspected no longer and says whether anything is left to be
// tried.
func (n *proxy) goOn(rank int) bool {
	t := &n.trials[rank]
	if t.test == nil && t.wait == nil {
		return false
	}
	settled := func(name string) bool {
		rej := n.rejected[rank][name]
		return rej == nil || !rej.suspect
	}
	if t.test = slices.DeleteFunc(t.test, settled); len(t.test) == 0 {
		t.test = nil
	}
	for i := range t.wait {
		t.wait[i] = slices.DeleteFunc(t.wait[i], settled)
	}
	if t.wait = slices.DeleteFunc(t.wait, func(g []string) bool { return len(g) == 0 }); len(t.wait) == 0 {
		t.wait = nil
	}
	return t.test != nil || t.wait != nil
}

// tryNext lets the next group of suspects be sent, when the client has answered all that it was
// sent of the type, and says whether there is one. Names that the client has not subscribed to are
// suspected no longer.
func (n *proxy) tryNext(w *typeWatch) bool {
	t := &n.trials[w.rank]
	if w.ticket != nil || len(w.unacked) > 0 || !n.goOn(w.rank) || t.test != nil {
		return false
	}
	for len(t.wait) > 0 && t.test == nil {
		next := t.wait[len(t.wait)-1]
		t.wait = t.wait[:len(t.wait)-1]
		for _, name := range next {
			if w.wants(name) {
				t.test = append(t.test, name)
			} else {
				delete(n.rejected[w.rank], name)
			}
		}
	}
	n.hold()
	return t.test != nil
}

// suspects returns the names of a response that was rejected without naming any: what the client
// had not accepted before in these bytes, else all.
func (n *proxy) suspects(t *Response) map[string]struct{} {
	out, rank := map[string]struct{}{}, t.w.rank
	for _, r := range t.Send {
		if a := draft.Find(n.accepted[rank], r.Name); a == nil || a.Version != r.Version {
			out[r.Name] = struct{}{}
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, r := range t.Send {
		out[r.Name] = struct{}{}
	}
	n.setAccepted(rank, draft.Merge(n.accepted[rank], nil, func(name string) bool { _, is := out[name]; return is }))
	return out
}

// bisects says whether what a client rejects without a name is looked for. A state-of-the-world
// client that came with a config of unknown bytes would lose with each half what it has of the
// other.
func (n *proxy) bisects(w *typeWatch) bool { return !(w.full() && n.foreign[w.rank]) }

// halve puts the names of a response that was rejected without a name on trial, in two halves. All
// are names of n.rejected.
func (n *proxy) halve(rank int, names []string) {
	if len(names) == 0 {
		return
	}
	t := &n.trials[rank]
	in := func(name string) bool { return slices.Contains(names, name) }
	if rest := slices.DeleteFunc(t.test, in); len(rest) > 0 {
		t.wait = append(t.wait, rest)
	}
	t.test = nil
	for i := range t.wait {
		t.wait[i] = slices.DeleteFunc(t.wait[i], in)
	}
	half := (len(names) + 1) / 2
	t.wait = append(t.wait, slices.Clone(names[half:]), slices.Clone(names[:half]))
	n.goOn(rank)
}

// isolate has a resource tried by itself, after all others.
func (n *proxy) isolate(rank int, name string, rej *rejection) {
	rej.suspect, rej.alone = true, false
	n.trials[rank].wait = slices.Insert(n.trials[rank].wait, 0, []string{name})
}

// moved takes note that the bytes of a rejected resource have changed, and says whether it is still
// suspected: what was tried or is on trial is tried again with nothing else beside it, so that it
// harms no other.
func (n *proxy) moved(rank int, rej *rejection, r *draft.Resource) bool {
	if !rej.suspect && !rej.alone {
		return false
	}
	if a := draft.Find(n.accepted[rank], r.Name); a != nil && a.Version == r.Version {
		return false
	}
	rej.resource, rej.madeAt, rej.attributed, rej.blame, rej.retry = r, n.revision, false, nil, retry{}
	if rej.alone {
		n.isolate(rank, r.Name, rej)
	}
	return true
}

// isHeldBack says whether a rejected resource is not sent in any form where none was accepted: it
// would have the client reject all that is sent with it.
func (n *proxy) isHeldBack(rank int, rej *rejection) bool {
	return rej.alone || rej.suspect && !slices.Contains(n.trials[rank].test, rej.resource.Name)
}

// isSpared says whether a name is left as it is at the client, for now.
func (n *proxy) isSpared(rank int, name string) bool {
	_, is := n.spared[rank][name]
	return is
}

// restore takes note that a client has kept what it had before a response that it rejected as a
// whole.
func (w *typeWatch) restore(t *Response) {
	var kept []*draft.Resource
	for _, r := range t.Send {
		had, a := draft.Find(t.before, r.Name), draft.Find(w.proxy.accepted[w.rank], r.Name)
		switch {
		case had == nil || a == nil || had.Version != a.Version:
			w.markStale(r.Name)
		case draft.Find(w.base, r.Name) == r:
			kept = append(kept, had)
		}
	}
	for _, name := range t.Removed {
		w.markStale(name)
	}
	slices.SortFunc(kept, draft.ByName)
	w.base = draft.Merge(w.base, kept, nil)
}
