package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// maxDraining bounds the forms of listeners that a node remembers while they drain, in bytes.
const maxDraining = 4 << 20

// drainSlack is what Envoy may begin to drain later than it acknowledges, since a new form of a
// listener warms first.
const drainSlack = 5 * time.Second

// drainState is what an Envoy may still use although its config no longer has it. It is guarded by
// the mu of the proxy.
type drainState struct {
	draining   []drainingListener // the oldest first
	bridged    map[bridging]*draft.Resource
	leaveUntil time.Time            // see leavesStrays
	handovers  map[string]*handover // by listener
	drainTimer *time.Timer          // runs until the next of all these ends
}

// drainingListener is a form of a listener that an Envoy has let go of, while connections may still
// use it: Envoy keeps them on the old filter chains until these have drained.
type drainingListener struct {
	name     string
	form     *draft.Resource   // nil: not known, since it was sent by an agent before
	clusters []*draft.Resource // see handover
	revision uint64            // of the store with which it was let go
	until    time.Time

	// What follows was found of the present form of the listener, and is looked up again for another
	// one.
	current       *draft.Resource
	toTCP, guards bool // it took requests and takes connections now; it has filters that say who may
}

// compare looks at what drains and at the present form of the listener. Both are read anew for each
// list otherwise, which takes milliseconds where a policy has changed a thousand listeners.
func (d *drainingListener) compare(current *draft.Resource) {
	if d.current != nil && d.current.Version == current.Version {
		return
	}
	d.current = current
	d.toTCP = d.form != nil && becomesTCP(d.form, current)
	d.guards = draft.Guards(current)
}

// bridging is what a form of a resource for the time of draining was made from.
type bridging struct{ resource, by, older *draft.Resource }

// trim drops the oldest listeners if all take more than maxDraining bytes.
func (s *drainState) trim() {
	size := 0
	for i, d := range slices.Backward(s.draining) {
		if d.form == nil {
			continue
		}
		if size += d.form.Len(); size > maxDraining {
			s.draining = slices.Delete(s.draining, 0, i+1)
			return
		}
	}
}

// prune drops the listeners that have drained, and returns the known forms of the others.
func (s *drainState) prune(now time.Time) (forms []*draft.Resource) {
	s.draining = slices.DeleteFunc(s.draining, func(d drainingListener) bool { return !d.until.After(now) })
	for _, d := range s.draining {
		if d.form != nil {
			forms = append(forms, d.form)
		}
	}
	return forms
}

// next returns when the next listener has drained or no longer waits for other proxies, zero for
// none.
func (s *drainState) next(now time.Time) (next time.Time) {
	note := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, d := range s.draining {
		note(d.until)
	}
	for _, h := range s.handovers {
		note(h.until)
	}
	note(s.leaveUntil)
	return next
}

func (s *drainState) stopTimer() {
	if s.drainTimer != nil {
		s.drainTimer.Stop()
		s.drainTimer = nil
	}
}

// leavesStrays reports whether an Envoy keeps resources of a type that it said it has and the
// config does not have: draining listeners may need them.
func (s *drainState) leavesStrays(rank int, now time.Time) bool {
	return rank != draft.RankListener && s.leaveUntil.After(now)
}

// drains returns the drains that have not ended, by revision.
func (s *drainState) drains(now time.Time) (out []Drain) {
	for _, d := range s.draining {
		switch last := len(out) - 1; {
		case !d.until.After(now):
		case last >= 0 && out[last].Revision == d.revision:
			out[last].Until = d.until
		default:
			out = append(out, Drain{d.revision, d.until})
		}
	}
	return out[max(0, len(out)-maxDrains):]
}

// handoverUntil returns when the last listener that waits for the other side changes, zero for
// none.
func (s *drainState) handoverUntil(now time.Time) (last time.Time) {
	for _, h := range s.handovers {
		if h.until.After(last) && h.until.After(now) {
			last = h.until
		}
	}
	return last
}
