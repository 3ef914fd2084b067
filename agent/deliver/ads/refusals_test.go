package ads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// refusalsText returns a line for each refused client: node id, cause, and number of streams.
func refusalsText(a *agent) string {
	var out []string
	for _, r := range a.Refused().Streams {
		out = append(out, fmt.Sprintf("%s %s %d", r.NodeID, r.Cause, r.Count))
	}
	return strings.Join(out, ", ")
}

// TestRefusedClients checks the list of refused clients, and when a client leaves it.
func TestRefusedClients(t *testing.T) {
	var clock atomic.Int64
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time { return start.Add(time.Duration(clock.Load())) }
	var allowed atomic.Bool
	reg := prometheus.NewRegistry()
	authorize := func(_ *access.Peer, ref node.Ref) (access.Grant, error) {
		if ref.Name == "web" && !allowed.Load() {
			return access.Grant{}, errors.New("no item matches; run it as another user")
		}
		return access.Grant{}, nil
	}
	a := servingWith(t, config("LDS:l=1"), options{Now: now, Registry: reg, Authorize: authorize})
	refuse := func(id string, code codes.Code) {
		t.Helper()
		c := a.delta(id)
		c.subscribe(lds)
		c.end(code)
	}
	if got := a.Refused(); got.Streams == nil || len(got.Streams) != 0 {
		t.Errorf("at the start: %+v", got)
	}
	refuse("default.web", codes.PermissionDenied)
	clock.Add(int64(time.Second))
	refuse("default.web", codes.PermissionDenied)
	clock.Add(int64(time.Second))
	refuse("web", codes.InvalidArgument)
	if got := refusalsText(a); got != "web bad-node-id 1, default.web denied 2" {
		t.Errorf("refused: %s", got)
	}
	r := a.Refused().Streams[1]
	if !r.Since.Equal(start) || !r.Last.Equal(start.Add(time.Second)) || !strings.Contains(r.Reason, "another user") ||
		!strings.HasPrefix(r.User, "uid=") || !r.Peer.Local || r.Peer.PID == 0 {
		t.Errorf("%+v", r)
	}
	if n := sample(t, reg, "nearside_xds_refused_clients", "denied"); n != 1 {
		t.Errorf("%v clients in the metric", n)
	}

	// A stream that is accepted ends the refusals of the same process.
	allowed.Store(true)
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	if got := refusalsText(a); got != "" {
		t.Errorf("after a stream is accepted: %s", got)
	}

	// A refused client that does not try again is forgotten.
	refuse("web", codes.InvalidArgument)
	clock.Add(int64(3*time.Minute - 1))
	if got := refusalsText(a); got != "web bad-node-id 1" {
		t.Errorf("within 3 minutes: %s", got)
	}
	clock.Add(1)
	if got := refusalsText(a); got != "" {
		t.Errorf("after 3 minutes: %s", got)
	}
	if got := a.Refused(); got.Total != 4 {
		t.Errorf("%d refused streams, want 4", got.Total)
	}
}

// TestUnknownClient checks that a client with an unknown node id is listed between its streams, and
// until it has a config.
func TestUnknownClient(t *testing.T) {
	a := servingWith(t, nil, options{UnknownGrace: 50 * time.Millisecond})
	c := a.delta("default.web")
	c.subscribe(lds)
	c.end(codes.NotFound, "not known")
	if got := refusalsText(a); got != "default.web unknown 1" {
		t.Errorf("refused: %s", got)
	}
	c = a.delta("default.web")
	c.subscribe(lds)
	a.wait(func() bool { return len(a.Connected()) == 1 })
	if got := refusalsText(a); got != "default.web unknown 1" {
		t.Errorf("while it is connected: %s", got)
	}
	a.push(config("LDS:l=1"))
	c.wantAck("LDS l=1")
	if got := refusalsText(a); got != "" {
		t.Errorf("with a config: %s", got)
	}
}

// TestRefusedClientsAreBounded checks that a client with many node ids displaces only its own
// entries.
func TestRefusedClientsAreBounded(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, options{Authorize: func(*access.Peer, node.Ref) (access.Grant, error) {
		return access.Grant{}, errors.New("no")
	}}, tcp)
	a.Ready()
	c := a.delta("default.web")
	c.subscribe(lds)
	c.end(codes.PermissionDenied)
	for i := range 40 {
		deltaFrom(t, "127.0.0.9", tcp.Addr(), fmt.Sprintf("default.%d", i)).end(codes.PermissionDenied)
	}
	got := a.Refused()
	if len(got.Streams) != 17 || got.Left != 24 || got.Streams[0].NodeID != "default.39" ||
		got.Streams[16].NodeID != "default.web" {
		t.Errorf("%d clients, %d left, %s", len(got.Streams), got.Left, refusalsText(a))
	}
}

