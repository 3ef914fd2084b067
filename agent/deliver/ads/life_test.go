package ads_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// streamLog is a handler that sends its streams to channels.
type streamLog struct {
	opened, closed chan access.Stream
	refuse         error
}

func newStreamLog() *streamLog {
	return &streamLog{opened: make(chan access.Stream, 2000), closed: make(chan access.Stream, 2000)}
}

func (l *streamLog) Opened(s access.Stream) error {
	if l.refuse != nil {
		return l.refuse
	}
	l.opened <- s
	return nil
}

func (l *streamLog) Closed(s access.Stream) { l.closed <- s }

// TestReady: an agent that has not loaded its state sends nothing, not even that a node is unknown.
func TestReady(t *testing.T) {
	log, changed := newStreamLog(), make(chan struct{}, 10)
	a := startAgent(t,
		options{Handler: log, UnknownGrace: time.Nanosecond, Changed: func() { changed <- struct{}{} }})
	c := a.delta("default.web")
	c.subscribe(lds)
	d := a.sotw(nodeOf("default.web"))
	d.ask(lds)
	<-log.opened
	<-log.opened
	<-changed
	if p := a.status("default.web"); p.State != api.StateWaiting || p.InSync {
		t.Errorf("state %q", p.State)
	}
	a.push(config("LDS:l=old"))
	a.push(config("LDS:l=1"))
	a.Ready()
	c.wantAck("LDS l=1")
	d.wantAck("LDS 1")
	if p := a.status("default.web"); p.State != api.StateServing {
		t.Errorf("state %q", p.State)
	}
}

func TestUnknownNode(t *testing.T) {
	log := newStreamLog()
	a := startAgent(t, options{Handler: log, UnknownGrace: 50 * time.Millisecond})
	a.Ready()
	c := a.delta("prod.web.7")
	c.subscribe(lds)
	a.wait(func() bool { return len(a.Connected()) == 1 })
	a.give(a.Connected()[0], nil)
	c.end(codes.NotFound, `"prod.web.7"`, `named "web.7"`, `mesh "prod"`, "apply", "node metadata")
	<-log.opened
	if s := <-log.closed; s.Key.ID != "prod.web.7" || !s.Delta || !s.Peer.Local || s.Peer.PID == 0 {
		t.Errorf("closed: %+v", s)
	}
	a.wait(func() bool { return len(a.Connected()) == 0 })
	if p := a.status("prod.web.7"); p.State != api.StateDisconnected || p.Mesh != "prod" || p.Name != "web.7" {
		t.Errorf("status: %+v", p)
	}
}

// TestLateNode: a node that becomes known is served at once, and its grace period ends.
func TestLateNode(t *testing.T) {
	log := newStreamLog()
	a := startAgent(t, options{Handler: log})
	a.Ready()
	c := a.delta("default.web")
	c.subscribe(cds)
	c.subscribe(lds)
	<-log.opened
	a.wait(func() bool { return slices.Contains(a.Connected(), web) })
	if p := a.status("default.web"); p.State != api.StateUnknown {
		t.Errorf("state %q", p.State)
	}
	a.push(nil)
	a.push(config("CDS:a=1", "LDS:l=1"))
	c.wantAck("CDS a=1")
	c.wantAck("LDS l=1")
}

// TestNodeVanishes: a client whose Dataplane is deleted retains its resources until the server
// answers it.
func TestNodeVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{UnknownGrace: 10 * time.Second})
		c, got, end := m.connect()
		m.pass(config("LDS:l=1"))
		c.ack(one(t, got, "LDS l=1"))
		m.pass(nil)
		if p := m.Status()[0]; p.State != api.StateUnknown {
			t.Errorf("state %q", p.State)
		}
		time.Sleep(9 * time.Second)
		nothing(t, got, "within its grace period")
		m.pass(config("LDS:l=2"))
		c.ack(one(t, got, "LDS l=2"))
		time.Sleep(time.Minute)
		m.pass(nil)
		time.Sleep(9 * time.Second)
		if p := m.Status()[0]; p.State != api.StateUnknown {
			t.Errorf("state %q", p.State)
		}
		nothing(t, got, "within its second grace period")
		if err := <-end; status.Code(err) != codes.NotFound {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestBadNode(t *testing.T) {
	a := serving(t, config())
	for id, words := range map[string][]string{
		"": {"<mesh>.<name"}, "web": {`"web"`, "<mesh>.<name"}, ".web": {"<mesh>.<name"}, "default.": {"<mesh>.<name"},
		"default.a b": {"' '"}, "default.\u202e": {`\u202e`},
		"default." + strings.Repeat("x", 400): {"408 bytes", "at most 317"},
	} {
		c := a.delta(id)
		c.subscribe(lds)
		c.end(codes.InvalidArgument, words...)
	}
	c := a.delta("default.web")
	c.node = nil
	c.subscribe(lds)
	c.end(codes.InvalidArgument, "node id")
	if got := a.Connected(); len(got) != 0 {
		t.Errorf("connected: %v", got)
	}

	// A later request may repeat the node but not change it.
	c = a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS")
	c.node = nodeOf("default.web")
	c.subscribe(rds, "x")
	c.wantAck("RDS -x")
	c.node = nodeOf("default.other")
	c.subscribe(rds, "y")
	c.end(codes.InvalidArgument, `"default.web"`, `"default.other"`)
	s := a.sotw(nodeOf("default.web"))
	s.ask(lds)
	s.wantAck("LDS")
	s.node = nodeOf("default.other")
	s.ask(rds)
	wantEnd(t, func() error { _, err := s.str.Recv(); return err }, codes.InvalidArgument)
}

func TestRefused(t *testing.T) {
	log := newStreamLog()
	log.refuse = status.Error(codes.FailedPrecondition, "another owns it")
	a := startAgent(t,
		options{Handler: log, Changed: func() { t.Error("Changed for a stream that was refused") }})
	a.Ready()
	c := a.delta("default.web")
	c.subscribe(lds)
	c.end(codes.FailedPrecondition, "another owns it")
	if len(a.Connected()) != 0 || len(a.Status()) != 0 || len(log.closed) != 0 {
		t.Errorf("connected %v, status %v, %d closed", a.Connected(), a.Status(), len(log.closed))
	}
}

// deltaFrom connects from a loopback address and requests the listeners of a node.
func deltaFrom(t *testing.T, ip string, to net.Addr, id string) *deltaClient {
	conn := dialTo(t, "passthrough:///"+to.String(), withDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext(ctx, "tcp", addr)
	}))
	c := deltaOn(t, conn, nodeOf(id))
	c.subscribe(lds)
	return c
}

