package xds

import (
	"context"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/node"
)

var errOverrun = status.Error(codes.Internal, "more responses than the stream can take")

// adsStream is one stream of a client. It is the cache and the callbacks of its own stream handler, so nothing has to
// be looked up by stream.
type adsStream struct {
	srv   *Server
	id    int64
	delta bool
	peer  Peer
	start time.Time

	// ctx ends the stream handler; killed ends the call even while the handler is stuck in a send.
	ctx      context.Context
	cancel   context.CancelFunc
	killOnce sync.Once
	killed   chan struct{}
	killErr  error  // set before killed is closed
	killedBy string // as killErr

	// Set by open, then constant.
	node       *proxyNode
	info       *core.Node
	envoyAgent bool // the client says that it is Envoy

	claim *claim // guarded by the mu of the server

	// Guarded by the mu of the node.
	ended bool
	// subscribing is set while the delta handler changes the subscription of a watch, which nobody may look at then;
	// CreateDeltaWatch follows and makes up for what was missed.
	subscribing   bool
	watches       [draft.NumTypes]*typeWatch
	warming       map[string]struct{} // endpoints of clusters that were sent before endpoints were asked for
	graceTimer    *time.Timer
	removalTimer  *time.Timer
	removalForced bool
	ackTimer      *time.Timer // runs while a response is not acknowledged

	// Used by the goroutine of the stream alone.
	sending *ticket
	strange map[string]struct{} // types that are asked for but not served
}

// adsService is the gRPC service; the methods of Server stay free of it.
type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	s *Server
}

// DeltaAggregatedResources serves a delta stream.
func (a *adsService) DeltaAggregatedResources(str discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.s.serveStream(str.Context(), true, func(st *adsStream) error {
		first, err := str.Recv()
		if err != nil {
			return err
		}
		if err := st.open(first.GetNode()); err != nil {
			return err
		}
		defer st.close()
		w := &wire[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]{exchange: str, st: st, first: first}
		return delta.NewServer(st.ctx, st, st, st.options()...).DeltaStreamHandler(w, "")
	})
}

// StreamAggregatedResources serves a state-of-the-world stream.
func (a *adsService) StreamAggregatedResources(str discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.s.serveStream(str.Context(), false, func(st *adsStream) error {
		first, err := str.Recv()
		if err != nil {
			return err
		}
		if err := st.open(first.GetNode()); err != nil {
			return err
		}
		defer st.close()
		w := &wire[discovery.DiscoveryRequest, discovery.DiscoveryResponse]{exchange: str, st: st, first: first}
		return sotw.NewServer(st.ctx, st, st, append(st.options(), sotw.WithOrderedADS())...).StreamHandler(w, "")
	})
}

// options returns those of the stream handlers. An empty list means "everything" only of listeners and clusters, and
// never from gRPC clients.
func (st *adsStream) options() []config.XDSOption {
	if st.node.key.Flavor == node.FlavorGRPC {
		return []config.XDSOption{config.DeactivateLegacyWildcard()}
	}
	return []config.XDSOption{config.DeactivateLegacyWildcardForTypes([]string{draft.TypeSecret, draft.TypeEndpoint, draft.TypeRoute})}
}

