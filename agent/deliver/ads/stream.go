package ads

import (
	"context"
	"runtime"
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
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// adsStream is one stream of a client. Each stream has a separate stream handler, of which
// adsStream is the cache and the callbacks, so no lookup by stream is necessary.
type adsStream struct {
	srv   *Server
	id    int64
	delta bool
	peer  access.Peer
	start time.Time

	// ctx ends the stream handler. killed ends the call even if the handler is blocked in a send.
	ctx      context.Context
	cancel   context.CancelFunc
	killOnce sync.Once
	killed   chan struct{}
	killErr  error  // set before killed is closed
	killedBy string // set with killErr

	conn    *meteredConn // nil in tests without a connection
	owner   *owner
	charges charges
	costs   chan int64 // costs of the requests that were read, in order; see decode and nextCost

	// Set by open, constant afterwards.
	key     node.Key
	client  rollout.Client
	grant   access.Grant // at the time of open
	rollout *rollout.Stream

	claim *claim // guarded by the mu of the server
	asked bool   // whether a request was read; guarded by the mu of the server

	// Used only by the goroutine of the stream.
	sending  *rollout.Response
	watches  [draft.NumTypes]*namesCost // of the subscribed types
	cost     int64                      // cost of the present request that is not charged to a type yet
	unserved map[string]struct{}        // requested types that are not served
	accepted bool                       // a request has passed the checks
}

// adsService is the gRPC service, so that its methods are not methods of Server.
type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	s *Server
}

// DeltaAggregatedResources serves a delta stream.
func (a *adsService) DeltaAggregatedResources(
	str discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.s.serveStream(str.Context(), true, func(st *adsStream) (err error) {
		first := &discovery.DeltaDiscoveryRequest{}
		if err := st.receiveFirst(str, first); err != nil {
			return err
		}
		if err := st.open(first.GetNode()); err != nil {
			return err
		}
		defer func() { st.close(err) }()
		w := &wire[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]{exchange: str, st: st, first: first}
		return delta.NewServer(st.ctx, st, st, st.options()...).DeltaStreamHandler(w, "")
	})
}

// StreamAggregatedResources serves a state-of-the-world stream.
func (a *adsService) StreamAggregatedResources(
	str discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.s.serveStream(str.Context(), false, func(st *adsStream) (err error) {
		first := &discovery.DiscoveryRequest{}
		if err := st.receiveFirst(str, first); err != nil {
			return err
		}
		if err := st.open(first.GetNode()); err != nil {
			return err
		}
		defer func() { st.close(err) }()
		w := &wire[discovery.DiscoveryRequest, discovery.DiscoveryResponse]{exchange: str, st: st, first: first}
		return sotw.NewServer(st.ctx, st, st, append(st.options(), sotw.WithOrderedADS())...).StreamHandler(w, "")
	})
}

// options returns the options of the stream handlers. An empty list of names means all resources
// only for listeners and clusters, and not for gRPC clients.
func (st *adsStream) options() []config.XDSOption {
	if st.key.Flavor == node.FlavorGRPC {
		return []config.XDSOption{config.DeactivateLegacyWildcard()}
	}
	return []config.XDSOption{config.DeactivateLegacyWildcardForTypes([]string{draft.TypeSecret, draft.TypeEndpoint,
		draft.TypeRoute})}
}

// serveStream runs a stream in a separate goroutine, so that the call can end while a send is
// blocked. The end of the call unblocks the send.
func (s *Server) serveStream(ctx context.Context, delta bool, run func(*adsStream) error) error {
	ctx, conn := unmetered(ctx)
	st := &adsStream{srv: s, delta: delta, peer: peerOf(ctx), conn: conn, killed: make(chan struct{}),
		costs: make(chan int64, 4), start: s.opts.Now()}
	st.ctx, st.cancel = context.WithCancel(ctx)
	defer st.cancel()
	if err := s.authenticate(ctx, &st.peer); err != nil {
		s.refuse(st.peer, node.Key{}, reasonUnauthorized, err)
		return err
	}

	s.mu.Lock()
	reason, err := s.admit(st)
	s.mu.Unlock()
	if err != nil {
		if reason != "" {
			s.refuse(st.peer, node.Key{}, reason, err)
		}
		return err
	}

	done := make(chan error, 1)
	go func() {
		defer s.wg.Done()
		silent := time.AfterFunc(s.opts.FirstRequestTimeout, func() {
			s.mu.Lock()
			opened := st.claim != nil
			s.mu.Unlock()
			if !opened {
				st.End("silent", status.Errorf(codes.DeadlineExceeded, "no request within %v", s.opts.FirstRequestTimeout))
			}
		})
		err := run(st)
		silent.Stop()
		s.mu.Lock()
		s.dismiss(st)
		s.mu.Unlock()
		done <- err
	}()
	select {
	case err = <-done:
	case <-st.killed:
	}
	select {
	case <-st.killed:
		if st.killedBy != "stopping" {
			s.opts.Log.Info("server ended the xDS stream", "stream", st.id, "peer", st.peer.String(), "reason", st.killedBy,
				"error", st.killErr)
		}
		return st.killErr
	default:
		return err
	}
}

// End ends a stream with an error. Only the first call has an effect. reason is the metric label.
// End does not wait.
func (st *adsStream) End(reason string, err error) {
	st.killOnce.Do(func() {
		st.srv.metrics.closed.WithLabelValues(reason).Inc() // before the client receives the error
		if isListed(reason) {
			st.srv.refusals.record(st.peer, st.key, reason, err, st.srv.opts.Now())
		}
		st.killErr, st.killedBy = err, reason
		close(st.killed)
		st.cancel()
	})
}

