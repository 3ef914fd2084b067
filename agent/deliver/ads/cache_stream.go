package ads

import (
	"context"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

const (
	// maxNames bounds the names of one type that a stream may be subscribed to or say that it has.
	maxNames = 200_000
	// maxNameBytes bounds the length of all of them together.
	maxNameBytes = 16 << 20
	// maxPrefixes bounds those that stand for all names below a prefix, since each name is compared
	// with all of them.
	maxPrefixes = 64
	// maxVersion bounds a version that a client says it has, in bytes. This server gives shorter ones.
	maxVersion = 128
)

func checkPrefixes(sub cache.Subscription) error {
	if n := len(sub.SubscribedPrefixes()); n > maxPrefixes {
		return status.Errorf(codes.ResourceExhausted,
			"%d names of resources end with /*: at most %d are taken; ask for the resources by name", n, maxPrefixes)
	}
	return nil
}

var (
	_ cache.ConfigWatcher = (*adsStream)(nil)
	_ delta.Callbacks     = (*adsStream)(nil)
	_ sotw.Callbacks      = (*adsStream)(nil)
)

// OnDeltaStreamOpen implements delta.Callbacks; the stream was opened before.
func (st *adsStream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements delta.Callbacks; the stream is closed after.
func (st *adsStream) OnDeltaStreamClosed(int64, *core.Node) {}

// OnStreamOpen implements sotw.Callbacks; the stream was opened before.
func (st *adsStream) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed implements sotw.Callbacks; the stream is closed after.
func (st *adsStream) OnStreamClosed(int64, *core.Node) {}

// OnStreamDeltaRequest checks a request and takes its acknowledgement or rejection, before the
// handler looks at it.
func (st *adsStream) OnStreamDeltaRequest(_ int64, req *discovery.DeltaDiscoveryRequest) error {
	st.takeCost()
	if err := st.checkNode(req.GetNode()); err != nil {
		return err
	}
	rank, err := st.checkType(req.GetTypeUrl())
	if err != nil || rank < 0 {
		// So that the handler keeps no names, of which there is no bound.
		req.ResourceNamesSubscribe, req.ResourceNamesUnsubscribe, req.InitialResourceVersions = nil, nil, nil
		return err
	}
	n := st.node
	n.mu.Lock()
	defer n.unlock()
	st.subscribing = true
	w := st.watches[rank]
	if w == nil {
		w = &typeWatch{node: n, rank: rank, delta: true, fresh: true}
		st.watches[rank] = w
		n.status(rank)
		if len(req.GetInitialResourceVersions()) > maxNames {
			return status.Errorf(codes.ResourceExhausted, "%d initial resource versions: at most %d are taken",
				len(req.GetInitialResourceVersions()), maxNames)
		}
		for name, version := range req.GetInitialResourceVersions() {
			w.setHolding(name, holding{kind: holdsVersion, version: version})
		}
		req.InitialResourceVersions = nil // so that the handler does not keep them as well
		return nil
	}
	st.resolve(w, req.GetResponseNonce(), req.GetErrorDetail())
	return nil
}

// OnStreamRequest checks a request and takes its acknowledgement or rejection, before the handler
// looks at it.
func (st *adsStream) OnStreamRequest(_ int64, req *discovery.DiscoveryRequest) error {
	st.takeCost()
	if err := st.checkNode(req.GetNode()); err != nil {
		return err
	}
	rank, err := st.checkType(req.GetTypeUrl())
	if err != nil || rank < 0 {
		req.ResourceNames = nil
		return err
	}
	n := st.node
	n.mu.Lock()
	defer n.unlock()
	w := st.watches[rank]
	if w == nil {
		st.watches[rank] = &typeWatch{node: n, rank: rank, fresh: true}
		n.status(rank)
		return nil
	}
	st.resolve(w, req.GetResponseNonce(), req.GetErrorDetail())
	return nil
}

// resolve matches a request with the response that it answers, if any. A rejection is told by its
// error alone, never by a version (ENVOY rule 120).
func (st *adsStream) resolve(w *typeWatch, nonce string, fault *rpcstatus.Status) {
	if st.ctx.Err() != nil {
		return // ended, as when another peer took over
	}
	for i, t := range w.unacked {
		if t.nonce != nonce || nonce == "" {
			continue
		}
		w.unacked = append(w.unacked[:i:i], w.unacked[i+1:]...)
		st.awaitAck(true)
		defer st.node.noteAnswered()
		if fault == nil {
			st.node.acknowledged(t)
			return
		}
		if st.node.refused(t, strings.TrimSpace(fault.GetMessage())) {
			w.restore(t)
			return
		}
		// P1: nothing more until the list changes. P3: then all of this response again, whatever its
		// bytes.
		w.quietFor = t.list
		for _, r := range t.send {
			w.markStale(r.Name)
		}
		for _, name := range t.removed {
			w.markStale(name)
		}
		return
	}
}

// OnStreamDeltaResponse takes note of a response that goes out now.
func (st *adsStream) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest,
	resp *discovery.DeltaDiscoveryResponse) {
	st.sent(resp.GetNonce())
}

// OnStreamResponse takes note of a response that goes out now.
func (st *adsStream) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest,
	resp *discovery.DiscoveryResponse) {
	st.sent(resp.GetNonce())
}