// serveStream runs a stream in a goroutine of its own, so that the call can end while a send is stuck: its end is what
// frees the send.
func (s *Server) serveStream(ctx context.Context, delta bool, run func(*adsStream) error) error {
	st := &adsStream{srv: s, delta: delta, peer: peerOf(ctx), killed: make(chan struct{}), start: s.opts.Now()}
	st.ctx, st.cancel = context.WithCancel(ctx)
	defer st.cancel()

	s.mu.Lock()
	switch {
	case s.stopping:
		s.mu.Unlock()
		return status.Error(codes.Unavailable, "the agent is stopping")
	case len(s.streams) >= int(s.opts.MaxStreams):
		s.mu.Unlock()
		s.metrics.closed.WithLabelValues("too-many").Inc()
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, no more are taken", s.opts.MaxStreams)
	case !st.peer.root() && s.peers[st.peer.owner()] >= int(s.opts.MaxPeerStreams):
		s.mu.Unlock()
		s.metrics.closed.WithLabelValues("too-many-of-peer").Inc()
		return status.Errorf(codes.ResourceExhausted, "%s has %d streams open, no more of it are taken", st.peer.owner(), s.opts.MaxPeerStreams)
	}
	s.nextID++
	st.id = s.nextID
	s.streams[st] = struct{}{}
	s.peers[st.peer.owner()]++
	s.wg.Add(1)
	s.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		defer s.wg.Done()
		silent := time.AfterFunc(s.opts.FirstRequestTimeout, func() {
			s.mu.Lock()
			opened := st.claim != nil
			s.mu.Unlock()
			if !opened {
				st.kill("silent", status.Errorf(codes.DeadlineExceeded, "no request within %v", s.opts.FirstRequestTimeout))
			}
		})
		err := run(st)
		silent.Stop()
		s.mu.Lock()
		delete(s.streams, st)
		if s.peers[st.peer.owner()]--; s.peers[st.peer.owner()] == 0 {
			delete(s.peers, st.peer.owner())
		}
		s.mu.Unlock()
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-st.killed:
	}
	select {
	case <-st.killed:
		if st.killedBy != "stopping" {
			s.opts.Log.Info("the server ended the xDS stream", "stream", st.id, "peer", st.peer.String(), "reason", st.killedBy, "error", st.killErr)
		}
		return st.killErr
	default:
		return err
	}
}

// kill ends a stream with an error, once; reason is the label under which it is counted. It does not wait; the call logs it.
func (st *adsStream) kill(reason string, err error) {
	st.killOnce.Do(func() {
		st.killErr, st.killedBy = err, reason
		close(st.killed)
		st.cancel()
		st.srv.metrics.closed.WithLabelValues(reason).Inc()
	})
}

