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

// waitQuiet is how long after a change the state is computed: changes come in bursts.
const waitQuiet = 10 * time.Millisecond

// ErrStopped is the error of a wait that the stop of the agent has ended.
var ErrStopped = errors.New("the agent is shutting down")

// Wait returns when a resource is in force on all proxies that it touches, when one rejects it, or
// when the timeout has passed; the state says which. It is false when the resource does not exist.
// The error is [ErrStopped], or that of the context.
func (t *Tracker) Wait(ctx context.Context, stop <-chan struct{}, key resource.Key, q *api.Wait,
	timeout time.Duration) (out api.Applied, there bool, err error) {
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
	again, stopAgain := everyNode(q.Scope)
	defer stopAgain()
	for over := timeout == 0; ; {
		if out, there = t.standing(key, q); !there {
			return out, false, nil
		}
		if q.Scope == api.ScopeMesh {
			t.everywhere(ctx, key, q, &out, &others)
		}
		if over || out.State != api.StatePending {
			return out, true, nil
		}
		select {
		case <-proxies:
		case <-stored:
		case <-again:
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

// standing returns how far it is with what is waited for; false when the resource does not exist.
func (t *Tracker) standing(key resource.Key, q *api.Wait) (out api.Applied, there bool) {
	x := t.situation(MaxLate)
	rec, there := x.snap.Get(key)
	switch {
	case q.For == api.ForGone && there:
		out := api.Applied{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, Revision: rec.Revision, State: api.StatePending,
			Late: []api.LateProxy{}, Rejected: []api.RejectedResource{}}
		out.Reason = fmt.Sprintf("it still exists, at revision %d from %s", rec.Revision, rec.Source)
		return out, true
	case q.For == api.ForGone:
		out := x.gone(key)
		x.missed(&out, q.Late)
		return out, true
	case !there:
		return out, false
	}
	out = x.applied(rec)
	if out.State == api.StateApplied || out.State == api.StatePending {
		x.missed(&out, q.Late)
	}
	if x.last == nil || x.last.Revision < out.Revision && out.State != api.StateRejected && out.State != api.StateShadow &&
		out.State != api.StateInert {
		out.State, out.Reason = api.StatePending, "the configs with it are being made"
	}
	return out, true
}

// missed adds proxies that were late and are not connected any more, or have no config yet after
// they have come back, as long as their Dataplanes exist.
func (x *situation) missed(out *api.Applied, late []string) {
	for _, id := range late {
		mesh, name, _ := strings.Cut(id, "/")
		if x.snap.Set().Get(resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}) == nil {
			continue
		}
		if !slices.ContainsFunc(x.proxies, func(p rollout.Progress) bool {
			return p.Mesh == mesh && p.Name == name && p.State != api.StateDisconnected && p.State != api.StateUnknown
		}) {
			x.late(out, mesh, name, "it was connected before and has not come back yet")
		}
	}
	if out.LateTotal > 0 && out.State != api.StateRejected {
		out.State = api.StatePending
	}
}
