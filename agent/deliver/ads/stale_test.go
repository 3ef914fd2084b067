package ads_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// inMemory is a server on an in-memory network, so that synctest controls the time. It publishes
// only on calls of the test.
type inMemory struct {
	*ads.Server
	*rollout.Proxies
	t    *testing.T
	l    *bufconn.Listener
	conn *grpc.ClientConn
}

func startInMemory(t *testing.T, o options) *inMemory {
	t.Helper()
	p, server := o.servers()
	m := &inMemory{Server: server, Proxies: p, t: t, l: bufconn.Listen(1 << 20)}
	m.Ready()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Serve(ctx, m.l) }()
	m.conn = m.dial()
	t.Cleanup(func() {
		m.conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return m
}

func (m *inMemory) dial() *grpc.ClientConn {
	m.t.Helper()
	return dialTo(m.t, "passthrough:///agent", withDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return m.l.DialContext(ctx)
	}))
}

// pass publishes a config for web like a pass that includes all current streams.
func (m *inMemory) pass(cfg *draft.Sealed) { m.passFrom(m.LastStream(), cfg) }

func (m *inMemory) passFrom(last uint64, cfg *draft.Sealed) {
	m.Publish(map[node.Key]rollout.Config{web: {Sealed: cfg, LastStream: last}})
	synctest.Wait()
}

// connect opens a stream of web that requests listeners. got receives the responses, and end the
// error that ends the stream.
func (m *inMemory) connect() (c *deltaClient, got chan *discoveryv3.DeltaDiscoveryResponse, end chan error) {
	m.t.Helper()
	return m.resume(nil)
}

// resume is connect for a client that reports the listeners that it has.
func (m *inMemory) resume(has map[string]string) (c *deltaClient, got chan *discoveryv3.DeltaDiscoveryResponse,
	end chan error) {
	m.t.Helper()
	str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(m.conn).DeltaAggregatedResources(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	c = &deltaClient{t: m.t, str: str, node: nodeOf("default.web")}
	c.resume(lds, has)
	got, end = make(chan *discoveryv3.DeltaDiscoveryResponse, 10), make(chan error, 1)
	go func() {
		for {
			resp, err := str.Recv()
			if err != nil {
				end <- err
				return
			}
			got <- resp
		}
	}()
	synctest.Wait()
	return c, got, end
}

// leave ends a stream.
func leave(c *deltaClient, end chan error) {
	_ = c.str.CloseSend()
	<-end
	synctest.Wait()
}

func one(t *testing.T, got chan *discoveryv3.DeltaDiscoveryResponse, want string) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	synctest.Wait()
	select {
	case resp := <-got:
		if line := deltaLine(resp); line != want {
			t.Fatalf("got %s, want %s", line, want)
		}
		return resp
	default:
		t.Fatalf("nothing was sent, want %s", want)
		return nil
	}
}

func nothing(t *testing.T, got chan *discoveryv3.DeltaDiscoveryResponse, when string) {
	t.Helper()
	synctest.Wait()
	select {
	case resp := <-got:
		t.Fatalf("%s it was sent %s", when, deltaLine(resp))
	default:
	}
}

// TestComesBackToNothingOld: a client that reconnects within seconds receives nothing from the
// previous config. Meanwhile its Dataplane may have been deleted, or a permission in that config
// removed.
func TestComesBackToNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		c, got, end := m.connect()
		m.pass(config("LDS:l=secret"))
		c.ack(one(t, got, "LDS l=secret"))
		leave(c, end)

		_, got, end = m.connect()
		time.Sleep(time.Minute)
		nothing(t, got, "before a pass has looked")
		m.pass(nil)
		nothing(t, got, "once it is unknown")
		time.Sleep(10 * time.Second)
		if err := <-end; status.Code(err) != codes.NotFound {
			t.Fatalf("ended with %v", err)
		}
		synctest.Wait()

		c, got, end = m.connect()
		m.pass(config("LDS:l=2"))
		c.ack(one(t, got, "LDS l=2"))
		leave(c, end)
	})
}

// TestPassThatBeganBefore: a pass that began before a stream was admitted serves only the node's
// older streams, whether the new stream is the node's first or second.
func TestPassThatBeganBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		before := m.LastStream()
		c, first, end1 := m.connect()
		m.passFrom(before, config("LDS:l=old"))
		nothing(t, first, "by a pass that began before it came")
		m.pass(config("LDS:l=1"))
		c.ack(one(t, first, "LDS l=1"))

		before = m.LastStream()
		d, second, end2 := m.connect()
		nothing(t, second, "of what the other stream of the node has")
		m.passFrom(before, config("LDS:l=2"))
		c.ack(one(t, first, "LDS l=2"))
		nothing(t, second, "by a pass that began before it came")
		m.pass(config("LDS:l=2")) // the same config
		one(t, second, "LDS l=2")
		nothing(t, first, "without a change")
		leave(c, end1)
		leave(d, end2)
	})
}

