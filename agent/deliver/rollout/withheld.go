package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// withhold takes note of what the check withholds of the config in force. What was known of a
// resource that is still withheld stays known.
func (n *proxy) withhold(list []draft.Withheld, now time.Time) {
	before := n.withheld
	n.withheld, n.checked = [draft.NumTypes]map[string]*rejection{}, list
	var names [draft.NumTypes][]string // of those that are new
	for i := range list {
		w := &list[i]
		rank, name := draft.Rank(w.ID.TypeURL), w.ID.Name
		if rank < 0 || w.Resource == nil {
			continue
		}
		if n.withheld[rank] == nil {
			n.withheld[rank] = map[string]*rejection{}
			n.status(rank)
		}
		was := before[rank][name]
		if was == nil || was.resource.Version != w.Resource.Version || was.cause != w.Cause {
			if was == nil || was.resource.Version != w.Resource.Version {
				names[rank] = append(names[rank], name)
			}
			was = &rejection{check: true, resource: w.Resource, at: now, since: n.rejectedSince(rank, name), madeAt: n.revision,
				cause: w.Cause}
		}
		was.rule, was.reason, was.leftOut = w.Rule, clip.PrintableText(w.Reason, maxReason),
			draft.Find(n.cfg.Resources[rank], name) == nil
		n.withheld[rank][name] = was
	}
	for rank, list := range names {
		if len(list) == 0 {
			continue
		}
		reason := n.withheld[rank][list[0]].reason
		n.all.metrics.refused.WithLabelValues(typeLabels[rank]).Add(float64(len(list)))
		n.record(api.Event{Kind: "held", TypeURL: draft.Types[rank], Version: n.cfg.Versions[rank], Reason: reason,
			Resources: list, Count: len(list)}, nil)
		n.logLater("resources are withheld from a proxy", "node", n.key.ID, "flavor", n.key.Flavor,
			"type", draft.Types[rank], "resources", firstNames(list, maxEventNames), "count", len(list), "reason", reason)
	}
}

// by says who found the resource unusable.
func (r *rejection) by() string {
	if r.check {
		return api.HeldByCheck
	}
	return api.HeldByProxy
}

// rejectedSince returns rejection.since of a name: from now on, if it was not rejected before.
func (n *proxy) rejectedSince(rank int, name string) uint64 {
	if n.since[rank] == nil {
		n.since[rank] = map[string]uint64{}
	}
	if _, known := n.since[rank][name]; !known {
		n.since[rank][name] = n.takenRevision[rank]
	}
	return n.since[rank][name]
}

// leavesAlone says whether a client is left what it said it has under a name, in bytes that are not
// known, as after a restart of the agent: it is a resource that is withheld and left out, or may be
// something that such a one needs.
func (n *proxy) leavesAlone(rank int, name string) bool {
	if u := n.withheld[rank][name]; u != nil && u.unsent || n.leavesStrays(rank) {
		return true
	}
	return slices.ContainsFunc(draft.Referrers[rank], func(r int) bool { return n.unsent[r] })
}

// isLeftAlone is leavesAlone for a holding of the watch.
func (w *typeWatch) isLeftAlone(name string, h holding) bool {
	return h.kind == holdsVersion && w.proxy.leavesAlone(w.rank, name) ||
		h.kind != holdsDue && w.proxy.isSpared(w.rank, name)
}

// confirm takes what a client said it has for accepted where the config came to have the same.
func (n *proxy) confirm(w *typeWatch, settled map[string]holding) {
	var same []*draft.Resource
	for name, h := range settled {
		if r := draft.Find(w.base, name); h.kind == holdsVersion && r != nil && r.Version == h.version {
			same = append(same, r)
		}
	}
	if len(same) > 0 {
		slices.SortFunc(same, draft.ByName)
		n.setAccepted(w.rank, draft.Merge(n.accepted[w.rank], same, nil))
	}
}

// setAccepted takes note of what the client has accepted last of a type.
func (n *proxy) setAccepted(rank int, list []*draft.Resource) {
	if rank == draft.RankListener {
		n.drainListeners(n.accepted[rank], list)
	}
	n.accepted[rank] = list
	if n.outdated() {
		n.all.opts.Changed()
	}
}

// outdated says that something was withheld in the light of other listeners than those that the
// client has accepted last.
func (n *proxy) outdated() bool {
	return n.cfg != nil && len(n.checked) > 0 && !draft.SameList(n.against, n.accepted[draft.RankListener])
}

// heldBy counts the resources of a type that the client rejects, and those that the check withholds
// from it.
func (n *proxy) heldBy(rank int) (proxy, check int) {
	for name := range n.rejected[rank] {
		if n.withheld[rank][name] == nil {
			proxy++
		}
	}
	proxy += len(n.waiting[rank])
	return proxy, len(n.withheld[rank])
}

// troubles returns the rejections of a type by name, in any order: those of the check, and those of
// the client beside them.
func (n *proxy) troubles(rank int) map[string]*rejection {
	if len(n.withheld[rank])+len(n.waiting[rank]) == 0 {
		return n.rejected[rank]
	}
	out := map[string]*rejection{}
	maps.Copy(out, n.waiting[rank])
	maps.Copy(out, n.withheld[rank])
	for name, r := range n.rejected[rank] {
		if out[name] == nil {
			out[name] = r
		}
	}
	return out
}
