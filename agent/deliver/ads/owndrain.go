package ads

import (
	"bytes"
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

const (
	// maxOwnDrains and maxPeerDrains limit the concurrent requests of [api.DrainMethod], of all peers
	// and of one. All Envoys of a node may share a uid.
	maxOwnDrains  = 256
	maxPeerDrains = 192
	// maxOwnDrainBytes limits the size of a request.
	maxOwnDrainBytes = 4 << 10
)

// ownDrainRequest is a request of [api.DrainMethod], which is decoded by the codec.
type ownDrainRequest struct {
	call api.OwnDrain
	err  error
}

func (in *ownDrainRequest) decode(raw []byte) {
	var text wrapperspb.BytesValue
	if len(raw) > maxOwnDrainBytes || proto.Unmarshal(raw, &text) != nil {
		in.err = status.Errorf(codes.InvalidArgument, "the request is not a BytesValue of at most %d bytes", maxOwnDrainBytes)
		return
	}
	d := json.NewDecoder(bytes.NewReader(text.GetValue()))
	d.DisallowUnknownFields()
	if err := d.Decode(&in.call); err != nil {
		in.err = status.Errorf(codes.InvalidArgument, "the request is not a valid JSON document: %v", err)
	}
}

// ownDrainDesc describes the service for proxies that drain themselves.
func (s *Server) ownDrainDesc() *grpc.ServiceDesc {
	handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &ownDrainRequest{}
		if err := decode(in); err != nil {
			return nil, err
		}
		if in.err != nil {
			return nil, in.err
		}
		answer, err := s.ownDrain(ctx, &in.call)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		return wrapperspb.Bytes(text), nil
	}
	return &grpc.ServiceDesc{ServiceName: api.DrainService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: api.DrainMethod, Handler: handle}}}
}

// ownDrain drains the dataplane of a peer. The peer must be permitted to open a stream as this
// dataplane now. In particular, no other peer may have one.
func (s *Server) ownDrain(ctx context.Context, call *api.OwnDrain) (*api.Drain, error) {
	ctx, _ = unmetered(ctx)
	p := peerOf(ctx)
	if err := s.authenticate(ctx, &p); err != nil {
		return nil, err
	}
	ref, err := node.ParseRef(call.NodeID)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	switch {
	case s.opts.Drain == nil:
		return nil, status.Error(codes.Unimplemented, "this server does not drain proxies")
	case ref.Type != node.ProxyDataplane:
		return nil, status.Errorf(codes.InvalidArgument, "%s is not a dataplane; only dataplanes can be drained", ref.Key())
	}
	if _, err := s.authorize(&p, ref); err != nil {
		return nil, err
	}
	release, err := s.takeDrain(&p, call.NodeID)
	if err != nil {
		return nil, err
	}
	defer release()
	answer, e := s.opts.Drain(ctx, ref, &p, &call.DrainRequest)
	if e == nil {
		return answer, nil
	}
	code := codes.FailedPrecondition
	switch e.Type {
	case api.ProblemInvalid:
		code = codes.InvalidArgument
	case api.ProblemNotFound:
		code = codes.NotFound
	case api.ProblemNotReady:
		code = codes.Unavailable
	}
	return nil, status.Error(code, e.Detail)
}

// takeDrain counts a request of a peer until release. It fails if there are too many, and if
// another peer has the node id.
func (s *Server) takeDrain(p *access.Peer, id string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.ownerOf(*p)
	c := s.claims[id]
	switch {
	case c != nil && !p.Root() && c.peer.Holder() != p.Holder():
		s.dropOwner(o)
		return nil, inUse(id, c.peer, *p)
	case s.drains >= maxOwnDrains, o.drains >= maxPeerDrains:
		s.dropOwner(o)
		return nil, status.Errorf(codes.ResourceExhausted, "%d drains are in progress, %d of them of this peer; "+
			"at most %d and %d are allowed: try again", s.drains, o.drains, maxOwnDrains, maxPeerDrains)
	}
	s.drains++
	o.drains++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drains--
		o.drains--
		s.dropOwner(o)
	}, nil
}
