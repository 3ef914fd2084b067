package ads

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
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
	// Changed is called whenever a stream was let in, when the last one of a node has ended, and when
	// a client from which something is withheld has accepted listeners. It must not block, nor call
	// the server; nil for none.
	Changed func()
	// Stored returns the revision of the store at which a node came to be known last, 0 where it is
	// not. Who was found not to be known at an earlier revision is not told so while the next look is
	// on its way. It must not block, nor call the server. Nil: 0.
	Stored func(node.Ref) uint64
	// Rejected is called whenever a client has rejected something. It must not block; nil for none.
	Rejected func()
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
	// Registry takes the metrics nearside_xds_*; nil leaves them unregistered.
	Registry prometheus.Registerer

	// UnknownGrace is how long a stream of a node that is published as unknown is held before it is
	// told so; default 10 s.
	UnknownGrace time.Duration
	// RemovalWait bounds how long the removal of a cluster, endpoint or route waits for the
	// acknowledgement of the listeners and routes that moved off it; default 15 s.
	RemovalWait time.Duration
	// WarmWait bounds how long listeners and routes wait for the acknowledgement of clusters that are
	// new to an Envoy, which it gives once they are warm; default 10 s.
	WarmWait time.Duration
	// DrainTime is how long connections may stay on a listener that an Envoy has let go of: as long it
	// keeps what that listener refers to. 0: no longer than it takes to acknowledge.
	DrainTime time.Duration
	// HandoverTime is how long an Envoy goes on with a listener whose protocol changes, where others
	// have to change first; see [handover]. 0: it does not.
	HandoverTime time.Duration
	// AckTimeout is how long a client may neither acknowledge nor reject what it was sent, be it that
	// it does not read or does not answer, before the stream is closed; default 2 min.
	AckTimeout time.Duration
	// FirstRequestTimeout is how long a new stream may stay silent; default 10 s.
	FirstRequestTimeout time.Duration
	// GoneTime is how long it is remembered what the client of a node without a stream has accepted;
	// default 1 min. What it has rejected is remembered longer, together with what it had instead.
	GoneTime time.Duration
	// Forgot is called when what gone clients had is forgotten. It must not block, nor call the
	// server. Nil: nothing.
	Forgot func()
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
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Stored == nil {
		o.Stored = func(node.Ref) uint64 { return 0 }
	}
	if o.Forgot == nil {
		o.Forgot = func() {}
	}
	if o.Rejected == nil {
		o.Rejected = func() {}
	}
	o.UnknownGrace = cmp.Or(o.UnknownGrace, 10*time.Second)
	o.RemovalWait = cmp.Or(o.RemovalWait, 15*time.Second)
	o.WarmWait = cmp.Or(o.WarmWait, 10*time.Second)
	o.AckTimeout = cmp.Or(o.AckTimeout, 2*time.Minute)
	o.FirstRequestTimeout = cmp.Or(o.FirstRequestTimeout, 10*time.Second)
	o.GoneTime = cmp.Or(o.GoneTime, time.Minute)
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
	Opened(Stream) error
	// Closed is called once when a stream ends whose Opened returned nil.
	Closed(Stream)
}

// Stream describes one open xDS stream.
type Stream struct {
	ID    int64      // unique in the process
	Node  *core.Node // what is used of that of the first request, nil in Closed; must be neither changed nor kept
	Key   node.Key
	Peer  access.Peer
	Grant access.Grant // what the peer may do under the node id
	Delta bool
}

// Server is the aggregated discovery service. Make it with NewServer; its methods may be called
// from any goroutine.
type Server struct {
	opts         ServerOptions
	metrics      *serverMetrics
	stubs        *stubRequests
	encoded      encodings
	first, later *requestFilters // of the first request of a stream, of the others
	builds       builds

	wg       sync.WaitGroup // stream goroutines
	watchers watchers

	rejecting  atomic.Int64  // nodes with rejections
	lastStream atomic.Uint64 // number of streams that were let in

	refusedMu sync.Mutex
	refused   api.Refusals // guarded by refusedMu

	mu        sync.Mutex // taken before a proxyNode's mu; guards all below
	ready     bool
	stopping  bool
	nextID    int64
	streams   map[*adsStream]struct{}
	owners    map[string]*owner // of streams and connections, by Peer.owner
	nodes     map[node.Key]*proxyNode
	gone      []*proxyNode      // nodes without a stream, the longest gone first
	goneTimer *time.Timer       // runs until the next of them is forgotten in part; see forgetAccepted
	claims    map[string]*claim // by node id: who holds it

	progress   []Progress // as worked out after progressOf changes
	progressOf uint64
}

