package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Drain says that an Envoy has replaced filter chains. Connections from before may use the old
// ones until they have drained. See docs/xds.md for what applies to these immediately.
type Drain struct {
	// From and Revision say which changes are the cause: those of the revisions of the store after
	// From, up to Revision.
	From, Revision uint64
	// Since is when the Envoy acknowledged the new listeners. It drains the old ones for its drain
	// time, which starts up to [DrainSlack] later.
	Since time.Time
	// Listeners are the names of the listeners with old filter chains, sorted. It is nil if they
	// are unknown, or more than maxReplaced.
	Listeners []string
	// Unsure means that the Envoy ran before this agent, so filter chains that a previous agent has
	// replaced may drain.
	Unsure bool
}

// DrainSlack is the time by which Envoy may start to drain after it acknowledges, because a new
// listener warms first.
const DrainSlack = 5 * time.Second

// Limits for each node: the number of drains, of which the newest ones are kept, the listeners of
// one drain, and the age, which is also the largest drain time that is supported.
const (
	maxDrains   = 16
	maxReplaced = 1024
	maxDrainAge = 24 * time.Hour
)

// replacedState records the replaced filter chains of an Envoy. It is guarded by the mu of the
// proxy.
type replacedState struct {
	drains     []Drain              // the oldest first
	replacedAt map[string]time.Time // the last time, by listener
}

// replaced records that an Envoy has replaced filter chains of a listener. from is the last
// revision whose listeners it has acknowledged completely.
func (s *replacedState) replaced(listener string, from, revision uint64, now time.Time) {
	if s.replacedAt == nil {
		s.replacedAt = map[string]time.Time{}
	}
	s.replacedAt[listener] = now
	last := len(s.drains) - 1
	if last < 0 || s.drains[last].Unsure || s.drains[last].Revision != revision {
		s.drains = append(s.drains, Drain{From: min(from, revision-min(revision, 1)), Revision: revision,
			Listeners: []string{listener}})
		s.expire(now)
		last = len(s.drains) - 1
	} else if d := &s.drains[last]; d.Listeners != nil {
		if i, known := slices.BinarySearch(d.Listeners, listener); !known {
			d.Listeners = slices.Insert(slices.Clone(d.Listeners), i, listener) // readers have the old list
		}
		if len(d.Listeners) > maxReplaced {
			d.Listeners = nil
		}
	}
	s.drains[last].Since = now
}

// unsure records that an Envoy connected with listeners of a previous agent.
func (s *replacedState) unsure(revision uint64, now time.Time) {
	if !slices.ContainsFunc(s.drains, func(d Drain) bool { return d.Unsure }) {
		s.drains = append(s.drains, Drain{Revision: revision, Since: now, Unsure: true})
		s.expire(now)
	}
}

// expire drops old drains, and the oldest ones in excess of maxDrains.
func (s *replacedState) expire(now time.Time) {
	s.drains = slices.DeleteFunc(s.drains, func(d Drain) bool {
		return !d.Since.IsZero() && now.Sub(d.Since) > maxDrainAge
	})
	s.drains = slices.Delete(s.drains, 0, max(0, len(s.drains)-maxDrains))
	for name, at := range s.replacedAt {
		if now.Sub(at) > maxDrainAge {
			delete(s.replacedAt, name)
		}
	}
}

// oldListeners returns the listeners with replaced filter chains, sorted by name.
func (s *replacedState) oldListeners() (out []Draining) {
	for name, at := range s.replacedAt {
		out = append(out, Draining{name, at})
	}
	slices.SortFunc(out, func(a, b Draining) int { return cmp.Compare(a.Listener, b.Listener) })
	return out
}

// noteReplaced records the listeners of which an Envoy has replaced filter chains because it has
// accepted a new list.
func (n *proxy) noteReplaced(before, now []*draft.Resource) {
	at := n.proxies.opts.Now()
	draft.Compare(before, now, func(old, next *draft.Resource) {
		if old != nil && (next == nil || !draft.KeepsChains(old, next)) {
			n.replaced(old.Name, n.acceptedRevision[draft.RankListener], n.revision, at)
			if next != nil && !draft.SameAddress(old, next) { // the name of a redirected listener has no address
				n.drains[len(n.drains)-1].Listeners = nil
			}
		}
	})
}

// noteResumed records the listeners that an Envoy has from a previous agent and is about to
// replace.
func (n *proxy) noteResumed(w *typeWatch, want []*draft.Resource) {
	if w.rank != draft.RankListener {
		return
	}
	now := n.proxies.opts.Now()
	if !w.delta {
		if w.claimed != "" && len(n.accepted[w.rank]) == 0 {
			n.unsure(n.revision, now)
		}
		return
	}
	for name, h := range w.over {
		if h.kind != holdsVersion || n.acceptedForm(w.rank, name) != nil {
			continue
		}
		n.unsure(n.revision, now)
		if r := draft.Find(want, name); r == nil || r.Version != h.version {
			n.replaced(name, 0, n.revision, now)
		}
	}
}

// DrainOf returns the drain that a change at a revision has caused, or nil. Until it has ended,
// connections may use filter chains from before the change.
func (p *Progress) DrainOf(revision uint64) *Drain {
	var out *Drain
	for i := range p.Draining {
		d := &p.Draining[i]
		switch {
		case d.Unsure || d.From >= revision || revision > d.Revision:
		case out == nil:
			out = d
		default: // a listener that was rejected before
			both := Drain{From: min(out.From, d.From), Revision: d.Revision, Since: d.Since}
			if out.Listeners != nil && d.Listeners != nil {
				both.Listeners = slices.Compact(slices.Sorted(slices.Values(slices.Concat(out.Listeners, d.Listeners))))
			}
			out = &both
		}
	}
	return out
}

// UnsureDrain returns the drain that previous agents may have caused, or nil.
func (p *Progress) UnsureDrain() *Drain {
	if i := slices.IndexFunc(p.Draining, func(d Drain) bool { return d.Unsure }); i >= 0 {
		return &p.Draining[i]
	}
	return nil
}