// open registers the stream under the node of its first request and tells the handler.
func (st *adsStream) open(info *core.Node) error {
	s := st.srv
	ref, err := node.ParseRef(info.GetId())
	if err != nil {
		s.metrics.closed.WithLabelValues("bad-node-id").Inc()
		return status.Error(codes.InvalidArgument, err.Error())
	}
	key := node.Key{ID: info.GetId(), Flavor: node.FlavorOf(info)}
	st.info, st.envoyAgent = info, info.GetUserAgentName() == "envoy"
	if err := s.register(st, key, ref); err != nil {
		s.metrics.closed.WithLabelValues("denied").Inc()
		return err
	}
	if s.opts.Handler != nil {
		if err := s.opts.Handler.Opened(st.describe()); err != nil {
			s.unregister(st, false)
			s.metrics.closed.WithLabelValues("refused").Inc()
			if _, ok := status.FromError(err); ok {
				return err
			}
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	s.opened(st)
	return nil
}

// describe returns what the handler is told of the stream.
func (st *adsStream) describe() Stream {
	return Stream{ID: st.id, Node: st.info, Key: st.node.key, Peer: st.peer, Delta: st.delta}
}

// close takes the stream off its node.
func (st *adsStream) close() {
	last := st.srv.unregister(st, true)
	if st.srv.opts.Handler != nil {
		st.srv.opts.Handler.Closed(st.describe())
	}
	if last { // after the handler, so that whoever looks now finds it up to date
		st.srv.opts.Changed()
	}
}

// end stops all that the stream has under way. The mu of the node is held.
func (st *adsStream) end() {
	st.ended = true
	for _, t := range []*time.Timer{st.graceTimer, st.removalTimer, st.ackTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// watchGrace starts the grace of a stream whose node is not known, and stops it once it is. The mu of the node is held.
func (st *adsStream) watchGrace() {
	n := st.node
	switch {
	case n.cfg != nil:
		if st.graceTimer != nil {
			st.graceTimer.Stop()
			st.graceTimer = nil
		}
	case n.ready && st.graceTimer == nil && !st.ended:
		st.graceTimer = time.AfterFunc(st.srv.opts.UnknownGrace, func() {
			n.mu.Lock()
			known := n.cfg != nil
			n.mu.Unlock()
			if !known {
				st.kill("unknown", status.Errorf(codes.NotFound,
					"node id %q is not known: %s; if it is there, nearside status says why no config could be made", n.key.ID, n.ref.Remedy()))
			}
		})
	}
}

// checkNode refuses a request that names another node than the first one did.
func (st *adsStream) checkNode(node *core.Node) error {
	if node == nil || node.GetId() == st.info.GetId() {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "node id changed from %q to %q within the stream", st.info.GetId(), node.GetId())
}

// checkType returns the rank of a type, -1 for one that is not served. A client may ask for some of those in vain.
// Secrets hold private keys and leave the agent over the unix socket alone: of others nobody knows who they are.
func (st *adsStream) checkType(url string) (int, error) {
	rank := draft.Rank(url)
	withheld := rank == draft.RankSecret && !st.peer.Local
	if withheld {
		rank = -1
	}
	if rank >= 0 || url == "" {
		return rank, nil
	}
	if _, ok := st.strange[url]; !ok {
		if len(st.strange) >= 32 || len(url) > 1024 {
			return rank, status.Errorf(codes.InvalidArgument, "too many types that are not served, the last is %q", clip.Text(url, 200))
		}
		if st.strange == nil {
			st.strange = map[string]struct{}{}
		}
		st.strange[url] = struct{}{}
		if withheld {
			st.srv.opts.Log.Warn("a client asks for certificates over TCP, where they are not sent; connect its Envoy to the unix socket", "node", st.node.key.ID, "peer", st.peer.String())
		} else {
			st.srv.opts.Log.Debug("type is not served", "node", st.node.key.ID, "type", url)
		}
	}
	return rank, nil
}

// exchange is the connection of a stream of either protocol.
type exchange[Req, Resp any] interface {
	grpc.ServerStream
	Recv() (*Req, error)
	Send(*Resp) error
}

// wire is the connection as the handler of the protocol sees it.
type wire[Req, Resp any] struct {
	exchange[Req, Resp]
	st    *adsStream
	first *Req
}

// Recv returns the next request, the one that was read before first.
func (w *wire[Req, Resp]) Recv() (*Req, error) {
	if req := w.first; req != nil {
		w.first = nil
		return req, nil
	}
	return w.exchange.Recv()
}

// Send sends one response.
func (w *wire[Req, Resp]) Send(resp *Resp) error {
	return w.st.deliver(func() error { return w.exchange.Send(resp) })
}

// deliver sends a response and measures how long after the publication of its config that was done.
func (st *adsStream) deliver(send func() error) error {
	t := st.sending
	st.sending = nil
	if err := send(); err != nil {
		return err
	}
	if t != nil && !t.pushed.IsZero() {
		st.srv.metrics.delivery.Observe(time.Since(t.pushed).Seconds())
	}
	return nil
}

// awaitAck bounds how long the client may leave a response unanswered; progress says that it has just answered one.
// The mu of the node is held.
func (st *adsStream) awaitAck(progress bool) {
	timeout := st.srv.opts.AckTimeout
	outstanding := slices.ContainsFunc(st.watches[:], func(w *typeWatch) bool { return w != nil && len(w.unacked) > 0 })
	switch {
	case !outstanding && st.ackTimer != nil:
		st.ackTimer.Stop()
		st.ackTimer = nil
	case outstanding && st.ackTimer == nil:
		st.ackTimer = time.AfterFunc(timeout, func() {
			st.kill("stuck", status.Errorf(codes.DeadlineExceeded, "a response was neither acknowledged nor rejected within %v", timeout))
		})
	case outstanding && progress:
		st.ackTimer.Reset(timeout)
	}
}
