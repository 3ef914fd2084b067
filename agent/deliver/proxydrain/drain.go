package proxydrain

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// MaxTimeout is the default and the maximum of the time for one answer. It is shorter than the
// write timeout of an API connection.
const MaxTimeout = 25 * time.Second

const (
	// pollEvery is the interval of questions to an Envoy about its requests.
	pollEvery = 50 * time.Millisecond
	// quietPolls is the number of consecutive answers without a request after which an Envoy counts
	// as drained. A request that a client sent before it removed the endpoint may be on its way.
	quietPolls = 3
	// maxLate limits each list of late proxies and nodes in an answer.
	maxLate = 20
)

// Presence owns the states of the endpoints of local proxies. Its functions return when the store
// has the state.
type Presence interface {
	Drain(dataplane resource.Key, untilUndo bool) error
	Undrain(dataplane resource.Key) error
}

// Envoy is the admin interface of an Envoy.
type Envoy interface {
	FailHealth(ctx context.Context) error
	PassHealth(ctx context.Context) error
	Active(ctx context.Context) (int, error)
}

// Options configures [New]. All fields but Envoy, Scope, and Log are required.
type Options struct {
	Store    *store.Store
	Presence Presence
	// Clients returns the xDS clients of a proxy: [rollout.Proxies.StatusOf].
	Clients func(node.Ref) []api.ProxyStatus
	// Wait waits for the state of a resource on proxies: [status.Tracker.Wait].
	Wait func(context.Context, <-chan struct{}, resource.Key, *api.Wait, time.Duration) (api.Applied, bool, error)
	// Scope is [api.ScopeMesh] in a pool of several nodes, else [api.ScopeNode].
	Scope string
	// Envoy returns the admin interface of a client. Nil: no Envoy is asked.
	Envoy func(*api.ProxyStatus) Envoy
	Log   *slog.Logger // nil: no logs
}

// Drains drains proxies. It is safe for concurrent use.
type Drains struct {
	o    Options
	stop chan struct{}
	end  func()
}

// New returns drains with these options.
func New(o Options) *Drains {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Drains{o: o, stop: make(chan struct{})}
	d.end = sync.OnceFunc(func() { close(d.stop) })
	return d
}

// Stop ends all requests in progress, and refuses later ones.
func (d *Drains) Stop() { d.end() }