// TestImpersonation: two loopback addresses represent two peers.
func TestImpersonation(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := newStreamLog()
	a := startAgent(t, options{Handler: log}, tcp)
	a.Ready()
	from := func(ip string) *deltaClient { return deltaFrom(t, ip, tcp.Addr(), "default.web") }
	owner := from("127.0.0.1")
	<-log.opened
	a.push(config("LDS:l=1"))
	owner.wantAck("LDS l=1")
	owner.subscribe(rds, "x") // root receives no response for it
	owner.wantAck("RDS -x")
	from("127.0.0.9").end(codes.PermissionDenied, "default.web", "10.0.0.1", "10.0.0.9")
	second := from("127.0.0.1") // as after a hot restart
	second.wantAck("LDS l=1")

	local := a.delta("default.web")
	local.subscribe(lds)
	if root := isRoot(); !root {
		local.end(codes.PermissionDenied, "default.web", "10.0.0.1", "uid")
		return
	}
	owner.end(codes.PermissionDenied, "taken over", "uid 0") // root takes over …
	second.end(codes.PermissionDenied, "taken over")
	a.push(config("LDS:l=1")) // as a reconciler does for a new proxy
	local.wantAck("LDS l=1")
	from("127.0.0.1").end(codes.PermissionDenied, "in use by uid 0") // … and cannot be displaced
	a.push(config("LDS:l=2"))
	local.wantAck("LDS l=2")
}

func TestStatusAndStop(t *testing.T) {
	log := newStreamLog()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := startAgent(t, options{Handler: log, Now: func() time.Time { return now }})
	a.Ready()
	c := a.delta("default.web")
	c.subscribe(lds)
	<-log.opened
	a.push(config("LDS:l=1"))
	c.wantAck("LDS l=1")
	for range 100 { // more than the ring buffer holds
		c.subscribe(rds, "x")
		c.wantAck("RDS -x")
	}
	p := a.status("default.web")
	if p.State != api.StateServing || p.Streams != 1 || !p.Delta || !p.ConnectedAt.Equal(now) || len(p.Events) != 64 {
		t.Errorf("status: %+v", p)
	}
	if last := p.Events[len(p.Events)-2:]; last[1].TypeURL != rds ||
		!slices.ContainsFunc(last, func(e api.Event) bool {
			return e.Kind == "sent" && e.Count == 1 && e.Resources[0] == "x"
		}) {
		t.Errorf("last events: %+v", last)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"nodeID":"default.web"`, `"state":"serving"`, `"peer":{"local":true,"uid":`, `"nack":null`, `"held":[]`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON lacks %s: %s", want, data)
		}
	}
	a.stop()
	c.end(codes.Unavailable, "stopping")
	if s := <-log.closed; s.Key != web {
		t.Errorf("closed %v", s.Key)
	}
	if got := a.Connected(); len(got) != 0 {
		t.Errorf("connected after the end: %v", got)
	}
}

// TestGoneNodesBounded: the number of disconnected nodes in the status is limited, and nodes
// without a config are forgotten first.
func TestGoneNodesBounded(t *testing.T) {
	log := newStreamLog()
	a := startAgent(t, options{Handler: log})
	a.Ready()
	conn := a.dial()
	visit := func(id string, cfg *draft.Sealed) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c := &deltaClient{t: t, str: str, node: nodeOf(id)}
		c.subscribe(lds)
		s := <-log.opened
		if cfg != nil {
			a.give(s.Key, cfg)
			c.want("LDS l=1")
		}
		cancel()
		<-log.closed
	}
	visit("default.known", config("LDS:l=1"))
	for i := range 300 {
		visit("default.forged-"+string(rune('a'+i%26))+strings.Repeat("x", i/26), nil)
	}
	if n := len(a.Status()); n != 256 {
		t.Errorf("%d nodes remembered", n)
	}
	a.status("default.known")
}

// TestPublishForNobody: configs of nodes that are not connected are dropped.
func TestPublishForNobody(t *testing.T) {
	a := startAgent(t, options{})
	a.Ready()
	a.push(config("LDS:l=1"))
	if len(a.Status()) != 0 {
		t.Errorf("status of nobody: %v", a.Status())
	}
}

// TestConcurrent publishes, connects, and reads the status concurrently. The race detector and the
// leak check find the errors.
func TestConcurrent(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=1"))
	conn := a.dial()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err == nil && str.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf("default.web"), TypeUrl: cds}) == nil {
					if _, err := str.Recv(); err != nil {
						t.Errorf("recv: %v", err)
					}
				}
				cancel()
			}
		})
		wg.Go(func() {
			for k := range 50 {
				a.push(config("CDS:a="+string(rune('0'+k%10)), "CDS:b="+string(rune('0'+i)), "LDS:l=1"))
				a.Connected()
				a.Status()
			}
		})
	}
	wg.Wait()
}
