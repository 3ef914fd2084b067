package proxydrain

import (
	"context"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// undo ends the drain of a dataplane with this client, nil for none. With wait, it returns when all
// proxies have its endpoints, or after the timeout.
func (d *Drains) undo(ctx context.Context, key resource.Key, client *api.ProxyStatus, q *api.DrainRequest, own bool,
	who string, timeout time.Duration, out *api.Drain) *api.Error {
	drained := d.state(key) != nil
	if err := d.o.Presence.Undrain(key); err != nil {
		return unstored(err)
	}
	if drained {
		d.o.Log.Info("a drain is undone", "dataplane", key.String(), "by", who)
	}
	out.State = api.DrainUndone
	if envoy := d.envoy(client, own, out); envoy != nil {
		if err := envoy.PassHealth(ctx); drained { // else the Envoy need not be asked
			d.noteEnvoy(out, err)
		}
	}
	if q.Wait {
		return d.back(ctx, key, timeout, out)
	}
	return nil
}

// back waits until the Envoy is connected and all proxies have the endpoints, and records late
// proxies and nodes.
func (d *Drains) back(ctx context.Context, key resource.Key, timeout time.Duration, out *api.Drain) *api.Error {
	end := time.Now().Add(timeout)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !d.connected(key) {
		select {
		case <-tick.C:
		case <-d.stop:
			return stopping()
		case <-ctx.Done():
			out.State, out.Reason = api.DrainReturning, "its Envoy is not connected"
			return nil
		}
	}
	q := &api.Wait{Type: resource.KindEndpointState, Mesh: key.Mesh, Name: key.Name, For: api.ForGone, Scope: d.o.Scope}
	got, _, err := d.o.Wait(ctx, d.stop, resource.EndpointStateOf(key), q, time.Until(end))
	if err != nil && ctx.Err() == nil {
		return stopping()
	}
	note(out, &got)
	if got.State != api.StatePending && got.State != api.StateStale {
		return nil
	}
	out.State = api.DrainReturning
	if s := d.state(key); s != nil {
		out.Reason = s.Reason
	} else if got.LateTotal+len(got.LateNodes) == 0 {
		out.Reason = got.Reason
	}
	return nil
}

// connected reports whether a dataplane has a client.
func (d *Drains) connected(key resource.Key) bool {
	for _, c := range d.o.Clients(node.Ref{Mesh: key.Mesh, Name: key.Name}) {
		if c.Streams > 0 {
			return true
		}
	}
	return false
}

// state returns why the endpoints of a dataplane receive no traffic, or nil.
func (d *Drains) state(key resource.Key) *resource.EndpointState {
	rec, ok := d.o.Store.Snapshot().Get(resource.EndpointStateOf(key))
	if !ok {
		return nil
	}
	s, _ := rec.Spec.(*resource.EndpointState)
	return s
}
