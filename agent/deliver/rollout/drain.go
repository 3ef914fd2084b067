package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// drainListeners records the listeners that an Envoy drains because it has accepted a new list.
func (n *proxy) drainListeners(before, now []*draft.Resource) {
	if !n.client.Envoy {
		return
	}
	n.noteReplaced(before, now)
	if n.proxies.opts.DrainTime <= 0 {
		return
	}
	draft.Compare(before, now, func(old, _ *draft.Resource) {
		if old != nil {
			d := drainingListener{name: old.Name, form: old}
			if h := n.handovers[old.Name]; h != nil && h.from.Version == old.Version {
				d.clusters = h.clusters
			}
			n.drain(d)
		}
	})
	n.drainState.trim()
}

// drain records a listener that drains from now on.
func (n *proxy) drain(d drainingListener) {
	d.until = n.proxies.opts.Now().Add(n.proxies.opts.DrainTime + DrainSlack)
	n.draining = append(n.draining, d)
}

// resumeDrains records what may drain in an Envoy that connects with the config of another agent,
// or of this agent before a restart. The old forms of its listeners and the clusters to which they
// lead are unknown, so the Envoy keeps all clusters for the drain time.
func (n *proxy) resumeDrains(w *typeWatch, want []*draft.Resource) {
	if !n.client.Envoy {
		return
	}
	n.noteResumed(w, want)
	if !w.delta || n.proxies.opts.DrainTime <= 0 {
		return
	}
	var routes []string
	for name, h := range w.over {
		if h.kind != holdsVersion || n.acceptedForm(w.rank, name) != nil {
			continue
		}
		r := draft.Find(want, name)
		switch {
		case r != nil && r.Version == h.version:
		case w.rank == draft.RankCluster && r == nil:
			n.leaveUntil = n.proxies.opts.Now().Add(n.proxies.opts.DrainTime + DrainSlack)
		case w.rank == draft.RankListener && r != nil:
			n.drain(drainingListener{name: name})
		case w.rank == draft.RankRoute && r != nil:
			routes = append(routes, name)
		}
	}
	for _, l := range n.cfg.Resources[draft.RankListener] {
		if slices.ContainsFunc(routes, func(name string) bool { return l.Refs().Has(envoy.KindRoute, name) }) {
			n.drain(drainingListener{name: l.Name})
		}
	}
}

// retainDrained adds the resources to which draining listeners refer, and that the config no longer
// has, to the lists. Without these clusters, requests and connections on the listeners would fail.
// The lists are updated again when the next listener has drained.
func (n *proxy) retainDrained() {
	now := n.proxies.opts.Now()
	if forms := n.prune(now); len(forms) > 0 {
		n.lists = draft.Retain(&n.lists, forms, &n.accepted)
	}
	n.bridge()
	n.armDrainTimer(now)
}

// bridge adds forms of resources that serve both old and new filter chains to the lists: clusters
// of a listener that changed from HTTP to TCP, and routes with the present RBAC rules, so that
// these apply to open connections.
func (n *proxy) bridge() {
	previous := n.bridged
	n.bridged = nil
	var over draft.Lists
	put := func(rank int, key bridging, form func() *draft.Resource) {
		r, ok := previous[key]
		if !ok {
			r = form()
		}
		if n.bridged == nil {
			n.bridged = map[bridging]*draft.Resource{}
		}
		if n.bridged[key] = r; r != key.resource {
			over[rank] = append(over[rank], r)
		}
	}
	speakAs := func(before []*draft.Resource) {
		for _, was := range before {
			if c := draft.Find(n.lists[draft.RankCluster], was.Name); c != nil {
				put(draft.RankCluster, bridging{c, nil, was}, func() *draft.Resource { return draft.SpeakAs(c, was) })
			}
		}
	}
	for _, h := range n.handovers {
		speakAs(h.clusters)
	}
	for i := len(n.draining) - 1; i >= 0; i-- { // the needs of the newest listener take precedence
		d := &n.draining[i]
		current := draft.Find(n.lists[draft.RankListener], d.name)
		if current == nil || d.form == current {
			continue
		}
		d.compare(current)
		switch {
		case !d.toTCP:
		case strings.HasPrefix(d.name, outboundPrefix):
			for _, c := range draft.LeadsTo(d.form, &n.lists) {
				put(draft.RankCluster, bridging{c, nil, nil}, func() *draft.Resource { return draft.FollowDownstream(c) })
			}
		default:
			speakAs(d.clusters)
		}
		if !d.guards {
			continue
		}
		for _, r := range draft.RoutesOf(current, &n.lists) {
			put(draft.RankRoute, bridging{r, current, d.form}, func() *draft.Resource { return draft.Guard(r, current, d.form) })
		}
	}
	for rank, list := range over {
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, draft.ByName)
		list = slices.CompactFunc(list, func(a, b *draft.Resource) bool { return a.Name == b.Name })
		n.lists[rank] = draft.Merge(n.lists[rank], list, nil)
	}
}

// armDrainTimer starts the timer that updates the lists when the next listener has drained, or no
// longer waits for other proxies.
func (n *proxy) armDrainTimer(now time.Time) {
	n.drainState.stopTimer()
	next := n.drainState.next(now)
	if next.IsZero() {
		return
	}
	n.drainTimer = time.AfterFunc(next.Sub(now), func() {
		n.mu.Lock()
		defer n.unlock()
		if n.cfg != nil {
			n.hold()
			n.refresh()
			n.noteAnswered()
		}
	})
}