// HasEnded reports whether the stream has ended or is about to.
func (st *adsStream) HasEnded() bool { return st.ctx.Err() != nil }

// open registers the stream under the node of its first request and calls the handler.
func (st *adsStream) open(info *core.Node) error {
	s := st.srv
	ref, err := node.ParseRef(info.GetId())
	if err != nil {
		err := status.Errorf(codes.InvalidArgument, "%v; correct node.id in the bootstrap of the Envoy", err)
		s.refuse(st.peer, node.Key{ID: info.GetId(), Flavor: node.FlavorOf(info)}, reasonBadNodeID, err)
		return err
	}
	st.key = node.Key{ID: info.GetId(), Flavor: node.FlavorOf(info)}
	agent := clip.PrintableText(info.GetUserAgentName(), 128)
	st.client = rollout.Client{
		Peer: st.peer, UserAgent: agent, Version: clip.PrintableText(userAgentVersion(info), 128), Build: s.builds.of(info),
		Envoy: agent == "envoy", Delta: st.delta, Opened: st.start,
	}
	if st.grant, err = s.authorize(&st.peer, ref); err == nil {
		err = s.register(st, st.key, ref)
	}
	if err != nil {
		s.refuse(st.peer, st.key, reasonDenied, err)
		return err
	}
	if s.opts.Handler != nil {
		if err := s.opts.Handler.Opened(st.describe(info)); err != nil {
			s.unregister(st)
			if _, ok := status.FromError(err); !ok {
				err = status.Error(codes.PermissionDenied, err.Error())
			}
			s.refuse(st.peer, st.key, reasonMetadata, err)
			return err
		}
	}
	s.refusals.opened(st.peer, st.key.ID)
	st.rollout.Open()
	return nil
}

// describe returns the description of the stream for the handler.
func (st *adsStream) describe(info *core.Node) access.Stream {
	return access.Stream{ID: st.id, Node: info, Key: st.key, Peer: st.peer, Grant: st.grant, Delta: st.delta}
}

// close removes the stream from its node. err is the error of its handler.
func (st *adsStream) close(err error) {
	last := st.srv.unregister(st)
	if st.srv.opts.Handler != nil {
		ended := st.describe(nil)
		ended.Refused = !st.accepted && isRefused(err)
		select {
		case <-st.killed:
			ended.Refused = ended.Refused || st.killedBy == reasonDenied
		default:
		}
		st.srv.opts.Handler.Closed(ended)
	}
	if last { // after the handler, so that the next pass sees its changes
		st.srv.proxies.Left()
	}
}

// checkNode returns an error for a request with another node id than the first one.
func (st *adsStream) checkNode(node *core.Node) error {
	if node == nil || node.GetId() == st.key.ID {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "node id changed from %q to \"%s\" within the stream",
		st.key.ID, clip.PrintableText(node.GetId(), 317))
}

// checkType returns the rank of a type, -1 for a type that is not served. A client may request some
// of those. Secrets contain private keys, so they are sent only over the Unix socket, and over TLS
// to authenticated clients.
func (st *adsStream) checkType(url string) (int, error) {
	rank := draft.Rank(url)
	withheld := rank == draft.RankSecret && !st.peer.MayHaveSecrets()
	if withheld {
		rank = -1
	}
	if rank >= 0 || url == "" {
		return rank, nil
	}
	if _, ok := st.unserved[url]; !ok {
		if len(st.unserved) >= 32 || len(url) > 1024 {
			return rank, status.Errorf(codes.InvalidArgument, "too many requested types are not served; the last is %s",
				clip.PrintableText(url, 200))
		}
		if st.unserved == nil {
			st.unserved = map[string]struct{}{}
		}
		st.unserved[url] = struct{}{}
		if withheld {
			st.srv.opts.Log.Warn("a client requests certificates over TCP, which are sent only over TLS and to clients "+
				"with a token or a certificate; set xds.tls, or connect its Envoy to the unix socket",
				"node", st.key.ID, "peer", st.peer.String())
		} else {
			st.srv.opts.Log.Debug("type is not served", "node", st.key.ID, "type", clip.PrintableText(url, 200))
		}
	}
	return rank, nil
}

// exchange is the gRPC stream of either protocol.
type exchange[Req, Resp any] interface {
	grpc.ServerStream
	Recv() (*Req, error)
	Send(*Resp) error
}

// wire is the gRPC stream for the stream handler.
type wire[Req, Resp any] struct {
	exchange[Req, Resp]
	st    *adsStream
	first *Req
}

// Recv returns the next request, beginning with the first one, which was read before. A refused
// request ends the stream.
func (w *wire[Req, Resp]) Recv() (*Req, error) {
	req := w.first
	if w.first = nil; req == nil {
		req = new(Req)
		if err := receive(w.exchange, w.st, false, any(req).(proto.Message)); err != nil {
			if isRefused(err) {
				w.st.End(reasonBadRequest, err) // the handler ends without an error
			}
			return nil, err
		}
	}
	w.st.withoutNode(req)
	return req, nil
}

// Send sends a response.
func (w *wire[Req, Resp]) Send(resp *Resp) error {
	return w.st.deliver(any(resp).(proto.Message), w.SendMsg)
}

// deliver sends a response with its resources, and measures the time since the publication of the
// config.
func (st *adsStream) deliver(resp proto.Message, send func(any) error) error {
	t := st.sending
	if st.sending = nil; t == nil {
		return send(resp)
	}
	resources, kept := st.srv.encoded.of(st.delta, t.Rank, t.Send)
	err := send(&outgoing{resp, resources})
	runtime.KeepAlive(kept)
	if err != nil {
		return err
	}
	if !t.Published.IsZero() {
		st.srv.metrics.delivery.Observe(time.Since(t.Published).Seconds())
	}
	return nil
}
