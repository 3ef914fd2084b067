package ads

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// ServerOptions are the options of a Server. The zero value is valid: it logs nothing, calls
// nothing, and has the default limits.
type ServerOptions struct {
	// Log receives log entries; nil discards them.
	Log *slog.Logger
	// Now is the clock for times in the status; nil is time.Now.
	Now func() time.Time
	// Handler is called when streams open and end; nil for none.
	Handler StreamHandler
	// Authorize returns what a peer may do as a proxy. The client receives its error as
	// PERMISSION_DENIED. It must not block. Nil permits everything.
	Authorize func(*access.Peer, node.Ref) (access.Grant, error)
	// Verify returns the claims of the token of a peer. The client receives its error as
	// UNAUTHENTICATED, unless it has a gRPC status. Nil ignores tokens.
	Verify func(*access.Peer, string) (*token.Claims, error)
	// TLS is the TLS config for TCP connections; nil uses plain text.
	TLS *tls.Config
	// Registry registers the nearside_xds_* metrics of streams; nil leaves them unregistered.
	Registry prometheus.Registerer

	// FirstRequestTimeout is how long a new stream may send no request. The default is 10 s.
	FirstRequestTimeout time.Duration
	// StopTimeout bounds the graceful end of Serve. The default is 2 s.
	StopTimeout time.Duration
	// MaxStreams is the maximum number of streams. The default is 4096. One connection has at most
	// 100.
	MaxStreams uint32
	// MaxPeerConns is the maximum number of connections of one peer, which is a uid or an address.
	// Root may have four times as many. The default is 3072.
	MaxPeerConns int
	// MaxPeerStreams is the maximum number of streams of one peer, so that no peer blocks the
	// others. It does not apply to root. The default is three quarters of MaxStreams, because all
	// Envoys of a node may share a uid.
	MaxPeerStreams uint32
	// RecvBytes is the maximum size of a request in bytes. The default is 4 MiB. Everything but the
	// names of resources is limited to 1 MiB.
	RecvBytes int
	// MaxPeerBytes is the maximum memory for the subscriptions of one peer in bytes. Root has four
	// times as much. The default is 256 MiB.
	MaxPeerBytes int64
	// MaxPeerRequests is the maximum size of the concurrent requests of one peer that are larger
	// than 64 KiB, in bytes. Root has four times as much. Further requests wait. The default is 32
	// MiB.
	MaxPeerRequests int64
	// MaxPeerSilent is the maximum number of streams of one peer that have sent no request. It does
	// not apply to root. The default is a quarter of MaxPeerStreams.
	MaxPeerSilent uint32
	// Examine answers whether a peer may be a proxy, without a stream. Nil: not supported.
	Examine func(access.Stream, node.Ref) api.Admission
	// Drain drains a dataplane for its own peer, and returns after the timeout of the request at the
	// latest. Nil: not supported.
	Drain func(context.Context, node.Ref, *access.Peer, *api.DrainRequest) (*api.Drain, *api.Error)
	// Metadata lists the paths of the string fields of the node metadata that the handler reads.
	// Others are not decoded.
	Metadata [][]string
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.FirstRequestTimeout = cmp.Or(o.FirstRequestTimeout, 10*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 2*time.Second)
	o.MaxStreams = cmp.Or(o.MaxStreams, 4096)
	o.MaxPeerStreams = cmp.Or(o.MaxPeerStreams, max(1, o.MaxStreams/4*3))
	o.RecvBytes = cmp.Or(o.RecvBytes, 4<<20)
	o.MaxPeerConns = cmp.Or(o.MaxPeerConns, 3072)
	o.MaxPeerBytes = cmp.Or(o.MaxPeerBytes, 256<<20)
	o.MaxPeerRequests = cmp.Or(o.MaxPeerRequests, 32<<20)
	o.MaxPeerSilent = cmp.Or(o.MaxPeerSilent, max(1, o.MaxPeerStreams/4))
	return o
}

// StreamHandler is called when the stream of a node opens and ends, by the goroutine of the stream.
// It may block briefly and may call Publish.
type StreamHandler interface {
	// Opened is called with the node of the first request before any response is sent. An error
	// refuses the stream. The client receives it with its gRPC status.
	Opened(access.Stream) error
	// Closed is called once when a stream ends for which Opened returned nil.
	Closed(access.Stream)
}

// Server is the aggregated discovery service. It is safe for concurrent use. Create it with
// NewServer.
type Server struct {
	opts         ServerOptions
	proxies      *rollout.Proxies
	metrics      *serverMetrics
	stubs        *stubRequests
	encoded      encodings
	first, later *requestFilters // for the first request of a stream, and for later ones
	builds       builds

	wg sync.WaitGroup // stream goroutines

	refusals refusals

	mu       sync.Mutex // locked before the locks of proxies; guards all fields below
	stopping bool
	nextID   int64
	streams  map[*adsStream]struct{}
	owners   map[string]*owner // by Peer.Owner
	claims   map[string]*claim // by node id
	drains   int               // concurrent requests of proxies that drain themselves
}

// NewServer returns a server that sends the configs of p.
func NewServer(p *rollout.Proxies, o ServerOptions) *Server {
	o = o.withDefaults()
	s := &Server{
		opts:    o,
		proxies: p,
		stubs:   newStubRequests(),
		streams: map[*adsStream]struct{}{},
		owners:  map[string]*owner{},
		first:   newRequestFilters(o.Metadata, true),
		later:   newRequestFilters(nil, false),
		claims:  map[string]*claim{},
	}
	s.metrics = newServerMetrics(o.Registry, refusedClients{s}, o.Log)
	return s
}

// Serve accepts connections on the listeners until ctx is done. Then it ends the streams, waits up
// to StopTimeout, and closes the remaining connections. It returns nil after ctx is done, or the
// error of the listener that failed. When it returns, all listeners are closed and all goroutines
// have ended. Call it once.
func (s *Server) Serve(ctx context.Context, ls ...net.Listener) error {
	gs := grpc.NewServer(
		grpc.Creds(meteredCredentials{peerCredentials{s.opts.TLS}, s}),
		grpc.ForceServerCodecV2(newSharedCodec()),
		grpc.MaxConcurrentStreams(min(s.opts.MaxStreams, connStreams)),
		grpc.MaxRecvMsgSize(s.opts.RecvBytes),
		grpc.MaxHeaderListSize(64<<10),
		// Static windows do not grow to 16 MiB for a peer that sends fast.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(8<<10), // per connection; requests are small
		grpc.ConnectionTimeout(5*time.Second),
		grpc.WaitForHandlers(true),
		// A peer that disappears is detected after 40 s. Idle connections are closed.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute, Time: 30 * time.Second,
			Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(gs, &adsService{s: s})
	gs.RegisterService(s.admissionDesc(), s)
	gs.RegisterService(s.ownDrainDesc(), s)

	failed := make(chan error, len(ls))
	var accepting sync.WaitGroup
	for _, l := range ls {
		accepting.Add(1)
		go func() {
			defer accepting.Done()
			if err := gs.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- fmt.Errorf("xds: accept on %s: %w", l.Addr(), err)
			}
		}()
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}

	s.mu.Lock()
	s.stopping = true
	for st := range s.streams {
		st.End("stopping", status.Error(codes.Unavailable, "the agent is stopping"))
	}
	s.mu.Unlock()
	hard := time.AfterFunc(s.opts.StopTimeout, gs.Stop)
	gs.GracefulStop()
	hard.Stop()
	accepting.Wait()
	s.wg.Wait()
	s.proxies.Stop()
	return err
}
