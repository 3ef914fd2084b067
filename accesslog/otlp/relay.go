package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Limits of the relay.
const (
	maxRequest     = 4 << 20 // bytes, the default limit of collectors
	maxStreams     = 16      // per connection
	maxConnections = 1024
	handshakeTime  = 10 * time.Second
)

// Peer holds the credentials that the calling process had when it connected.
type Peer struct {
	Known    bool // false without a Unix socket, or if the kernel returns no credentials
	UID, GID uint32
	PID      int32
	// Owner identifies who can open the socket, which is not shared with others; "": shared.
	Owner string
}

// Route forwards calls with an :authority to an endpoint. All fields except Name are required.
type Route struct {
	Name      string // for log messages; default: Authority
	Authority string // :authority of the calls
	Endpoint  string // host:port of a collector by gRPC without TLS, or the URL of logs by HTTP
	// Allow returns an error if a peer may not send. It is called for each request, and after each
	// [Relay.Recheck] while the request waits, and must not block. The error is logged; the caller
	// gets a generic one.
	Allow func(Peer) error
	// Spool stores requests. Up to MaxMemory bytes wait in memory.
	Spool spool.Options
}

// Relay receives log records of Envoys through OTLP over gRPC and forwards them to endpoints. It
// keeps the order of each route. A call is answered when its records are in the spool of the route
// or have reached the endpoint, so that an answered record survives the end of this process.
// Without a spool, or while it is full or cannot be written, they are only in memory. Dropped
// records are reported as rejected, so the client does not send them again.
//
// A call without a route that allows it waits, because after a start the routes appear later than
// their callers. Then it gets the code UNAVAILABLE, after which clients may send it again.
type Relay struct {
	log      *slog.Logger
	wait     time.Duration
	stopping chan struct{} // closed when Run ends: no call waits any more

	mu      sync.Mutex
	changed chan struct{}        // closed and replaced when a waiting call may find its route
	routes  map[string]*exporter // by authority
	running context.Context      // context of Run; nil while Run is not active
	group   sync.WaitGroup
	ended   bool
}

// Options configures a [Relay].
type Options struct {
	Log *slog.Logger // nil: no logs
	// Wait is how long a call waits for a route that allows it; 0: 5 s.
	Wait time.Duration
}

// NewRelay returns a relay without routes.
func NewRelay(opts Options) *Relay {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Relay{log: opts.Log, wait: cmp.Or(opts.Wait, 5*time.Second), routes: map[string]*exporter{},
		stopping: make(chan struct{}), changed: make(chan struct{})}
}

// SetRoute adds a route, or replaces the route with the same authority. The old route is stopped
// first and its pending records stay on disk, which may take a second. Calls of SetRoute and
// RemoveRoute on one relay must not overlap.
func (o *Relay) SetRoute(route Route) error {
	if route.Authority == "" {
		return errors.New("authority is missing; set the :authority of the calls")
	}
	if route.Allow == nil {
		return errors.New("allow is missing; set a function that authorizes callers")
	}
	if err := checkEndpoint(route.Endpoint); err != nil {
		return err
	}
	if err := route.Spool.Validate("spool."); err != nil {
		return err
	}
	if route.Name == "" {
		route.Name = route.Authority
	}
	if err := o.RemoveRoute(route.Authority, false); err != nil {
		o.log.Warn("otlp: error while stopping a route", "route", route.Name, "error", err)
	}
	e, err := newExporter(route, o.log)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return errors.Join(spool.ErrClosed, e.end())
	}
	o.routes[route.Authority] = e
	if o.running != nil {
		o.start(e)
	}
	o.recheck()
	return nil
}

// Recheck makes waiting calls look for their routes again. Call it after a result of an Allow has
// changed.
func (o *Relay) Recheck() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recheck()
}

func (o *Relay) recheck() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// start runs an exporter. The caller holds the lock.
func (o *Relay) start(e *exporter) {
	ctx, cancel := context.WithCancel(o.running)
	e.cancel = cancel
	o.group.Go(func() {
		defer close(e.ended)
		defer cancel()
		e.err = e.run(ctx)
	})
}

// RemoveRoute stops a route. Pending records stay on disk for a later route with the same
// directory. With discard, they are dropped with [accesslog.CauseRemoved] and the directory is
// removed.
func (o *Relay) RemoveRoute(authority string, discard bool) error {
	o.mu.Lock()
	e := o.routes[authority]
	delete(o.routes, authority)
	o.mu.Unlock()
	if e == nil {
		return nil
	}
	if discard {
		e.backlog.Discard()
	}
	if e.cancel == nil {
		return e.end()
	}
	e.cancel()
	<-e.ended
	return e.err
}

