package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// tryNext lets the next group of suspects be sent, when the client has answered all that it was
// sent of the type, and says whether there is one. Names that the client has not subscribed to are
// suspected no longer.
func (n *proxy) tryNext(w *typeWatch) bool {
	t := &n.trials[w.rank]
	if w.ticket != nil || len(w.unacked) > 0 || !n.pruneTrial(w.rank) || t.test != nil {
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
func (n *proxy) newlySent(t *Response) map[string]struct{} {
	out, rank := map[string]struct{}{}, t.w.rank
	for _, r := range t.Send {
		if a := n.acceptedForm(rank, r.Name); a == nil || a.Version != r.Version {
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

// moved takes note that the bytes of a rejected resource have changed, and says whether it is still
// suspected: what was tried or is on trial is tried again with nothing else beside it, so that it
// harms no other.
func (n *proxy) bytesChanged(rank int, rej *rejection, r *draft.Resource) bool {
	if !rej.suspect && !rej.alone {
		return false
	}
	if a := n.acceptedForm(rank, r.Name); a != nil && a.Version == r.Version {
		return false
	}
	rej.resource, rej.madeAt, rej.attributed, rej.blame, rej.retry = r, n.revision, false, nil, retry{}
	if rej.alone {
		n.tryAlone(rank, r.Name, rej)
	}
	return true
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
