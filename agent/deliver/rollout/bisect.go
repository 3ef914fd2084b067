package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// tryNext makes the next group of suspects ready to be sent if the client has answered all
// responses of the type. It reports whether there is a group. Names to which the client is not
// subscribed are no longer suspected.
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

// suspects returns the suspected names of a response that was rejected without a name: the
// resources that the client had not accepted before in these bytes, or else all resources.
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

// bisects reports whether the server searches for the resource that a client rejects without naming
// it. A state-of-the-world client that connected with an unknown config would lose the resources of
// the other half with each response.
func (n *proxy) bisects(w *typeWatch) bool { return !(w.full() && n.foreign[w.rank]) }

// bytesChanged records that the bytes of a rejected resource have changed, and reports whether it
// is still suspected. A resource that was tried, or is on trial, is sent separately, so that it
// affects no other resource.
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

// restore records that a client has kept its previous resources, because it rejected a whole
// response.
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