// TestSlowPassIsNotNotFound: a client of a known node never receives NotFound, however long the
// next pass takes. That also holds for a client that was refused or received NotFound before.
func TestSlowPassIsNotNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		before := m.LastStream()
		for range 2 {
			c, got, end := m.connect()
			m.passFrom(before, nil) // a pass that began before the Dataplane was applied
			time.Sleep(time.Hour)
			select {
			case err := <-end:
				t.Fatalf("before a pass has looked it ended with %v", err)
			default:
			}
			m.pass(config("LDS:l=1"))
			c.ack(one(t, got, "LDS l=1"))
			leave(c, end)
			before = m.LastStream()
		}
		_, _, end := m.connect()
		m.pass(nil)
		if err := <-end; status.Code(err) != codes.NotFound {
			t.Fatalf("ended with %v", err)
		}
	})
}

// TestStoredIsNotNotFound: a node that was unknown in the last pass and has been stored since does
// not receive NotFound while the next pass runs. It does if that pass does not know the node
// either.
func TestStoredIsNotNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored atomic.Uint64
		m := startInMemory(t, options{Stored: func(ref node.Ref) uint64 {
			if ref.Name != "web" {
				t.Errorf("it asks for %+v", ref)
			}
			return stored.Load()
		}})
		c, got, end := m.connect()
		m.pass(nil) // of revision 0
		stored.Store(1)
		time.Sleep(time.Hour)
		select {
		case err := <-end:
			t.Fatalf("before a pass has looked it ended with %v", err)
		default:
		}
		m.pass(config("LDS:l=1"))
		c.ack(one(t, got, "LDS l=1"))
		leave(c, end)
		_, _, end = m.connect()
		m.Publish(map[node.Key]rollout.Config{web: {Revision: 1, LastStream: m.LastStream()}})
		if err := <-end; status.Code(err) != codes.NotFound {
			t.Fatalf("ended with %v", err)
		}
	})
}

// TestDeletedWhileConnected: a client whose Dataplane is deleted retains its resources, and its
// later requests are not answered from the previous config.
func TestDeletedWhileConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		c, got, end := m.connect()
		m.pass(config("LDS:l=1", "RDS:r=1"))
		c.ack(one(t, got, "LDS l=1"))
		m.pass(nil)
		c.subscribe(rds, "r")
		nothing(t, got, "after its Dataplane was deleted")
		if err := <-end; status.Code(err) != codes.NotFound {
			t.Fatalf("ended with %v", err)
		}
		nothing(t, got, "before the end")
	})
}

// TestRejectedIsRemembered: a client that reconnects does not receive a resource that it rejected,
// until the missing dependency of that resource arrives.
func TestRejectedIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		c, got, end := m.connect()
		m.pass(config("LDS:l=1"))
		c.ack(one(t, got, "LDS l=1"))
		m.pass(config("LDS:l=l.wanted"))
		c.nack(one(t, got, "LDS l=l.wanted"), "l: unknown cluster wanted")
		leave(c, end)
		c, got, end = m.connect()
		m.pass(config("LDS:l=l.wanted"))
		c.ack(one(t, got, "LDS l=1"))
		leave(c, end)
		c, got, end = m.connect()
		m.pass(config("CDS:wanted=1", "LDS:l=l.wanted"))
		one(t, got, "LDS l=l.wanted")
		leave(c, end)
	})
}

// TestChangedForEveryStream: each admitted stream requests a pass, since no pass serves streams
// that were admitted after its start.
func TestChangedForEveryStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 10)
		m := startInMemory(t, options{Changed: func() { changed <- struct{}{} }})
		c, _, end1 := m.connect()
		d, _, end2 := m.connect()
		if n := len(changed); n != 2 || !slices.Contains(m.Connected(), web) || m.LastStream() != 2 {
			t.Errorf("a pass is asked for %d times, the last stream is %d", n, m.LastStream())
		}
		leave(c, end1)
		leave(d, end2)
	})
}

// TestUnserved: a node counts as waiting from the admission of a stream until a pass has looked it
// up, even if the pass does not find the node. The waiting time is measured.
func TestUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := startInMemory(t, options{Registry: reg})
		want := func(what string, nodes int, waits bool) {
			t.Helper()
			if n, since := m.Unserved(); n != nodes || (n > 0) == since.IsZero() {
				t.Errorf("%s: %d nodes since %s, want %d", what, n, since, nodes)
			}
			if _, is := m.Waiting()[web]; is != waits {
				t.Errorf("%s: it waits %v, want %v", what, is, waits)
			}
		}
		want("before it comes", 0, false)
		began := time.Now()
		c, got, end := m.connect()
		time.Sleep(3 * time.Second)
		want("before anybody has looked", 1, true)
		if since := m.Waiting()[web]; !since.Equal(began) {
			t.Errorf("it waits since %s, want %s", since, began)
		}
		m.pass(nil)
		want("as one that is not known", 0, true)
		m.pass(config("LDS:l=1"))
		want("served", 0, false)
		c.ack(one(t, got, "LDS l=1"))
		d, _, end2 := m.connect()
		want("with another stream", 1, true)
		time.Sleep(2 * time.Second)
		m.pass(config("LDS:l=1"))
		want("with another stream, served", 0, false)
		leave(c, end)
		leave(d, end2)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "nearside_xds_wait_duration_seconds" &&
				(h.GetSampleCount() != 1 || h.GetSampleSum() != 2) {
				t.Errorf("%d waits of %v s together, want one of 2 s", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	})
}