// NewServer returns a server that holds all streams until Ready is called.
func NewServer(o ServerOptions) *Server {
	o = o.withDefaults()
	s := &Server{
		opts:    o,
		stubs:   newStubRequests(),
		streams: map[*adsStream]struct{}{},
		owners:  map[string]*owner{},
		first:   newRequestFilters(o.Metadata, true),
		later:   newRequestFilters(nil, false),
		nodes:   map[node.Key]*proxyNode{},
		claims:  map[string]*claim{},
	}
	s.metrics = newServerMetrics(o.Registry, held{s}, o.Log)
	return s
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
	if s.goneTimer != nil {
		s.goneTimer.Stop()
	}
	for st := range s.streams {
		st.kill("stopping", status.Error(codes.Unavailable, "the agent is stopping"))
	}
	s.mu.Unlock()
	hard := time.AfterFunc(s.opts.StopTimeout, gs.Stop)
	gs.GracefulStop()
	hard.Stop()
	accepting.Wait()
	s.wg.Wait()
	return err
}

// Ready lets the streams be served. Until it is called nothing is sent to anyone, so that a client
// never takes an agent that has not loaded its state for an empty mesh.
func (s *Server) Ready() {
	s.mu.Lock()
	s.ready = true
	nodes := make([]*proxyNode, 0, len(s.nodes))
	for _, n := range s.nodes {
		nodes = append(nodes, n)
	}
	s.mu.Unlock()
	for _, n := range nodes {
		n.mu.Lock()
		n.ready = true
		n.refresh()
		n.mu.Unlock()
	}
	s.watchers.notify()
}

// Config is what Publish gives a node.
type Config struct {
	Sealed *draft.Sealed // nil: the node is unknown
	// Refused ends the streams of a node without a config with RESOURCE_EXHAUSTED. Nil: it is not
	// refused.
	Refused  error
	Revision uint64 // of the store that it was made from, or from a later one without a difference
	// LastStream is what [Server.LastStream] gave before anything was looked at that the config was
	// made from. A stream that was let in later is not served with it, nor told that its node is
	// unknown: it may have brought something, and what its peer did before it came may not be in it.
	LastStream uint64
	// Withheld are the resources that the check does not let through, each once. Sealed has bytes in
	// their place that it let through before, or nothing. It must not be changed.
	Withheld []draft.Withheld
	// Listeners is what [Server.Listeners] gave when it was worked out what to withhold. Where
	// something is withheld and the client has accepted others since, no listener is sent until a
	// config comes that was worked out with those.
	Listeners []*draft.Resource
}

// Publish sets the config of nodes, each at once. A nil config says that the node is unknown: a
// connected client keeps what it has, is listed as unknown and is told after UnknownGrace. The
// configs of other nodes stay as they are.
//
// A node that is refused has its streams ended, where it has no config: that of one that is served
// stays.
//
// The caller publishes the config of every node that Connected returns whenever Changed was called;
// one that is the same as before costs a comparison of pointers. Configs of nodes that are not
// connected are dropped: a node that comes back waits for a fresh one.
func (s *Server) Publish(configs map[node.Key]Config) {
	var later []func() // log lines: no node waits for those of another one
	for key, cfg := range configs {
		n := s.nodeOf(key)
		if n == nil {
			continue
		}
		n.mu.Lock()
		if cfg.Refused != nil {
			n.turnAway(cfg)
		} else if n.setConfig(cfg, time.Now()) {
			n.refresh()
		}
		n.noteAnswered()
		later, n.later = append(later, n.later...), nil
		n.mu.Unlock()
	}
	s.watchers.notify()
	for _, log := range later {
		log()
	}
}

// Connected returns the keys of the nodes with a stream, known or not, sorted.
func (s *Server) Connected() []node.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []node.Key
	for key, n := range s.nodes {
		if n.connected > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// Waiting returns the nodes with a stream that is served nothing yet, since when it is there: those
// without a config, and those whose last publication was made before it came.
func (s *Server) Waiting() map[node.Key]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[node.Key]time.Time{}
	for key, n := range s.nodes {
		n.mu.Lock()
		for _, st := range n.streams {
			if since, waits := out[key]; st.waits() && (!waits || st.start.Before(since)) {
				out[key] = st.start
			}
		}
		n.mu.Unlock()
	}
	return out
}

// Unserved returns how many connected nodes nobody has looked at since their newest stream came,
// and since when the first of these is there. It is the work that a slow machine is behind with: a
// node that is not known is none of them.
func (s *Server) Unserved() (nodes int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.mu.Lock()
		counted := false
		for _, st := range n.streams {
			if st.number == 0 || st.isLookedAt() {
				continue
			}
			if !counted {
				counted = true
				nodes++
			}
			if since.IsZero() || st.start.Before(since) {
				since = st.start
			}
		}
		n.mu.Unlock()
	}
	return nodes, since
}

// waits says that a stream is served nothing yet. The mu of the node is held.
func (st *adsStream) waits() bool { return st.number > 0 && (st.node.cfg == nil || !st.isLookedAt()) }

func compareKeys(a, b node.Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Flavor, b.Flavor))
}
