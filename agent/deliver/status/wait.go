package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// waitQuiet is the delay between a change and the next evaluation, because changes come in bursts.
const waitQuiet = 10 * time.Millisecond

// ErrStopped is returned if the agent stops during a wait.
var ErrStopped = errors.New("the agent is shutting down")

// Wait returns when a resource is in force on all affected proxies, when a proxy rejects it, or
// after the timeout; the state tells which. With q.Effective, it also waits until older connections
// have ended. exists is false if the resource does not exist. The
// error is [ErrStopped] or that of ctx.
func (t *Tracker) Wait(ctx context.Context, stop <-chan struct{}, key resource.Key, q *api.Wait,
	timeout time.Duration) (out api.Applied, exists bool, err error) {
	var proxies <-chan struct{}
	if t.Watch != nil {
		var stopProxies func()
		proxies, stopProxies = t.Watch()
		defer stopProxies()
	}
	stored, stopStored := t.Store.Watch()
	defer stopStored()
	late := time.NewTimer(timeout)
	defer late.Stop()
	var others meshWait
	askTick, stopAsking := everyNode(q.Scope)
	defer stopAsking()
	for over := timeout == 0; ; {
		if out, exists = t.current(ctx, key, q); !exists {
			return out, false, nil
		}
		if q.Scope == api.ScopeMesh {
			t.addNodes(ctx, key, q, &out, &others)
		}
		if over || out.State != api.StatePending && out.State != api.StateDraining {
			return out, true, nil
		}
		select {
		case <-measure(out.State):
		case <-proxies:
		case <-stored:
		case <-askTick:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return out, true, ctx.Err()
		case <-stop:
			return out, true, ErrStopped
		}
		if !over {
			select {
			case <-time.After(waitQuiet):
			case <-late.C:
				over = true
			}
		}
	}
}

// measureEvery is the interval at which a wait measures older connections.
const measureEvery = 500 * time.Millisecond

// measure returns a channel that signals the next measurement of a drain, nil in other states.
func measure(state string) <-chan time.Time {
	if state != api.StateDraining {
		return nil
	}
	return time.After(measureEvery)
}

// current returns the state of a wait. exists is false if the resource does not exist.
func (t *Tracker) current(ctx context.Context, key resource.Key, q *api.Wait) (out api.Applied, exists bool) {
	x := t.situation(ctx, MaxLate)
	x.measures = q.Effective
	defer func() {
		switch {
		case !exists:
		case q.Effective:
			x.effective(ctx, t.Drains, &out)
		default:
			x.addOld(&out, nil)
		}
	}()
	rec, exists := x.snap.Get(key)
	switch {
	case q.For == api.ForGone && exists:
		out = api.Applied{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, Revision: rec.Revision, State: api.StatePending,
			Late: []api.LateProxy{}, Rejected: []api.RejectedResource{}}
		out.Reason = fmt.Sprintf("it still exists, at revision %d from %s", rec.Revision, rec.Source)
		return out, true
	case q.For == api.ForGone:
		out = x.gone(key)
		x.missed(&out, q.Late)
		return out, true
	case !exists:
		return out, false
	}
	t.examine(ctx, x, []*resource.Resource{rec.Resource})
	out = x.applied(rec)
	if out.State == api.StateApplied || out.State == api.StatePending {
		x.missed(&out, q.Late)
	}
	if x.last == nil || x.last.Revision < out.Revision && out.State != api.StateRejected && out.State != api.StateShadow &&
		out.State != api.StateInert {
		out.State, out.Reason = api.StatePending, "its configs are being computed"
	}
	return out, true
}

// missed adds proxies that were late before and are now disconnected or without a config, if their
// Dataplanes exist.
func (x *situation) missed(out *api.Applied, late []string) {
	for _, id := range late {
		mesh, name, _ := strings.Cut(id, "/")
		if x.snap.Set().Get(resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}) == nil {
			continue
		}
		if !slices.ContainsFunc(x.proxies, func(p rollout.Progress) bool {
			return p.Mesh == mesh && p.Name == name && p.State != api.StateDisconnected && p.State != api.StateUnknown
		}) {
			x.late(out, mesh, name, "it was connected before and has not reconnected yet")
		}
	}
	if out.LateTotal > 0 && out.State != api.StateRejected && out.State != api.StateStale {
		out.State = api.StatePending
	}
}
