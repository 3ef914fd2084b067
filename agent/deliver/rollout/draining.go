package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// maxDraining bounds the size in bytes of the draining listeners that are recorded for a node.
const maxDraining = 4 << 20

// drainState is what an Envoy may still use although the config no longer has it. It is guarded by
// the mu of the proxy.
type drainState struct {
	draining   []drainingListener // the oldest first
	bridged    map[bridging]*draft.Resource
	leaveUntil time.Time            // see leavesStrays
	handovers  map[string]*handover // by listener
	drainTimer *time.Timer          // runs until the next of all these ends
}

// drainingListener is a former version of a listener. Envoy keeps connections on its filter chains
// until they have drained.
type drainingListener struct {
	name     string
	form     *draft.Resource   // nil if a previous agent sent it
	clusters []*draft.Resource // see handover
	until    time.Time

	// The result of compare with the present version of the listener.
	current       *draft.Resource
	toTCP, guards bool // it changed from HTTP to TCP; the present version has RBAC filters
}

// compare compares the draining listener with the present one. It caches the result, because
// parsing takes milliseconds if a policy has changed a thousand listeners.
func (d *drainingListener) compare(current *draft.Resource) {
	if d.current != nil && d.current.Version == current.Version {
		return
	}
	d.current = current
	d.toTCP = d.form != nil && becomesTCP(d.form, current)
	d.guards = draft.Guards(current)
}

// bridging identifies the inputs of a resource form that bridge returns.
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
