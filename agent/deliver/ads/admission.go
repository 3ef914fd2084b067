package ads

import (
	"context"
	"encoding/json"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// maxAdmissions limits the concurrent requests of [api.AdmissionMethod].
const maxAdmissions = 8

// admissionRequest is a request of [api.AdmissionMethod], which is decoded by the codec.
type admissionRequest struct {
	s    *Server
	node *core.Node
	err  error
}

// decode decodes only the used fields, and only within the limits of the first request of a stream.
func (in *admissionRequest) decode(raw []byte) {
	size, ok := measure(raw, deltaFields)
	if !ok {
		in.err = status.Error(codes.InvalidArgument, "the request is not a valid discovery request")
		return
	}
	if in.err = size.check(); in.err != nil || size.names > 0 {
		return
	}
	kept, _ := in.s.first.delta(make([]byte, 0, len(raw)), raw)
	msg := &discovery.DeltaDiscoveryRequest{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(kept, msg); err != nil {
		in.err = status.Errorf(codes.InvalidArgument, "the request is not a discovery request: %v", err)
		return
	}
	in.node = msg.GetNode()
}

// admissionDesc describes the service for clients that ask whether they may be a proxy.
func (s *Server) admissionDesc() *grpc.ServiceDesc {
	slots := make(chan struct{}, maxAdmissions)
	handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return nil, status.Errorf(codes.ResourceExhausted, "%d tests are running, which is the maximum; try again",
				maxAdmissions)
		}
		in := &admissionRequest{s: s}
		if err := decode(in); err != nil {
			return nil, err
		}
		if in.err != nil {
			return nil, in.err
		}
		answer, err := s.admission(ctx, in.node)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		return wrapperspb.Bytes(text), nil
	}
	return &grpc.ServiceDesc{ServiceName: api.AdmissionService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: api.AdmissionMethod, Handler: handle}}}
}

// admission answers whether the peer may be a proxy. It opens no stream, stores nothing, and does
// not count or list a refusal.
func (s *Server) admission(ctx context.Context, n *core.Node) (*api.Admission, error) {
	ctx, _ = unmetered(ctx)
	p := peerOf(ctx)
	if err := s.authenticate(ctx, &p); err != nil {
		return nil, err
	}
	ref, err := node.ParseRef(n.GetId())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.opts.Examine == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not test clients")
	}
	st := access.Stream{Node: n, Key: node.Key{ID: n.GetId(), Flavor: node.FlavorOf(n)}, Peer: p, Delta: true}
	answer := s.opts.Examine(st, ref)
	if answer.Allowed {
		s.mu.Lock()
		c := s.claims[st.Key.ID]
		s.mu.Unlock()
		if c != nil && !p.Root() && c.peer.Holder() != p.Holder() {
			answer.Allowed, answer.Reason = false, status.Convert(inUse(st.Key.ID, c.peer, p)).Message()
		}
	}
	return &answer, nil
}