// Run drains a dataplane, or undoes that. It returns when the endpoints have left all proxies, with
// q.Wait when the requests have ended or, for q.Undo, when all proxies have the endpoints, or after
// the timeout. own is set for a proxy that drains
// itself, and changes its Envoy itself. The log names who as the sender.
//
// The endpoints leave first, and only then the Envoy fails its health checks. After the timeout it
// does so in any case. All of this is repeatable.
func (d *Drains) Run(ctx context.Context, key resource.Key, q *api.DrainRequest, own bool,
	who string) (*api.Drain, *api.Error) {
	timeout, e := timeoutOf(q)
	if e != nil {
		return nil, e
	}
	client, e := d.find(key)
	if e != nil {
		return nil, e
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := &api.Drain{Mesh: key.Mesh, Name: key.Name}
	if q.Undo {
		return out, d.undo(ctx, key, client, q, own, who, timeout, out)
	}
	first, had := d.o.Store.Snapshot().Get(resource.EndpointStateOf(key))
	if err := d.o.Presence.Drain(key, q.UntilUndo); err != nil {
		return nil, unstored(err)
	}
	if now, ok := d.o.Store.Snapshot().Get(resource.EndpointStateOf(key)); ok && (!had || now.Digest != first.Digest) {
		d.o.Log.Info("a dataplane is drained", "dataplane", key.String(), "by", who)
	}
	if e := d.leave(ctx, key, timeout, out); e != nil {
		return nil, e
	}
	if envoy := d.envoy(client, own, out); envoy != nil {
		d.quiet(ctx, envoy, q.Wait, out)
	}
	return out, nil
}

// timeoutOf returns the timeout of a request.
func timeoutOf(q *api.DrainRequest) (time.Duration, *api.Error) {
	if q.Timeout == "" {
		return MaxTimeout, nil
	}
	timeout, err := time.ParseDuration(q.Timeout)
	if err != nil || timeout < 0 || timeout > MaxTimeout {
		e := api.NewInvalid("timeout: " + q.Timeout + " is invalid; give a duration from 0s to " + MaxTimeout.String())
		return 0, e
	}
	return timeout, nil
}

// find returns the connected client of a dataplane that this node may drain. It is nil for a
// dataplane from a file or from node metadata whose client is not connected.
func (d *Drains) find(key resource.Key) (*api.ProxyStatus, *api.Error) {
	snap := d.o.Store.Snapshot()
	rec, ok := snap.Get(key)
	switch {
	case !ok:
		return nil, write.Missing(snap, key)
	case rec.Source.Kind == store.SourcePeer:
		return nil, notLocal("%s belongs to the node %s; ask the agent of that node", key, rec.Source.Detail)
	}
	clients := d.o.Clients(node.Ref{Mesh: key.Mesh, Name: key.Name})
	i := slices.IndexFunc(clients, func(c api.ProxyStatus) bool { return c.Streams > 0 })
	switch {
	case i >= 0:
		return &clients[i], nil
	case rec.Source.Kind == store.SourceAPI:
		return nil, notLocal("the Envoy of %s is not connected to this agent; ask the agent of its node", key)
	}
	return nil, nil
}

func notLocal(detail string, args ...any) *api.Error {
	return api.NewError(api.StatusConflict, api.ProblemOwned, "Not a proxy of this node", detail, args...)
}

// unstored returns the error for a state that the store did not accept.
func unstored(err error) *api.Error {
	return api.NewError(api.StatusStorage, api.ProblemStorage, "Not stored", err.Error())
}

// leave waits until no proxy has the endpoints, and records late proxies and nodes.
func (d *Drains) leave(ctx context.Context, key resource.Key, timeout time.Duration, out *api.Drain) *api.Error {
	out.State = api.DrainLeaving
	q := &api.Wait{Type: resource.KindEndpointState, Mesh: key.Mesh, Name: key.Name, For: api.ForApplied,
		Scope: d.o.Scope}
	got, exists, err := d.o.Wait(ctx, d.stop, resource.EndpointStateOf(key), q, timeout)
	switch {
	case ctx.Err() != nil: // the answer is the last one
	case err != nil:
		return stopping()
	}
	note(out, &got)
	switch {
	case !exists:
		out.Reason = "the drain was undone, or the Envoy was started again"
	case got.State == api.StatePending && got.LateTotal+len(got.LateNodes) == 0:
		out.Reason = got.Reason
	case got.State != api.StatePending && got.State != api.StateStale:
		out.State = api.DrainDraining
	}
	return nil
}

// note records the outcome of a wait.
func note(out *api.Drain, got *api.Applied) {
	out.Proxies, out.Nodes, out.Unasked, out.LateTotal = got.Acknowledged, got.Nodes, got.Unasked, got.LateTotal
	out.Late = got.Late[:min(len(got.Late), maxLate)]
	out.LateNodes = got.LateNodes[:min(len(got.LateNodes), maxLate)]
}

func stopping() *api.Error {
	return api.NewError(api.StatusUnavailable, api.ProblemNotReady, "Shutting down",
		"the agent is shutting down; repeat the request when it runs again")
}

// envoy returns the Envoy of a client, or nil if this agent does not change it.
func (d *Drains) envoy(client *api.ProxyStatus, own bool, out *api.Drain) Envoy {
	switch {
	case own, client == nil, client.Flavor != node.FlavorEnvoy:
	case d.o.Envoy == nil:
		out.Envoy = "this agent cannot query Envoys"
	default:
		return d.o.Envoy(client)
	}
	return nil
}

func (d *Drains) noteEnvoy(out *api.Drain, err error) {
	switch {
	case errors.Is(err, access.ErrPodAdmin):
		out.Envoy = err.Error() + "; a pod that is deleted drains by itself"
	case err != nil:
		out.Envoy = err.Error() + "; the agent uses the admin socket of nearside bootstrap (--admin-socket), " +
			"and only if its process is the connected Envoy"
	}
}

// quiet makes the Envoy fail its health checks, and waits until it has no requests if wait is set.
func (d *Drains) quiet(ctx context.Context, envoy Envoy, wait bool, out *api.Drain) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // also after the timeout
	defer cancel()
	if err := envoy.FailHealth(asking); err != nil {
		d.noteEnvoy(out, err)
		return
	}
	if out.State == api.DrainLeaving {
		return
	}
	n, err := Quiet(ctx, envoy, wait)
	if err != nil {
		d.noteEnvoy(out, err)
		return
	}
	if out.Active = &n; n == 0 && wait {
		out.State = api.DrainDrained
	}
}

// Quiet returns the number of active requests of an Envoy that no client sends new ones. With wait,
// it returns when there have been none for a moment, or when ctx ends. The error is that of the
// first answer.
func Quiet(ctx context.Context, envoy Envoy, wait bool) (n int, err error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if n, err = envoy.Active(asking); err != nil || !wait {
		return n, err
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for quiet := 0; ; {
		if quiet++; n > 0 {
			quiet = 0
		}
		if quiet == quietPolls {
			return 0, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return max(n, 1), nil
		}
		next, err := envoy.Active(ctx)
		if err != nil {
			return n, nil // the Envoy may have ended
		}
		n = next
	}
}
