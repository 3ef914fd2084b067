package rollout

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// needs lists, by rank, the types to which the resources of a type may refer. While one of these
// types has additions that cannot be sent yet, additions to the type wait. Endpoints wait for
// clusters because the endpoints of an updated cluster belong to its new version, except for those
// that the client has requested; see Stream.mustWait.
var needs = [draft.NumTypes][]int{
	draft.RankCluster:  {draft.RankSecret},
	draft.RankEndpoint: {draft.RankCluster},
	draft.RankListener: {draft.RankSecret, draft.RankCluster, draft.RankEndpoint},
	draft.RankRoute:    {draft.RankCluster, draft.RankEndpoint},
}

// Causes of a response.
const (
	causePush    = "the config changed"
	causeRequest = "the client requested it"
	causeRemoval = "no resource refers to it any longer"
)

var errOverrun = status.Error(codes.Internal, "the stream has too many pending responses")

// advance hands over every response that the stream can send now, in make-before-break order. A
// type waits while a type to which it may refer has additions that cannot be sent yet, because its
// last response is not acknowledged. Removals wait until the types that may have referred to the
// resources are acknowledged. The caller holds the mu of the proxy.
func (st *Stream) advance() {
	n := st.proxy
	if !n.ready || n.cfg == nil || !st.isPublishedFor() || st.ended || st.subscribing {
		return
	}
	var behind [draft.NumTypes]bool // types with additions that cannot be sent yet
	waiting := false
	for rank, w := range st.watches {
		if w == nil || w.sub == nil {
			continue
		}
		if w.fresh {
			st.begin(w)
		}
		// After the list has changed, a return to the rejected list is a change like any other.
		if w.quietFor != n.cfg.Versions[rank] {
			w.quietFor = ""
		}
		if w.ticket != nil {
			behind[rank] = w.ticket.list != n.cfg.Versions[rank]
			continue
		}
		c := st.pending(w)
		if c.empty() && n.tryNext(w) {
			c = st.pending(w)
		}
		waiting = waiting || c.waiting
		switch {
		case c.empty():
			settled := w.clearHoldings(c.base, w.quiet(n.cfg), c.waiting)
			w.base, w.owed = c.base, false
			if w.confirms && !c.waiting {
				n.confirmReport(w, st.version(w, w.base))
			}
			n.confirm(w, settled)
		case !w.open, c.adds() && (st.mustWait(w, behind) || st.awaitsClusters(w)),
			rank == draft.RankListener && n.outdated():
			behind[rank] = c.adds()
		default:
			st.hand(w, c)
		}
	}
	st.awaitRemoval(waiting)
	st.watchWarming()
}

// mustWait reports whether additions to a type wait for those of a type to which they may refer.
// Envoy acknowledges its clusters only when they are warm, for which it needs their endpoints. If
// the endpoints waited for the acknowledgement, both would wait until the initial fetch of the
// endpoints times out.
func (st *Stream) mustWait(w *typeWatch, behind [draft.NumTypes]bool) bool {
	if w.rank == draft.RankEndpoint && w.asked() {
		return false
	}
	return slices.ContainsFunc(needs[w.rank], func(r int) bool { return behind[r] })
}

// awaitsClusters reports whether listeners or routes wait until an Envoy has acknowledged clusters
// that are new to it. Envoy acknowledges a cluster when it is warm. Until then it answers requests
// for the cluster with 503.
func (st *Stream) awaitsClusters(w *typeWatch) bool {
	return (w.rank == draft.RankListener || w.rank == draft.RankRoute) && st.watchWarming() && !st.warmForced
}

// watchWarming reports whether an Envoy is warming clusters that are new to it. It starts the timer
// that bounds how long others wait for them, and stops it when all are warm.
func (st *Stream) watchWarming() bool {
	clusters := st.watches[draft.RankCluster]
	if !st.client.Envoy || clusters == nil {
		return false
	}
	warms := func(t *Response) bool { return t.warms }
	if !slices.ContainsFunc(clusters.unacked, warms) && (clusters.ticket == nil || !clusters.ticket.warms) {
		st.warmForced = false
		if st.warmTimer != nil {
			st.warmTimer.Stop()
			st.warmTimer = nil
		}
		return false
	}
	if st.warmTimer == nil && !st.warmForced {
		st.warmTimer = time.AfterFunc(st.proxy.proxies.opts.WarmWait, func() {
			n := st.proxy
			n.mu.Lock()
			defer n.unlock()
			st.warmTimer, st.warmForced = nil, true
			n.hold()
			n.refresh()
			n.noteAnswered()
		})
	}
	return true
}

