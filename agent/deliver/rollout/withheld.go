package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// withhold sets the resources of the config that the check withholds. For a resource that was
// withheld before, time and blame stay.
func (n *proxy) withhold(list []draft.Withheld, now time.Time) {
	before := n.withheld
	n.withheld, n.checked = [draft.NumTypes]map[string]*rejection{}, list
	var names [draft.NumTypes][]string // newly withheld names
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
			was = &rejection{check: true, resource: w.Resource, at: now,
				since: n.rejectedSince(rank, name, n.acceptedRevision[rank]), madeAt: n.revision,
				cause: w.Cause}
		}
		was.rule, was.reason, was.leftOut = w.Rule, clip.PrintableText(w.Reason, maxReason),
			n.configured(rank, name) == nil
		n.withheld[rank][name] = was
	}
	for rank, list := range names {
		if len(list) == 0 {
			continue
		}
		reason := n.withheld[rank][list[0]].reason
		n.proxies.metrics.refused.WithLabelValues(typeLabels[rank]).Add(float64(len(list)))
		n.record(api.Event{Kind: "held", TypeURL: draft.Types[rank], Version: n.cfg.Versions[rank], Reason: reason,
			Resources: list, Count: len(list)}, nil)
		n.logLater("resources are withheld from a proxy", "node", n.key.ID, "flavor", n.key.Flavor,
			"type", draft.Types[rank], "resources", firstNames(list, maxEventNames), "count", len(list), "reason", reason)
	}
}

// isLeftUnchanged reports whether a client retains its resource under a name that is not in the
// list. Either the client reported the name with unknown bytes, as after a restart of the agent,
// and a withheld or draining resource may need it, or a trial excludes the name.
func (w *typeWatch) isLeftUnchanged(name string, h holding) bool {
	return h.kind == holdsVersion && (w.proxy.leavesUnsent(w.rank, name) ||
		w.proxy.leavesStrays(w.rank, w.proxy.proxies.opts.Now())) || h.kind != holdsDue && w.proxy.isExcluded(w.rank, name)
}

// confirm records resources as accepted that the client reported and that the config has in the
// same version.
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

// setAccepted sets the resources of a type that the client accepted last.
func (n *proxy) setAccepted(rank int, list []*draft.Resource) {
	if rank == draft.RankListener {
		n.drainListeners(n.accepted[rank], list)
	}
	n.accepted[rank] = list
	if n.outdated() {
		n.proxies.opts.Changed()
	}
}

// outdated reports whether the client has accepted other listeners than those from which the
// withheld resources were determined.
func (n *proxy) outdated() bool {
	return n.cfg != nil && len(n.checked) > 0 && !draft.SameList(n.checkedAgainst, n.accepted[draft.RankListener])
}