// TestReportedResources checks the status of a client that already has resources when its stream
// begins, as after a restart of the agent.
func TestReportedResources(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg := config("CDS:a=1", "CDS:b=1", "EDS:a=1", "LDS:l=1")
	clock := options{Now: func() time.Time { return now }}
	a := servingWith(t, cfg, clock)
	c := a.delta("default.web")
	c.resume(cds, versionsOf(cfg, cds), "*")
	c.resume(eds, versionsOf(cfg, eds), "a")
	old := config("LDS:l=0", "LDS:m=0")
	c.resume(lds, versionsOf(old, lds))
	c.wantAck("LDS l=1 -m")
	a.wait(func() bool { return len(a.Status()) == 1 && a.Status()[0].InSync })
	check := func(typ string, want api.TypeStatus) {
		t.Helper()
		got := typeStatus(t, a.status("default.web"), typ)
		got.Held = nil
		want.TypeURL = typ
		if want.SentVersion != "" {
			want.SentAt = now
		}
		want.AckedAt, want.ReportedAt = now, now
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:\n%+v, want\n%+v", shortType(typ), got, want)
		}
	}
	check(cds, api.TypeStatus{Resources: 2, AckedVersion: cfg.Versions[1], Reported: 2})
	check(eds, api.TypeStatus{Resources: 1, AckedVersion: cfg.Versions[2], Reported: 1})
	check(lds, api.TypeStatus{Resources: 1, SentVersion: cfg.Versions[3], AckedVersion: cfg.Versions[3], Reported: 2,
		Responses: 1, Acknowledged: 1})

	// The state-of-the-world protocol reports a version of all resources.
	a = servingWith(t, cfg, clock)
	s := a.sotw(nodeOf("default.web"))
	s.version[cds] = cfg.Versions[1]
	s.ask(cds)
	a.wait(func() bool { return len(a.Status()) == 1 && a.Status()[0].InSync })
	check(cds, api.TypeStatus{Resources: 2, AckedVersion: cfg.Versions[1], Reported: 2})
}

// TestAdmission checks that a client can ask whether it may be a proxy, without a stream and
// without a refusal, and that the answer considers the user of the node id.
func TestAdmission(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := servingWith(t, config("LDS:l=1"), options{Metadata: [][]string{{"kept"}}, Examine: func(st access.Stream,
		ref node.Ref) api.Admission {
		if st.Node.GetMetadata().GetFields()["other"] != nil {
			t.Error("the server decodes metadata that is not used")
		}
		return api.Admission{Allowed: ref.Name != "denied", Rule: st.Node.GetMetadata().GetFields()["kept"].GetStringValue()}
	}}, tcp)
	ask := func(conn *grpc.ClientConn, n *core.Node) (out api.Admission, err error) {
		answer := &wrapperspb.BytesValue{}
		err = conn.Invoke(deadline(t), "/"+api.AdmissionService+"/"+api.AdmissionMethod,
			&discovery.DeltaDiscoveryRequest{Node: n}, answer)
		if err == nil {
			err = json.Unmarshal(answer.GetValue(), &out)
		}
		return out, err
	}
	metadata, err := structpb.NewStruct(map[string]any{"kept": "k", "other": strings.Repeat("o", 1000)})
	if err != nil {
		t.Fatal(err)
	}
	local := a.dial()
	got, err := ask(local, &core.Node{Id: "default.web", Metadata: metadata})
	if err != nil || !got.Allowed || got.Rule != "k" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ask(local, &core.Node{Id: "default.denied"}); err != nil || got.Allowed {
		t.Errorf("denied: %+v %v", got, err)
	}
	metadata.Fields["other"] = structpb.NewStringValue(strings.Repeat("o", 300<<10))
	for _, n := range []*core.Node{{Id: "web"}, nil, {Id: "default.web", Metadata: metadata}} {
		if _, err := ask(local, n); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.40v: %v", n, err)
		}
	}
	if len(a.Connected()) != 0 || refusalsText(a) != "" || a.Refused().Total != 0 {
		t.Errorf("connected %v, refused %s", a.Connected(), refusalsText(a))
	}

	owner := deltaFrom(t, "127.0.0.1", tcp.Addr(), "default.web")
	owner.wantAck("LDS l=1")
	far := dialTo(t, "passthrough:///"+tcp.Addr().String(),
		withDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).DialContext(ctx, "tcp", addr)
		}))
	if got, err := ask(far, nodeOf("default.web")); err != nil || got.Allowed ||
		!strings.Contains(got.Reason, "in use by") {
		t.Errorf("another client has the node id: %+v %v", got, err)
	}
	owner.subscribe(rds, "r")
	owner.wantAck("RDS -r")

	without := startAgent(t, options{})
	if _, err := ask(without.dial(), nodeOf("default.web")); status.Code(err) != codes.Unimplemented {
		t.Errorf("without Examine: %v", err)
	}
}
