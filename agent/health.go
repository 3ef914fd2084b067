package agent

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/inspect"
)

// stuckAfter is how long a reconciliation may take before the agent counts as stuck.
const stuckAfter = 30 * time.Second

// live says whether the agent works at all: a restart would help where it does not.
func (a *Agent) live() []inspect.Check {
	c := inspect.Check{Name: "reconcile", OK: true}
	if since := a.reconciler.BusySince(); !since.IsZero() {
		if took := a.deps.Now().Sub(since); took > stuckAfter {
			c.OK = false
			c.Reason = fmt.Sprintf("one reconciliation takes %s already; restart the agent and report it", took.Round(time.Second))
		}
	}
	return []inspect.Check{c}
}

// readiness says whether proxies get their config. What is worse than it should be without stopping that, a full disk or a
// file with faults, is told as a reason and does not make the node unready.
func (a *Agent) readiness() []inspect.Check {
	return append([]inspect.Check{a.stateCheck(), a.filesCheck(), a.reconcileCheck()}, a.notes...)
}

func (a *Agent) stateCheck() inspect.Check {
	c := inspect.Check{Name: "state", OK: true, Degraded: true}
	switch h := a.store.Health(); {
	case h.Err != nil:
		c.Reason = fmt.Sprintf("the state disk takes no writes and the agent goes on in memory (changes that a restart would lose: %d) and refuses writes over the API: %v; make room or make it writable", h.Pending, h.Err)
	case !h.Persistent:
		c.Reason = "the state is kept in memory and does not survive a restart"
	case len(h.Quarantined) > 0:
		c.Reason = fmt.Sprintf("%d stored values could not be loaded and are put aside, the first is %s: %s", len(h.Quarantined), h.Quarantined[0].Key, h.Quarantined[0].Reason)
	default:
		c.Degraded, c.Reason = false, "every change is on disk"
	}
	return c
}

func (a *Agent) filesCheck() inspect.Check {
	c := inspect.Check{Name: "resource-files", OK: true, Reason: "all files are in force"}
	faulty, conflicts := 0, 0
	for _, f := range a.dir.Files() {
		if len(f.Faults) > 0 {
			faulty++
		}
		conflicts += len(f.Conflicts)
	}
	if faulty+conflicts > 0 {
		c.Degraded = true
		c.Reason = fmt.Sprintf("%d files have faults and %d resources are in conflict; nearside status lists them", faulty, conflicts)
	}
	return c
}

func (a *Agent) reconcileCheck() inspect.Check {
	last := a.reconciler.Last()
	if last == nil {
		return inspect.Check{Name: "config", Reason: "no config was made yet"}
	}
	return inspect.Check{Name: "config", OK: true, Reason: fmt.Sprintf("made from revision %d, with %d problems", last.Revision, len(last.Problems))}
}
