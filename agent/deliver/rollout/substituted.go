package rollout

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Rejections returns the resources that are not in force at the client of a node, like
// [Progress.Rejected]. resets counts the changes of the client after which its earlier rejections
// no longer count: another user, or another version of Envoy.
func (p *Proxies) Rejections(key node.Key) (list []draft.Rejection, resets uint64) {
	n := p.proxyOf(key)
	if n == nil {
		return nil, 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.rejects {
		return nil, n.resets
	}
	for rank := range draft.Types {
		for _, rej := range n.notInForce(rank) {
			rej.read = rej.read || rej.attributed
		}
	}
	return n.rejections(), n.resets
}

// decided records that a config was published after Rejections had returned the known rejections.
func (n *proxy) decided() {
	if !n.rejects {
		return
	}
	for rank := range draft.Types {
		for _, rej := range n.notInForce(rank) {
			if rej.read && rej.deciding {
				rej.deciding = false
				n.proxies.watchers.changes.Add(1)
			}
		}
	}
}

// substitute sets the rejected resources of which the config has another form.
func (n *proxy) substitute(list []draft.Rejection) {
	before := n.lacking
	n.lacking, n.substituted = [draft.NumTypes]map[string]*rejection{}, list
	for i := range list {
		r := &list[i]
		rank := draft.Rank(r.ID.TypeURL)
		if rank < 0 || r.Resource == nil {
			continue
		}
		if n.lacking[rank] == nil {
			n.lacking[rank] = map[string]*rejection{}
			n.status(rank)
		}
		rej := &rejection{resource: r.Resource, reason: r.Reason, at: r.Time, check: r.By == api.HeldByCheck, rule: r.Rule,
			cause: r.Cause, since: r.Since, madeAt: r.MadeAt, overtakes: r.Overtakes, retry: retry{at: r.Retry},
			without: r.Without, instead: r.Instead, attributed: r.Attributed, attributedAt: r.AttributedAt,
			blame: slices.Clone(r.Blame)}
		if was := before[rank][r.ID.Name]; was != nil && was.resource.Version == rej.resource.Version {
			rej.attributed, rej.attributedAt, rej.blame = was.attributed, was.attributedAt, was.blame
		}
		n.lacking[rank][r.ID.Name] = rej
	}
}

// sameSubstituted reports whether a list equals that of the config.
func (n *proxy) sameSubstituted(list []draft.Rejection) bool {
	return slices.EqualFunc(list, n.substituted, func(a, b draft.Rejection) bool {
		return a.ID == b.ID && a.Resource == b.Resource && a.Instead == b.Instead && a.Retry.Equal(b.Retry) &&
			slices.Equal(a.Without, b.Without)
	})
}

// rejectsInstead reports whether the client rejects the form that replaces a rejected resource.
func (n *proxy) rejectsInstead(rank int, rej *rejection) bool {
	if rej.instead == nil {
		return false
	}
	inner := n.rejected[rank][rej.resource.Name]
	return inner != nil && !inner.suspect && inner.resource.Version == rej.instead.Version
}

// getsInstead reports whether the client gets the form of the config that replaces a rejected
// resource.
func (n *proxy) getsInstead(rank int, rej *rejection) bool {
	return len(rej.without) > 0 && !n.rejectsInstead(rank, rej)
}

// blameOf returns the known policies that affect a rejected resource. If the client has accepted
// the form without some of them, these are the cause.
func (n *proxy) blameOf(rank int, rej *rejection) []api.Blame {
	out := append([]api.Blame{}, rej.blame...)
	if len(rej.without) == 0 {
		return out
	}
	if a := n.acceptedForm(rank, rej.resource.Name); rej.instead != nil && (a == nil || a.Version != rej.instead.Version) {
		return out
	}
	for i := range out {
		b := &out[i]
		b.Evidence = api.BlameShapes
		for _, o := range rej.without {
			switch {
			case o.Type != b.Type || o.Mesh != b.Mesh || o.Name != b.Name:
			case o.Revision > 0:
				b.Evidence = api.BlameChanged
			default:
				b.Evidence = api.BlameAlone
			}
		}
	}
	slices.SortStableFunc(out, func(a, b api.Blame) int { // the causes first
		return cmp.Compare(slices.Index(evidence[:], a.Evidence), slices.Index(evidence[:], b.Evidence))
	})
	return out
}

// evidence lists the values of [api.Blame.Evidence] for causes, and then the one
// of other policies.
var evidence = [...]string{api.BlameChanged, api.BlameAlone, api.BlameShapes}