// quiet reports whether the client rejected the present list (ENVOY rule P1).
func (w *typeWatch) quiet(cfg *draft.Sealed) bool {
	return w.quietFor != "" && w.quietFor == cfg.Versions[w.rank]
}

// wanted returns the list that the client should have.
func (st *Stream) wanted(w *typeWatch) []*draft.Resource { return st.proxy.lists[w.rank] }

// begin compares the resources that a client reports at the start of a subscription with the
// config.
func (st *Stream) begin(w *typeWatch) {
	n := st.proxy
	w.fresh = false
	reported := w.reported()
	if w.full() && (w.claimed == "" || len(n.accepted[w.rank]) == 0) {
		n.foreign[w.rank] = w.claimed != "" && w.claimed != st.version(w, st.wanted(w))
		n.hold()
	}
	if w.rank == draft.RankCluster && len(w.over) == 0 && w.claimed == "" { // the Envoy has just started
		n.replacedState = replacedState{}
		if len(n.draining) > 0 {
			n.draining = nil
			n.hold()
		}
	}
	n.resumeDrains(w, n.cfg.Resources[w.rank])
	want := st.wanted(w)
	var known []*draft.Resource
	switch {
	case w.delta:
		w.owed = w.sub.IsWildcard() && len(w.over) == 0
		for _, r := range want {
			if h, ok := w.over[r.Name]; ok && h.version == r.Version {
				known = append(known, r)
			}
		}
		for name, u := range n.withheld[w.rank] {
			if h, ok := w.over[name]; u.leftOut && ok && h.version == u.resource.Version {
				known = append(known, u.resource) // another agent has sent it
			}
		}
		slices.SortFunc(known, draft.ByName)
	case w.claimed != "" && w.claimed == st.version(w, want):
		w.base = want
		for _, r := range want {
			if w.wants(r.Name) {
				known = append(known, r)
			}
		}
	default:
		w.owed = w.sub.IsWildcard() || len(w.names)+len(w.sub.SubscribedPrefixes()) > 0
	}
	if w.claimed != "" {
		reported = len(known)
	}
	n.noteReport(w, reported)
	w.claimed = ""
	if w.rank == draft.RankEndpoint {
		for name := range st.warming {
			if w.wants(name) {
				w.setHolding(name, holding{kind: holdsDue})
			}
		}
		st.warming = nil
	}
	n.setAccepted(w.rank, draft.Merge(n.accepted[w.rank], known, nil))
	n.hold()
}

// pending returns the change that the client needs for a type.
func (st *Stream) pending(w *typeWatch) change {
	return w.changeTo(st.wanted(w), w.quiet(st.proxy.cfg), func() bool { return st.mayRemove(w.rank) })
}

// mayRemove reports whether all types that may refer to a type have been updated.
func (st *Stream) mayRemove(rank int) bool {
	if st.removalForced {
		return true
	}
	for _, r := range draft.Referrers[rank] {
		w := st.watches[r]
		if w == nil {
			// After a reconnect, Envoy requests clusters first and listeners immediately
			// afterwards.
			if r == draft.RankListener && st.client.Envoy {
				return false
			}
			continue
		}
		if w.fresh || w.ticket != nil || len(w.unacked) > 0 || w.quiet(st.proxy.cfg) || st.proxy.delayed[r] {
			return false
		}
		if c := st.pending(w); !c.empty() || c.waiting {
			return false
		}
	}
	return true
}