// sent makes the response that is being sent what the client has.
func (st *adsStream) sent(nonce string) {
	t := st.sending
	if t == nil {
		return
	}
	n := st.node
	n.mu.Lock()
	defer n.mu.Unlock()
	w := t.w
	t.noteCame()
	t.nonce, t.settled = nonce, nil
	if w.ticket == t {
		w.ticket = nil
	}
	t.before, w.base = w.base, t.base
	if len(w.unacked) == maxUnacked {
		w.unacked = w.unacked[1:]
	}
	w.unacked = append(w.unacked, t)
	st.awaitAck(false)
	n.delivered(t)
	st.advance()
}

// CreateDeltaWatch implements cache.ConfigWatcher for the delta handler.
func (st *adsStream) CreateDeltaWatch(req *discovery.DeltaDiscoveryRequest, sub cache.Subscription,
	ch chan cache.DeltaResponse) (func(), error) {
	n := st.node
	n.mu.Lock()
	defer n.mu.Unlock()
	w := st.watchOf(req.GetTypeUrl())
	if w == nil {
		return nil, nil
	}
	st.subscribing = false
	first := w.sub == nil
	w.sub = sub
	st.keepCost(w)
	if len(sub.SubscribedResources())+len(w.over) > maxNames {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d names of type %s", maxNames, req.GetTypeUrl())
	}
	if err := checkPrefixes(sub); err != nil {
		return nil, err
	}
	if !w.fits(req.GetResourceNamesSubscribe()) {
		return nil, status.Errorf(codes.ResourceExhausted, "names of type %s with more than %d bytes",
			req.GetTypeUrl(), maxNameBytes)
	}
	if first && !sub.IsWildcard() {
		for name := range w.over {
			if !w.wants(name) {
				delete(w.over, name)
			}
		}
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		_, has := w.over[name]
		switch {
		case name == "*":
			if !first && !w.wildcard {
				w.base, w.owed = nil, true
			}
		case !w.wants(name), first && has:
		default:
			w.setHolding(name, holding{kind: holdsDue})
		}
	}
	w.wildcard = sub.IsWildcard()
	for _, name := range req.GetResourceNamesUnsubscribe() {
		switch {
		case name == "*" || w.fresh && sub.IsWildcard():
		case sub.IsWildcard():
			// The name stays subscribed by the wildcard and the client must hear how it stands.
			w.setHolding(name, holding{kind: holdsDue})
		default:
			delete(w.over, name)
		}
	}
	w.push = func(t *ticket) bool {
		select {
		case ch <- deltaResponse{st: st, t: t}:
			return true
		default:
			return false
		}
	}
	w.open = true
	st.advance()
	n.noteAnswered()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		w.open = false
	}, nil
}

// CreateWatch implements cache.ConfigWatcher for the state-of-the-world handler.
func (st *adsStream) CreateWatch(req *discovery.DiscoveryRequest, sub cache.Subscription,
	ch chan cache.Response) (func(), error) {
	n := st.node
	n.mu.Lock()
	defer n.mu.Unlock()
	w := st.watchOf(req.GetTypeUrl())
	if w == nil {
		return nil, nil
	}
	first := w.sub == nil
	before := w.names
	w.sub, w.names = sub, sub.SubscribedResources()
	st.release(w.cost) // the names of the last request, which these replace
	w.cost = 0
	st.keepCost(w)
	if len(w.names) > maxNames {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d names of type %s", maxNames, req.GetTypeUrl())
	}
	if err := checkPrefixes(sub); err != nil {
		return nil, err
	}
	if w.fresh {
		w.claimed = clip.Text(req.GetVersionInfo(), maxVersion)
	}
	if !first && !w.fresh {
		for name := range w.names {
			if _, ok := before[name]; !ok {
				w.setHolding(name, holding{kind: holdsDue})
			}
		}
		if sub.IsWildcard() && !w.wildcard {
			w.base, w.owed = nil, true
		}
		for name := range w.over {
			if !w.wants(name) {
				delete(w.over, name)
			}
		}
	}
	w.wildcard = sub.IsWildcard()
	w.push = func(t *ticket) bool {
		select {
		case ch <- sotwResponse{st: st, t: t}:
			return true
		default:
			return false
		}
	}
	w.open = true
	st.advance()
	n.noteAnswered()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		w.open = false
		w.revoke() // the handler drops what waits in the channel
	}, nil
}

// watchOf returns the watch of a type, which the callback has made; nil for a type that is not
// served.
func (st *adsStream) watchOf(url string) *typeWatch {
	rank, _ := st.checkType(url)
	if rank < 0 {
		return nil
	}
	return st.watches[rank]
}
