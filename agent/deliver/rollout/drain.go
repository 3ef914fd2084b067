package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// drainListeners takes note of the forms of listeners that an Envoy has let go of with what it has
// accepted now.
func (n *proxy) drainListeners(before, now []*draft.Resource) {
	if n.proxies.opts.DrainTime <= 0 || !n.client.Envoy {
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

// drain takes note of a form of a listener that drains from now on.
func (n *proxy) drain(d drainingListener) {
	d.revision, d.until = n.revision, n.proxies.opts.Now().Add(n.proxies.opts.DrainTime+drainSlack)
	n.draining = append(n.draining, d)
}

// resumeDrains takes note of what may drain in an Envoy that comes with a config of another agent,
// or of this one before it was started anew: of the listeners that it has in other bytes the old
// forms are not known, nor which clusters these lead to. It keeps all clusters for the time of
// draining then.
func (n *proxy) resumeDrains(w *typeWatch, want []*draft.Resource) {
	if !w.delta || !n.client.Envoy || n.proxies.opts.DrainTime <= 0 {
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
			n.leaveUntil = n.proxies.opts.Now().Add(n.proxies.opts.DrainTime + drainSlack)
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

// retainDrained puts into the lists what listeners that still drain refer to and the config has no
// longer: without their clusters, requests and connections on them would fail. The lists are looked
// at again when the next has drained.
func (n *proxy) retainDrained() {
	now := n.proxies.opts.Now()
	if forms := n.prune(now); len(forms) > 0 {
		n.lists = draft.Retain(&n.lists, forms, &n.accepted)
	}
	n.bridge()
	n.armDrainTimer(now)
}

// bridge puts into the lists the forms of resources that serve old filter chains as well as the new
// ones: clusters of a listener that took requests and takes connections now, and routes that say
// who may use them, so that it holds on open connections.
func (n *proxy) bridge() {
	made := n.bridged
	n.bridged = nil
	var over draft.Lists
	put := func(rank int, key bridging, form func() *draft.Resource) {
		r, ok := made[key]
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
	for i := len(n.draining) - 1; i >= 0; i-- { // where several drain, what the newest needs
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