// awaitRemoval bounds how long removals wait for a client that never acknowledges or keeps
// rejecting the resources that refer to them.
func (st *Stream) awaitRemoval(waiting bool) {
	if !waiting {
		st.removalForced = false
		if st.removalTimer != nil {
			st.removalTimer.Stop()
			st.removalTimer = nil
		}
		return
	}
	if st.removalTimer != nil {
		return
	}
	st.removalTimer = time.AfterFunc(st.proxy.proxies.opts.RemovalWait, func() {
		st.proxy.mu.Lock()
		defer st.proxy.mu.Unlock()
		st.removalTimer = nil
		st.removalForced = true
		st.advance()
		st.proxy.noteAnswered()
	})
}

// hand turns a change into a response and passes it to the goroutine of the stream. It never
// blocks: each type has at most one response, and the channel has capacity for all types.
func (st *Stream) hand(w *typeWatch, c change) {
	n := st.proxy
	quiet := w.quiet(n.cfg)
	t := &Response{w: w, Rank: w.rank, Send: c.send, Removed: c.removed, base: c.base, owed: w.owed,
		list: n.cfg.Versions[w.rank], madeAt: n.firstRevision[w.rank]}
	t.settled = w.clearHoldings(c.base, quiet, c.waiting)
	switch {
	case !w.responded || c.answer || quiet || onlyDue(t.settled, c):
		t.cause = causeRequest
	case !c.adds():
		t.cause = causeRemoval
	default:
		t.cause, t.Published = causePush, n.pushedAt
	}
	w.responded = true
	t.Version = st.version(w, c.base)
	w.owed, w.open, w.ticket, w.confirms = false, false, t, false
	if w.rank == draft.RankCluster && st.proxy.key.Flavor == node.FlavorEnvoy {
		st.rewarm(c.updated)
		t.warms = slices.ContainsFunc(c.updated, func(r *draft.Resource) bool { return draft.Find(w.base, r.Name) == nil })
	}
	if !w.push(t) {
		st.transport.End("internal", errOverrun)
	}
}

// onlyDue reports whether a change consists of answers to requested names.
func onlyDue(settled map[string]holding, c change) bool {
	for _, r := range c.updated {
		if settled[r.Name].kind != holdsDue {
			return false
		}
	}
	for _, name := range c.removed {
		if settled[name].kind != holdsDue {
			return false
		}
	}
	return true
}

// rewarm marks the endpoints of updated clusters, so that they are sent although they have not
// changed: Envoy warms an updated cluster and waits for its endpoints. A state-of-the-world client
// requests them, sometimes with a stale nonce. A delta client that still has the name does not
// request them. A client that reconnects requests endpoints before it receives the clusters, so the
// names of these clusters are recorded until then.
func (st *Stream) rewarm(clusters []*draft.Resource) {
	w := st.watches[draft.RankEndpoint]
	early := w == nil || w.fresh || w.sub == nil
	if !early && w.over == nil && len(clusters) > 0 {
		w.over = make(map[string]holding, len(clusters))
	}
	for _, r := range clusters {
		for _, name := range r.Refs().Names(envoy.KindEndpoint) {
			switch {
			case early:
				if st.warming == nil {
					st.warming = make(map[string]struct{}, len(clusters))
				}
				st.warming[name] = struct{}{}
			case w.wants(name):
				w.setHolding(name, holding{kind: holdsDue})
			}
		}
	}
	if len(st.warming) <= 2*len(st.proxy.cfg.Resources[draft.RankCluster]) {
		return
	}
	// The client never requests endpoints. Only those of the present clusters matter.
	clear(st.warming)
	for _, r := range st.proxy.cfg.Resources[draft.RankCluster] {
		for _, name := range r.Refs().Names(envoy.KindEndpoint) {
			st.warming[name] = struct{}{}
		}
	}
}

// version returns the version of a response after which the client has a list. It is the version of
// the config if the list is that of the config. Otherwise it is a hash of what the client has, so
// that the server recognizes it when the client reconnects.
func (st *Stream) version(w *typeWatch, list []*draft.Resource) string {
	cfg := st.proxy.cfg
	if draft.SameList(list, cfg.Resources[w.rank]) && (w.delta || w.sub.IsWildcard() && len(w.over) == 0) {
		return cfg.Versions[w.rank]
	}
	return listVersion(list, func(name string) bool { return w.over[name].kind != holdsStale && w.wants(name) })
}