// Stats returns the counters of each route by authority. Lines count log records, bytes count
// requests.
func (o *Relay) Stats() map[string]accesslog.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]accesslog.Stats, len(o.routes))
	for authority, e := range o.routes {
		out[authority] = e.stats()
	}
	return out
}

// Run serves listeners and sends pending records until ctx ends. Then the remaining records are on
// disk. It closes the listeners. It must be called only once.
func (o *Relay) Run(ctx context.Context, ls ...net.Listener) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	o.mu.Lock()
	if o.running != nil || o.ended {
		o.mu.Unlock()
		err := errors.New("Run was already called")
		for _, l := range ls {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	o.running = inner
	for _, e := range o.routes {
		o.start(e)
	}
	o.mu.Unlock()
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.Creds(unixCredentials{}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(handshakeTime), grpc.WaitForHandlers(true))
	// A streaming handler can authorize the caller before it reads a message.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: logsService,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: exportMethod, Handler: o.export, ClientStreams: true}},
	}, nil)
	served := make(chan error, len(ls))
	slots := make(chan struct{}, maxConnections)
	for _, l := range ls {
		go func() { served <- server.Serve(&limitedListener{Listener: l, slots: slots}) }()
	}
	pending := len(ls)
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve OTLP: %w", err)
		server.Stop()
		pending--
	case <-ctx.Done():
		close(o.stopping)
		o.hurry()
		cut := time.AfterFunc(spool.StopGrace, server.Stop)
		server.GracefulStop()
		cut.Stop()
	}
	for range pending {
		<-served
	}
	cancel() // stop exporters after the server that fills them
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.group.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.routes {
		if e.err != nil {
			err = errors.Join(err, fmt.Errorf("route %s: %w", e.route.Name, e.err))
		}
	}
	return err
}

// hurry makes all calls end soon.
func (o *Relay) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.routes {
		e.backlog.Hurry()
	}
}

// errStopping makes a client send its records to the next relay.
var errStopping = status.Error(codes.Unavailable, "the relay is stopping")

// export handles one request.
func (o *Relay) export(_ any, call grpc.ServerStream) error {
	ctx := call.Context()
	e, err := o.route(ctx)
	if err != nil {
		return err
	}
	var request []byte
	if err := call.RecvMsg(&request); err != nil {
		return err
	}
	records, err := countRecords(request)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	var answer []byte
	if records > 0 {
		taken, err := e.backlog.Store(ctx, request, records)
		for errors.Is(err, spool.ErrClosed) { // the route was replaced in the meantime
			if e, err = o.route(ctx); err != nil {
				return err
			}
			taken, err = e.backlog.Store(ctx, request, records)
		}
		switch {
		case err != nil:
			return status.FromContextError(err).Err()
		case !taken:
			answer = appendAnswer(nil, records, "the spool is full; the records were dropped")
		}
	}
	return call.SendMsg(&answer)
}

// route returns the route of a call, and waits until it allows the caller. An unauthorized caller
// cannot find out whether a route exists.
func (o *Relay) route(ctx context.Context) (*exporter, error) {
	refused := status.Error(codes.Unavailable, "this caller may not send records to this authority now")
	headers, _ := metadata.FromIncomingContext(ctx)
	authority, caller := headers.Get(":authority"), peerOf(ctx)
	if len(authority) != 1 {
		return nil, refused
	}
	timer := time.NewTimer(o.wait)
	defer timer.Stop()
	for {
		o.mu.Lock()
		e, changed := o.routes[authority[0]], o.changed
		o.mu.Unlock()
		var err error
		if e != nil {
			if err = e.route.Allow(caller); err == nil {
				return e, nil
			}
		}
		select {
		case <-changed:
			continue
		case <-o.stopping:
			return nil, errStopping
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-timer.C:
		}
		if e != nil {
			e.refusals.log(e.log, caller, err)
		}
		return nil, refused
	}
}

// refusals limits log lines about unauthorized callers to one per minute and route.
type refusals struct {
	mu   sync.Mutex
	last time.Time
}

func (r *refusals) log(log *slog.Logger, caller Peer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.last.IsZero() || now.Sub(r.last) >= time.Minute {
		r.last = now
		log.Warn("otlp: caller refused", "uid", caller.UID, "pid", caller.PID, "error", err)
	}
}
