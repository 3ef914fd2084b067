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

// ServerOptions holds what a Server needs. The zero value works: it logs nowhere, tells nobody and
// has the default bounds.
type ServerOptions struct {
	// Log takes what an operator should know; nil discards.
	Log *slog.Logger
	// Now is the clock of the times in status; nil is time.Now.
	Now func() time.Time
	// Handler is told of streams; nil for none.
	Handler StreamHandler
	// Authorize says whether a peer may be a proxy, and what it may do as one. Its error is passed on
	// to the client as PERMISSION_DENIED. It must not block. Nil: everybody may be everything.
	Authorize func(*access.Peer, node.Ref) (access.Grant, error)
	// Verify returns what a token of a peer says. Its error is passed on to the client as
	// UNAUTHENTICATED, unless it has a gRPC status. Nil: tokens are not looked at.
	Verify func(*access.Peer, string) (*token.Claims, error)
	// Cgroups says that Authorize looks at the cgroups of peers.
	Cgroups bool
	// TLS is spoken on TCP; nil: plain text.
	TLS *tls.Config
	// Registry takes the metrics nearside_xds_* of streams; nil leaves them unregistered.
	Registry prometheus.Registerer

	// FirstRequestTimeout is how long a new stream may stay silent; default 10 s.
	FirstRequestTimeout time.Duration
	// StopTimeout bounds the graceful end of Serve; default 2 s.
	StopTimeout time.Duration
	// MaxStreams bounds the streams of the server; default 4096. One connection has at most 100.
	MaxStreams uint32
	// MaxPeerConns bounds the connections of one peer, a uid or an address; root may have four times
	// as many. Default 3072.
	MaxPeerConns int
	// MaxPeerStreams bounds the streams of one peer, so that nobody can shut the others out; root is
	// not bound. Default three quarters of MaxStreams: all Envoys of a node may share a uid.
	MaxPeerStreams uint32
	// RecvBytes bounds one request in bytes; default 4 MiB. Beside the names of resources it has 1 MiB
	// at most.
	RecvBytes int
	// MaxPeerBytes bounds what the subscriptions of one peer take in memory, in bytes; root has four
	// times as much. Default 256 MiB.
	MaxPeerBytes int64
	// MaxPeerRequests bounds the requests of one peer that are larger than 64 KiB and under way at a
	// time, in bytes; root has four times as much. More wait for these. Default 32 MiB.
	MaxPeerRequests int64
	// MaxPeerSilent bounds the streams of one peer without a request so far; root is not bound.
	// Default a quarter of MaxPeerStreams.
	MaxPeerSilent uint32
	// Metadata are the paths of the fields of the node metadata that the handler reads, which are
	// texts. No others are decoded.
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

// StreamHandler is told when the stream of a node opens and ends, from the goroutine of the stream.
// It may block briefly and may call Publish.
type StreamHandler interface {
	// Opened is called with the node of the first request, before anything is answered. An error
	// refuses the stream and is passed on to the client with its gRPC status.
	Opened(access.Stream) error
	// Closed is called once when a stream ends whose Opened returned nil.
	Closed(access.Stream)
}

// Server is the aggregated discovery service. Make it with NewServer; its methods may be called
// from any goroutine.
type Server struct {
	opts         ServerOptions
	proxies      *rollout.Proxies
	metrics      *serverMetrics
	stubs        *stubRequests
	encoded      encodings
	first, later *requestFilters // of the first request of a stream, of the others
	builds       builds

	wg sync.WaitGroup // stream goroutines

	refusedMu sync.Mutex
	refused   api.Refusals // guarded by refusedMu

	mu       sync.Mutex // taken before the locks of proxies; guards all below
	stopping bool
	nextID   int64
	streams  map[*adsStream]struct{}
	owners   map[string]*owner // of streams and connections, by Peer.owner
	claims   map[string]*claim // by node id: who holds it
}

// NewServer returns a server that gives proxies what p says.
func NewServer(p *rollout.Proxies, o ServerOptions) *Server {
	o = o.withDefaults()
	return &Server{
		opts:    o,
		proxies: p,
		metrics: newServerMetrics(o.Registry, o.Log),
		stubs:   newStubRequests(),
		streams: map[*adsStream]struct{}{},
		owners:  map[string]*owner{},
		first:   newRequestFilters(o.Metadata, true),
		later:   newRequestFilters(nil, false),
		claims:  map[string]*claim{},
	}
}

// Serve accepts connections on the listeners until ctx ends, then tells the streams, waits
// StopTimeout for them to end and cuts the rest. It returns nil after ctx ended, else the error of
// the listener that failed. All listeners are closed and all goroutines have ended when it returns.
// Call it once.
func (s *Server) Serve(ctx context.Context, ls ...net.Listener) error {
	gs := grpc.NewServer(
		grpc.Creds(meteredCredentials{peerCredentials{s.opts.Cgroups, s.opts.TLS}, s}),
		grpc.ForceServerCodecV2(newSharedCodec()),
		grpc.MaxConcurrentStreams(min(s.opts.MaxStreams, connStreams)),
		grpc.MaxRecvMsgSize(s.opts.RecvBytes),
		grpc.MaxHeaderListSize(64<<10),
		// Static, so that no peer makes them grow to 16 MiB by sending fast.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(8<<10), // of each connection, for requests, which are small
		grpc.ConnectionTimeout(5*time.Second),
		grpc.WaitForHandlers(true),
		// A peer that is gone without a word is noticed after 40 s, and idle connections do not stay for
		// ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute, Time: 30 * time.Second,
			Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(gs, &adsService{s: s})

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
