package account

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

type gapKey struct{ id, listener string } // id: of the node

// gap is a listener without its logger, guarded by Account.mu.
type gap struct {
	reason string
	since  time.Time
	last   api.ListenerTraffic // counters of the Envoy at the last query
	first  bool                // last is not set yet: the listener had traffic before the gap
	known  bool                // the Envoy has answered
	sum    api.ListenerTraffic // during the gap
	ended  bool                // the logger is published; the last query is pending
}

// Unlogged records the listeners of a node's config that is about to be published without their
// loggers, with the reasons by name. old returns whether the Envoy already has a listener with this
// name. An empty map means that all listeners have their loggers.
func (a *Account) Unlogged(key node.Key, listeners map[string]string, old func(name string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := false
	for name, reason := range listeners {
		k := gapKey{key.ID, name}
		if g := a.gaps[k]; g != nil && !g.ended {
			g.reason = reason
			continue
		} else if g != nil {
			g.ended, g.reason = false, reason
			continue
		}
		a.gaps[k] = &gap{reason: reason, since: a.o.Now(), first: old(name)}
		changed = true
	}
	for k, g := range a.gaps {
		if _, still := listeners[k.listener]; k.id == key.ID && !still && !g.ended {
			g.ended, changed = true, true
		}
	}
	if changed {
		select {
		case a.wake <- struct{}{}:
		default: // already notified
		}
	}
}

// Left means that a node no longer has a config.
func (a *Account) Left(key node.Key) {
	a.Unlogged(key, nil, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.loggers, key.ID)
}

// count queries the Envoys of listeners without a logger, and drops the gaps that have ended.
func (a *Account) count(ctx context.Context) {
	a.mu.Lock()
	ids := map[string]bool{}
	for k := range a.gaps {
		ids[k.id] = true
	}
	a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		var now api.ProxyCounts
		known := false
		if a.o.Counts != nil && ctx.Err() == nil {
			var err error
			if now, err = a.o.Counts(ctx, id); err != nil {
				a.o.Log.Debug("an Envoy does not report the traffic of its listeners", "node", id, "error", err)
			}
			known = err == nil
		}
		a.mu.Lock()
		for k, g := range a.gaps {
			if k.id == id {
				a.update(k, g, now.Listeners[k.listener], known)
			}
		}
		a.mu.Unlock()
	}
}

// update adds the traffic of a gap since the last query. a.mu is held.
func (a *Account) update(k gapKey, g *gap, now api.ListenerTraffic, known bool) {
	if known {
		if !g.first {
			g.sum.Connections += grown(g.last.Connections, now.Connections)
			g.sum.Requests += grown(g.last.Requests, now.Requests)
		}
		g.last, g.first, g.known = now, false, true
	}
	if g.ended {
		a.total.Connections += g.sum.Connections
		a.total.Requests += g.sum.Requests
		delete(a.gaps, k)
		a.o.Log.Warn("a listener had no access log for some time", "node", k.id, "listener", k.listener,
			"since", g.since, "connections", g.sum.Connections, "requests", g.sum.Requests, "reason", g.reason)
	}
}

// grown returns the increase of a counter that may have been reset.
func grown(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// Gaps returns the listeners that have no logger now, sorted.
func (a *Account) Gaps() []api.LogGap {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []api.LogGap{}
	for k, g := range a.gaps {
		if g.ended {
			continue
		}
		x := api.LogGap{Listener: k.listener, Reason: g.reason, Since: g.since}
		if ref, err := node.ParseRef(k.id); err == nil {
			x.Mesh, x.Dataplane = ref.Mesh, ref.Name
		}
		if g.known {
			sum := g.sum
			x.Traffic = &sum
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b api.LogGap) int {
		return cmp.Or(strings.Compare(a.Mesh, b.Mesh), strings.Compare(a.Dataplane, b.Dataplane),
			strings.Compare(a.Listener, b.Listener))
	})
	return out
}

// Unrecorded returns the traffic of listeners while they had no logger, since the start.
func (a *Account) Unrecorded() api.ListenerTraffic {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.total
	for _, g := range a.gaps {
		out.Connections += g.sum.Connections
		out.Requests += g.sum.Requests
	}
	return out
}
