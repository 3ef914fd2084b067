package ads

import (
	"context"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
)

var (
	_ cache.ConfigWatcher = (*adsStream)(nil)
	_ delta.Callbacks     = (*adsStream)(nil)
	_ sotw.Callbacks      = (*adsStream)(nil)
	_ rollout.Transport   = (*adsStream)(nil)
)

// OnDeltaStreamOpen implements delta.Callbacks. The stream is already open.
func (st *adsStream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements delta.Callbacks. The stream is closed later.
func (st *adsStream) OnDeltaStreamClosed(int64, *core.Node) {}

// OnStreamOpen implements sotw.Callbacks. The stream is already open.
func (st *adsStream) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed implements sotw.Callbacks. The stream is closed later.
func (st *adsStream) OnStreamClosed(int64, *core.Node) {}

// OnStreamDeltaRequest checks a request and handles its acknowledgement or rejection before the
// handler reads it.
func (st *adsStream) OnStreamDeltaRequest(_ int64, req *discovery.DeltaDiscoveryRequest) error {
	st.nextCost()
	if err := st.checkNode(req.GetNode()); err != nil {
		return err
	}
	has := req.InitialResourceVersions
	req.InitialResourceVersions = nil // so that the handler does not store them
	rank, err := st.checkType(req.GetTypeUrl())
	if err != nil || rank < 0 {
		// The handler stores names without a limit.
		req.ResourceNamesSubscribe, req.ResourceNamesUnsubscribe = nil, nil
		return err
	}
	st.rollout.ShareNames(rank, req.ResourceNamesSubscribe)
	return st.accept(st.rollout.Request(rank, answerOf(req.GetResponseNonce(), req.GetErrorDetail()), has))
}

// OnStreamRequest checks a request and handles its acknowledgement or rejection before the handler
// reads it.
func (st *adsStream) OnStreamRequest(_ int64, req *discovery.DiscoveryRequest) error {
	st.nextCost()
	if err := st.checkNode(req.GetNode()); err != nil {
		return err
	}
	rank, err := st.checkType(req.GetTypeUrl())
	if err != nil || rank < 0 {
		req.ResourceNames = nil
		return err
	}
	return st.accept(st.rollout.Request(rank, answerOf(req.GetResponseNonce(), req.GetErrorDetail()), nil))
}

// accept records whether a request has passed the checks, and returns their error.
func (st *adsStream) accept(err error) error {
	st.accepted = st.accepted || err == nil
	return err
}

func answerOf(nonce string, fault *rpcstatus.Status) rollout.Answer {
	return rollout.Answer{Nonce: nonce, Rejected: fault != nil, Reason: fault.GetMessage()}
}

// OnStreamDeltaResponse records a response that is about to be sent.
func (st *adsStream) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest,
	resp *discovery.DeltaDiscoveryResponse) {
	st.sent(resp.GetNonce())
}

// OnStreamResponse records a response that is about to be sent.
func (st *adsStream) OnStreamResponse(_ context.Context, _ int64, _ *discovery.DiscoveryRequest,
	resp *discovery.DiscoveryResponse) {
	st.sent(resp.GetNonce())
}

func (st *adsStream) sent(nonce string) {
	if st.sending != nil {
		st.rollout.Sent(st.sending, nonce)
	}
}

// CreateDeltaWatch implements cache.ConfigWatcher for the delta handler.
func (st *adsStream) CreateDeltaWatch(req *discovery.DeltaDiscoveryRequest, sub cache.Subscription,
	ch chan cache.DeltaResponse) (func(), error) {
	rank, _ := st.checkType(req.GetTypeUrl())
	if rank < 0 {
		return nil, nil
	}
	cancel, err := st.rollout.SubscribeDelta(rank, sub, req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe(),
		func(t *rollout.Response) bool {
			select {
			case ch <- deltaResponse{st: st, t: t}:
				return true
			default:
				return false
			}
		})
	st.chargeType(rank)
	return cancel, err
}

// CreateWatch implements cache.ConfigWatcher for the state-of-the-world handler.
func (st *adsStream) CreateWatch(req *discovery.DiscoveryRequest, sub cache.Subscription,
	ch chan cache.Response) (func(), error) {
	rank, _ := st.checkType(req.GetTypeUrl())
	if rank < 0 {
		return nil, nil
	}
	if c := st.watches[rank]; c != nil { // these names replace those of the last request
		st.release(c.charged)
		c.charged = 0
	}
	cancel, err := st.rollout.Subscribe(rank, sub, req.GetVersionInfo(), func(t *rollout.Response) bool {
		select {
		case ch <- sotwResponse{st: st, t: t}:
			return true
		default:
			return false
		}
	})
	st.chargeType(rank)
	return cancel, err
}
