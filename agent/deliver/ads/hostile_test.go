package ads_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func withDialer(f func(context.Context, string) (net.Conn, error)) grpc.DialOption {
	return grpc.WithContextDialer(f)
}

func isRoot() bool { return os.Getuid() == 0 }

// TestClientThatNeverReads: such a client delays neither Publish nor other clients, and its stream
// is closed.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newStreamLog()
		m := startInMemory(t, options{Handler: log, AckTimeout: time.Minute})
		stuck := deltaOn(t, m.dial(), nodeOf("default.stuck"))
		stuck.subscribe(lds)
		key := (<-log.opened).Key
		c, got, end := m.connect()
		big := strings.Repeat("x", 1<<20) // larger than the client's flow-control windows
		for i := range 50 {
			m.Publish(map[node.Key]rollout.Config{
				key: {Sealed: config("LDS:l=" + fmt.Sprint(i) + big), LastStream: everyStream}})
			m.pass(config(fmt.Sprintf("LDS:l=%d", i)))
			c.ack(one(t, got, fmt.Sprintf("LDS l=%d", i)))
			time.Sleep(time.Second) // less than a minute for all
		}
		if s := <-log.closed; s.Key != key {
			t.Fatalf("closed %v, want the client that is stuck", s.Key)
		}
		stuck.end(codes.DeadlineExceeded, "neither acknowledged")
		m.pass(config("LDS:l=end"))
		c.ack(one(t, got, "LDS l=end"))
		leave(c, end)
	})
}

// TestSilentStream: a stream without a first request is closed.
func TestSilentStream(t *testing.T) {
	a := startAgent(t, options{FirstRequestTimeout: 20 * time.Millisecond})
	a.delta("default.web").end(codes.DeadlineExceeded, "no request within")
}

func TestManyStreams(t *testing.T) {
	const n = 1000
	a := serving(t, config("CDS:a=1", "LDS:l=1"))
	var conns []*grpc.ClientConn
	for range n / 100 { // the maximum number of streams per connection
		conns = append(conns, a.dial())
	}
	var wg sync.WaitGroup
	clients := make([]*deltaClient, n)
	for i := range n {
		wg.Go(func() {
			c := deltaOn(t, conns[i%len(conns)], nodeOf(fmt.Sprintf("default.p%d", i)))
			c.subscribe(cds)
			c.subscribe(lds)
			for _, want := range []string{"CDS a=1", "LDS l=1"} {
				resp, err := c.str.Recv()
				if err != nil || deltaLine(resp) != want {
					t.Errorf("client %d: %v %v, want %s", i, resp, err, want)
					return
				}
				c.ack(resp)
			}
			clients[i] = c
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if got := len(a.Connected()); got != n {
		t.Fatalf("%d connected", got)
	}
	all := map[node.Key]rollout.Config{}
	next := config("CDS:a=1", "LDS:l=2")
	for _, key := range a.Connected() {
		all[key] = rollout.Config{Sealed: next, Revision: 2, LastStream: everyStream}
	}
	a.Publish(all)
	for _, c := range clients {
		c.want("LDS l=2")
	}
}

func TestTooManyStreams(t *testing.T) {
	log := newStreamLog()
	a := startAgent(t, options{Handler: log, MaxStreams: 2})
	a.Ready()
	for i := range 2 {
		a.delta(fmt.Sprintf("default.p%d", i)).subscribe(lds)
		<-log.opened
	}
	c := a.delta("default.p3")
	_ = c.str.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf("default.p3"), TypeUrl: lds})
	c.end(codes.ResourceExhausted, "2 streams")
}

// TestPeerQuota: a peer that has reached its stream limit does not lock out other peers, and can
// open a new stream for each one that it closes.
func TestPeerQuota(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := newStreamLog()
	a := startAgent(t, options{Handler: log, MaxStreams: 4, MaxPeerStreams: 2}, tcp)
	a.Ready()
	greedy := func(i int) *deltaClient {
		return deltaFrom(t, "127.0.0.1", tcp.Addr(), fmt.Sprintf("default.p%d", i))
	}
	first := greedy(0)
	<-log.opened
	greedy(1)
	<-log.opened
	greedy(2).end(codes.ResourceExhausted, "address 10.0.0.1 has 2 streams")
	deltaFrom(t, "127.0.0.9", tcp.Addr(), "default.other")
	<-log.opened
	if err := first.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-log.closed
	for admitted := false; !admitted; { // the slot is free only after the stream has ended completely
		c := greedy(3)
		refused := make(chan error, 1)
		go func() {
			_, err := c.str.Recv()
			refused <- err
		}()
		select {
		case <-log.opened:
			admitted = true
		case err := <-refused:
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
	}
}

func TestGarbage(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	for _, garbage := range []string{
		"GET / HTTP/1.1\r\n\r\n", "\x00\xff\x16\x03\x01", strings.Repeat("A", 1<<16),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100),
	} {
		conn, err := net.Dial("unix", a.path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage)
		_ = conn.(*net.UnixConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("read: %v", err)
		}
		conn.Close()
	}
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
}

func TestHugeRequest(t *testing.T) {
	a := servingWith(t, config("LDS:l=1"), options{RecvBytes: 1 << 10})
	c := a.delta("default.web")
	c.subscribe(lds, strings.Repeat("x", 2<<10))
	c.end(codes.ResourceExhausted)
	d := a.delta("default.web")
	d.subscribe(lds)
	d.wantAck("LDS l=1")
}

func TestTypesNotServed(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "x") // never answered
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	for i := range 40 {
		if c.str.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprint("t", i)}) != nil {
			break
		}
	}
	c.end(codes.InvalidArgument, "not served")
	d := a.sotw(nodeOf("default.web"))
	d.send(&discoveryv3.DiscoveryRequest{TypeUrl: "some", ResourceNames: []string{"x"}})
	d.ask(lds)
	d.wantAck("LDS 1")
	d.send(&discoveryv3.DiscoveryRequest{})
	wantEnd(t, func() error { _, err := d.str.Recv(); return err }, codes.InvalidArgument, "type URL")
}

// TestRemovalIsBounded: a listener that stays rejected does not retain old clusters forever.
func TestRemovalIsBounded(t *testing.T) {
	a := servingWith(t, config("CDS:a=1", "CDS:old=1", "LDS:l=1"), options{RemovalWait: 50 * time.Millisecond})
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS a=1 old=1")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	a.push(config("CDS:a=1", "LDS:l=2"))
	c.nack(c.want("LDS l=2"), "no")
	c.wantAck("CDS -old")
}

// TestServeFails: a failing network listener stops the server.
func TestServeFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := ads.NewServer(rollout.New(rollout.Options{}), ads.ServerOptions{}).Serve(t.Context(), l); err == nil ||
		!strings.Contains(err.Error(), "accept") {
		t.Errorf("got %v", err)
	}
}
