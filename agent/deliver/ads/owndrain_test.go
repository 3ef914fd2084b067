package ads_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestOwnDrain checks that a peer can drain only the dataplanes that it may be, and not those that
// another peer is now. Invalid requests are refused.
func TestOwnDrain(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var drained []string
	a := servingWith(t, config("LDS:l=1"), options{
		Authorize: func(_ *access.Peer, ref node.Ref) (access.Grant, error) {
			if ref.Name == "foreign" {
				return access.Grant{}, errors.New("the proxy of another user")
			}
			return access.Grant{Bring: true}, nil
		},
		Drain: func(_ context.Context, ref node.Ref, p *access.Peer, q *api.DrainRequest) (*api.Drain, *api.Error) {
			if ref.Name == "missing" {
				return nil, api.NewNotFound("it does not exist")
			}
			drained = append(drained, ref.Name+" "+q.Timeout+" "+p.Owner())
			return &api.Drain{State: api.DrainDraining}, nil
		}}, tcp)
	call := func(conn *grpc.ClientConn, text string) (out api.Drain, err error) {
		answer := &wrapperspb.BytesValue{}
		err = conn.Invoke(deadline(t), "/"+api.DrainService+"/"+api.DrainMethod, wrapperspb.Bytes([]byte(text)), answer)
		if err == nil {
			err = json.Unmarshal(answer.GetValue(), &out)
		}
		return out, err
	}
	local := a.dial()
	got, err := call(local, `{"nodeID": "default.web", "timeout": "3s"}`)
	if err != nil || got.State != api.DrainDraining || len(drained) != 1 || !strings.HasPrefix(drained[0], "web 3s ") {
		t.Errorf("%+v %v %v", got, err, drained)
	}
	for text, want := range map[string]codes.Code{
		`{"nodeID": "default.foreign"}`:         codes.PermissionDenied,
		`{"nodeID": "default.missing"}`:         codes.NotFound,
		`{"nodeID": "web"}`:                     codes.InvalidArgument,
		`{"nodeID": ".egress.out"}`:             codes.InvalidArgument,
		`{"nodeID": "default.web", "other": 1}`: codes.InvalidArgument,
		`{`:                                     codes.InvalidArgument,
		"":                                      codes.InvalidArgument,
		`{"nodeID": "` + strings.Repeat("x", 5000): codes.InvalidArgument,
	} {
		if _, err := call(local, text); status.Code(err) != want {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}

	owner := deltaFrom(t, "127.0.0.1", tcp.Addr(), "default.api")
	owner.wantAck("LDS l=1")
	far := dialTo(t, "passthrough:///"+tcp.Addr().String(),
		withDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).DialContext(ctx, "tcp", addr)
		}))
	if _, err := call(far, `{"nodeID": "default.api"}`); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "in use by") {
		t.Errorf("another peer has the node id: %v", err)
	}
	if _, err := call(far, `{"nodeID": "default.web"}`); err != nil {
		t.Errorf("the node id is free: %v", err)
	}
	if len(drained) != 2 {
		t.Errorf("drained %q", drained)
	}
	without := startAgent(t, options{})
	if _, err := call(without.dial(), `{"nodeID": "default.web"}`); status.Code(err) != codes.Unimplemented {
		t.Errorf("without Drain: %v", err)
	}
}
