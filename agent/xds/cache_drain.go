package xds

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// maxDraining bounds the forms of listeners that a node remembers while they drain, in bytes.
const maxDraining = 4 << 20

// drainSlack is what Envoy may begin to drain later than it acknowledges, since a new form of a listener warms first.
const drainSlack = 5 * time.Second

// drainingListener is a form of a listener that an Envoy has let go of, while connections may still use it: Envoy keeps
// them on the old filter chains until these have drained.
type drainingListener struct {
	form  *draft.Resource
	until time.Time
}

// drainListeners takes note of the forms of listeners that an Envoy has let go of with what it has accepted now.
func (n *proxyNode) drainListeners(before, now []*draft.Resource) {
	if n.srv.opts.DrainTime <= 0 || !n.envoy {
		return
	}
	until := n.srv.opts.Now().Add(n.srv.opts.DrainTime + drainSlack)
	draft.Compare(before, now, func(old, _ *draft.Resource) {
		if old != nil {
			n.draining = append(n.draining, drainingListener{old, until})
		}
	})
	size := 0
	for i, d := range slices.Backward(n.draining) {
		if size += len(d.form.Body); size > maxDraining {
			n.draining = slices.Delete(n.draining, 0, i+1)
			break
		}
	}
}

// retainDrained puts into the lists what listeners that still drain refer to and the config has no longer: without their
// clusters, requests and connections on them would fail. The lists are looked at again when the first has drained.
func (n *proxyNode) retainDrained() {
	now := n.srv.opts.Now()
	n.draining = slices.DeleteFunc(n.draining, func(d drainingListener) bool { return !d.until.After(now) })
	n.stopDrainTimer()
	if len(n.draining) == 0 {
		return
	}
	forms := make([]*draft.Resource, len(n.draining))
	for i, d := range n.draining {
		forms[i] = d.form
	}
	n.lists = draft.Retain(&n.lists, forms, &n.accepted)
	n.drainTimer = time.AfterFunc(n.draining[0].until.Sub(now), func() {
		n.mu.Lock()
		defer n.unlock()
		if n.cfg != nil {
			n.hold()
			n.refresh()
			n.noteAnswered()
		}
	})
}

func (n *proxyNode) stopDrainTimer() {
	if n.drainTimer != nil {
		n.drainTimer.Stop()
		n.drainTimer = nil
	}
}
