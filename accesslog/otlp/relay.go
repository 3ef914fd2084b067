package otlp

import (
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

// Bounds of what the relay takes.
const (
	maxRequest     = 4 << 20 // bytes, as collectors have it
	maxStreams     = 16      // of a connection
	maxConnections = 1024
	handshakeTime  = 10 * time.Second
)

// Peer is who calls, by the credentials that its process had when it connected.
type Peer struct {
	Known    bool // false for what is no unix socket, and where the kernel does not say
	UID, GID uint32
	PID      int32
}

// Route leads from the :authority of calls to an endpoint. All but Name must be set.
type Route struct {
	Name      string // for messages; "" is the authority
	Authority string // of the calls
	Endpoint  string // host:port of a collector, reached by gRPC without TLS
	// Allow says who may send; it is asked for each call and must not wait. An error is for the log,
	// the caller only hears that it may not.
	Allow func(Peer) error
	// Spool is for requests. Up to MaxMemory of them wait in memory.
	Spool spool.Options
}

// Relay takes log records of Envoys by OTLP over gRPC and brings them to endpoints, in the
// order of each route. A call is answered once its records are in memory or in the spool of the
// route. Records that were dropped are named in the answer as rejected, so that nobody sends them
// again.
type Relay struct {
	log *slog.Logger

	mu      sync.Mutex
	routes  map[string]*exporter // by authority
	running context.Context      // of Run, nil while it does not run
	group   sync.WaitGroup
	ended   bool
}

// Options are those of an [Relay].
type Options struct {
	Log *slog.Logger // nil discards
}

// NewRelay makes a relay without routes.
func NewRelay(opts Options) *Relay {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Relay{log: opts.Log, routes: map[string]*exporter{}}
}

// SetRoute adds a route, or replaces the one of the same authority, which is ended before with what
// waits on the disk. It may take a second then. Calls for one relay must not overlap with others of
// SetRoute and RemoveRoute.
func (o *Relay) SetRoute(route Route) error {
	if route.Authority == "" {
		return errors.New("authority: is missing; set what calls have as :authority")
	}
	if route.Allow == nil {
		return errors.New("allow: is missing; say who may send")
	}
	if err := spool.CheckAddress("endpoint", route.Endpoint); err != nil {
		return err
	}
	if err := route.Spool.Validate("spool."); err != nil {
		return err
	}
	if route.Name == "" {
		route.Name = route.Authority
	}
	if err := o.RemoveRoute(route.Authority, false); err != nil {
		o.log.Warn("otlp: route has not ended well", "route", route.Name, "error", err)
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
	return nil
}

// start lets an exporter run. The lock is held.
func (o *Relay) start(e *exporter) {
	ctx, cancel := context.WithCancel(o.running)
	e.cancel = cancel
	o.group.Go(func() {
		defer close(e.ended)
		defer cancel()
		e.err = e.run(ctx)
	})
}

// RemoveRoute ends a route. What waits stays on the disk for a route with the same directory, or is
// dropped for [accesslog.CauseRemoved], with the directory.
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

// Stats returns the counts of each route by its authority. Lines are log records, bytes those of
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

// Run serves a listener, which it closes, and sends what waits, until ctx ends. What is left then
// is on the disk. It runs once.
func (o *Relay) Run(ctx context.Context, l net.Listener) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	o.mu.Lock()
	if o.running != nil || o.ended {
		o.mu.Unlock()
		return errors.Join(errors.New("the relay is run by another call, or has ended; run it once"), l.Close())
	}
	o.running = inner
	for _, e := range o.routes {
		o.start(e)
	}
	o.mu.Unlock()
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.Creds(unixCredentials{}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(handshakeTime), grpc.WaitForHandlers(true))
	// A stream, so that who calls is known before a message is read.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: logsService,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: exportMethod, Handler: o.export, ClientStreams: true}},
	}, nil)
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(&limitedListener{Listener: l, slots: make(chan struct{}, maxConnections)})
	}()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve OTLP: %w", err)
		server.Stop()
	case <-ctx.Done():
		cut := time.AfterFunc(spool.Farewell, server.Stop)
		server.GracefulStop()
		cut.Stop()
		<-served
	}
	cancel() // exporters end after what fills them
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

// export takes one request.
func (o *Relay) export(_ any, call grpc.ServerStream) error {
	ctx := call.Context()
	headers, _ := metadata.FromIncomingContext(ctx)
	e, err := o.route(headers.Get(":authority"), peerOf(ctx))
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
		taken, err := e.backlog.Put(ctx, request, records)
		switch {
		case errors.Is(err, spool.ErrClosed):
			return status.Error(codes.Unavailable, "the route is ending")
		case err != nil:
			return status.FromContextError(err).Err()
		case !taken:
			answer = appendAnswer(nil, records, "the spool takes no more; the records are dropped")
		}
	}
	return call.SendMsg(&answer)
}

// route finds the route of a call. Who may not use it does not hear whether it is there.
func (o *Relay) route(authority []string, who Peer) (*exporter, error) {
	refused := status.Error(codes.PermissionDenied, "no route of this authority takes records of this caller")
	if len(authority) != 1 {
		return nil, refused
	}
	o.mu.Lock()
	e := o.routes[authority[0]]
	o.mu.Unlock()
	if e == nil {
		return nil, refused
	}
	if err := e.route.Allow(who); err != nil {
		e.refusals.log(e.log, who, err)
		return nil, refused
	}
	return e, nil
}

// refusals keeps the log short: one line a minute for each route.
type refusals struct {
	mu   sync.Mutex
	last time.Time
}

func (r *refusals) log(log *slog.Logger, who Peer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.last.IsZero() || now.Sub(r.last) >= time.Minute {
		r.last = now
		log.Warn("otlp: caller refused", "uid", who.UID, "pid", who.PID, "error", err)
	}
}
