package ads_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// encodedCodec sends requests that are already encoded, so that the hostile client of a test does
// not allocate memory for them.
type encodedCodec struct{ encoding.CodecV2 }

func (c encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// hostileRequest returns a request of the maximum size, filled with names.
func hostileRequest(t *testing.T, id string, bytes int) []byte {
	t.Helper()
	req := &discoveryv3.DeltaDiscoveryRequest{Node: nodeOf(id), TypeUrl: eds}
	for i := range bytes / 70 {
		req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fmt.Sprintf("%064d", i))
	}
	raw, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// TestHostilePeer has two peers open a thousand streams each, with different ids and the largest
// request. The memory that this takes is bounded, other clients are served meanwhile, and all of it
// is freed when the peers disconnect.
func TestHostilePeer(t *testing.T) {
	const (
		requests = 8 << 20
		others   = 50
	)
	kept := int64(64 << 20)
	if testing.Short() {
		kept = 16 << 20
	}
	// Not counted: a request is copied while it is decoded, and each stream has goroutines and a
	// window.
	bound := 2 * (kept + 3*requests + 1000*(96<<10))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	a := servingWith(t, config("LDS:l=0"),
		options{Registry: reg, MaxPeerBytes: kept, MaxPeerRequests: requests, RecvBytes: 1 << 20}, tcp)
	clients := make([]*deltaClient, others)
	keys := make([]node.Key, others)
	for i := range clients {
		clients[i] = a.delta(fmt.Sprintf("default.p%d", i))
		clients[i].subscribe(lds)
		clients[i].wantAck("LDS l=0")
		keys[i] = node.Key{ID: fmt.Sprintf("default.p%d", i), Flavor: node.FlavorEnvoy}
	}
	before := heap()

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var hostile sync.WaitGroup
	var opened, refused atomic.Int64
	full := make(chan struct{})
	// attack opens a hundred streams on one connection from an address. A patient peer waits for
	// the result of each stream, the other one sends everything at once.
	attack := func(from string, i int, patient bool) {
		conn := dialTo(t, "passthrough:///"+tcp.Addr().String(),
			withDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				return d.DialContext(ctx, "tcp", addr)
			}), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(encodedCodec{encoding.GetCodecV2("proto")})))
		raw := hostileRequest(t, fmt.Sprintf("default.%s-%d", from, i), 1<<20-1<<10)
		hostile.Go(func() {
			for range 100 {
				str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err != nil {
					return
				}
				opened.Add(1)
				_ = str.SendMsg(raw)
				answered := make(chan struct{})
				hostile.Go(func() {
					_, err := str.Recv()
					close(answered)
					for err == nil {
						_, err = str.Recv()
					}
					if status.Code(err) == codes.ResourceExhausted && refused.Add(1) == 100 {
						close(full)
					}
				})
				if patient {
					<-answered
				}
			}
		})
	}
	for i := range 10 {
		attack("127.0.0.8", i, false)
		attack("127.0.0.9", i, true)
	}

	most := int64(0)
	push := func(i int) {
		cfg, all := config(fmt.Sprintf("LDS:l=%d", i)), map[node.Key]rollout.Config{}
		for _, key := range keys {
			all[key] = rollout.Config{Sealed: cfg, Revision: uint64(i), LastStream: everyStream}
		}
		began := time.Now()
		a.Publish(all)
		for _, c := range clients {
			c.wantAck(fmt.Sprintf("LDS l=%d", i))
		}
		if elapsed := time.Since(began); elapsed > 20*time.Second {
			t.Errorf("delivery to %d others took %s", others, elapsed)
		}
		most = max(most, heap()-before)
	}
	i := 0
	for done := false; !done; {
		i++
		push(i)
		select {
		case <-full:
			done = true
		case <-t.Context().Done():
			t.Fatal("the peer is never refused")
		default:
		}
	}
	for range 10 {
		i++
		push(i)
	}
	_, bytes := a.Kept()
	t.Logf("%d streams opened, %d refused; %d MiB of names are counted, the heap grew by %d MiB at most, "+
		"the bound is %d MiB; %d pushes", opened.Load(), refused.Load(), bytes>>20, most>>20, bound>>20, i)
	if most > bound {
		t.Errorf("the heap grew by %d MiB, more than %d MiB", most>>20, bound>>20)
	}
	if bytes > 2*kept {
		t.Errorf("%d bytes are counted, more than %d", bytes, 2*kept)
	}
	leave()
	hostile.Wait()
	a.wait(func() bool { _, bytes := a.Kept(); return bytes == 0 && len(a.Connected()) == others })
}

// rawConn is a client that writes HTTP/2 frames itself, so that it can leave a request unfinished.
type rawConn struct {
	net.Conn
	stream uint32
}

func (m *inMemory) raw() *rawConn {
	m.t.Helper()
	c, err := m.l.DialContext(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	go func() { _, _ = io.Copy(io.Discard, c) }()
	r := &rawConn{Conn: c, stream: 1}
	r.write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	r.frame(4, 0, 0, nil)
	return r
}

func (r *rawConn) write(p []byte) { _, _ = r.Write(p) }

func (r *rawConn) frame(kind, flags byte, stream uint32, payload []byte) {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	r.write(append(binary.BigEndian.AppendUint32(head, stream), payload...))
}

// open opens a stream and returns its id.
func (r *rawConn) open() uint32 {
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	path := "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	r.frame(1, 4, r.stream, slices.Concat([]byte{0x83, 0x86, 0x44}, text(path), []byte{0x41}, text("agent"), []byte{0x5f},
		text("application/grpc"), []byte{0x40}, text("te"), text("trailers")))
	r.stream += 2
	return r.stream - 2
}

// begin opens a stream and sends the beginning of a request of the given size.
func (r *rawConn) begin(size int) {
	r.frame(0, 0, r.open(), append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, 1000)...))
	synctest.Wait()
}

// TestUnfinishedRequests: a peer that begins large requests and does not complete them gets no more
// than its share, and its small requests are still accepted. A stalled connection is closed, and
// then the peer's large requests are accepted.
func TestUnfinishedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := startInMemory(t,
			options{Registry: reg, RecvBytes: 1 << 20, MaxPeerRequests: 2 << 20, FirstRequestTimeout: time.Hour})
		cut := func(reason string) float64 { return closedFor(t, reg, reason) }
		stuck := m.raw()
		stuck.begin(1 << 20)
		stuck.begin(1 << 20) // uses the whole share
		stuck.begin(60 << 10)
		c, got, end := m.connect()
		m.pass(config("LDS:l=1"))
		c.ack(one(t, got, "LDS l=1"))

		large := func() error {
			str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(m.dial()).DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := str.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf("default.web"), TypeUrl: lds,
				ResourceNamesSubscribe: []string{strings.Repeat("x", 200<<10)}}); err != nil {
				t.Fatal(err)
			}
			_, err = str.Recv()
			return err
		}
		failed := make(chan error, 1)
		began := time.Now()
		go func() { failed <- large() }()
		if err := <-failed; status.Code(err) != codes.Unavailable || time.Since(began) != 10*time.Second {
			t.Errorf("after %s a large request beside them ended with %v", time.Since(began), err)
		}
		if n := cut("too-many-bytes"); n != 1 {
			t.Errorf("%v connections are counted as closed for their bytes", n)
		}
		m.pass(config("LDS:l=2"))
		c.ack(one(t, got, "LDS l=2"))
		time.Sleep(21 * time.Second)
		if n := cut("too-slow"); n != 1 {
			t.Errorf("%v connections are counted as closed for being slow", n)
		}
		go func() { failed <- large() }()
		synctest.Wait()
		m.pass(config("LDS:l=2"))
		if err := <-failed; err != nil {
			t.Errorf("once they have gone a large request ends with %v", err)
		}
		leave(c, end)
	})
}

// closedFor returns how many streams and connections were closed for a reason.
func closedFor(t *testing.T, reg *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "nearside_xds_streams_refused_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestSilentStreams: streams without a request have a separate limit. A stream no longer counts
// against it after its first request.
func TestSilentStreams(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := servingWith(t, config("LDS:l=1"), options{MaxPeerSilent: 2}, tcp)
	conn := dialTo(t, "passthrough:///"+tcp.Addr().String())
	first := deltaOn(t, conn, nodeOf("default.web"))
	deltaOn(t, conn, nodeOf("default.web"))
	a.wait(func() bool { return a.Silent() == 2 })
	deltaOn(t, conn, nodeOf("default.web")).end(codes.ResourceExhausted,
		"address 10.0.0.1 has 2 streams open without a request")
	first.subscribe(lds)
	first.wantAck("LDS l=1")
	third := deltaOn(t, conn, nodeOf("default.web"))
	third.subscribe(lds)
	third.wantAck("LDS l=1")
	if n := a.Silent(); n != 1 {
		t.Errorf("%d streams are silent, want 1", n)
	}
}

// TestTooManyConnections: a peer at its connection limit gets no further connection until it closes
// one.
func TestTooManyConnections(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	a := servingWith(t, config("LDS:l=1"), options{Registry: reg, MaxPeerConns: 1}, tcp)
	first := dialTo(t, "passthrough:///"+tcp.Addr().String())
	c := deltaOn(t, first, nodeOf("default.web"))
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	extra := dialTo(t, "passthrough:///"+tcp.Addr().String())
	if _, err := discoveryv3.NewAggregatedDiscoveryServiceClient(extra).
		DeltaAggregatedResources(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("a second connection ends with %v", err)
	}
	if n := closedFor(t, reg, "too-many-connections"); n == 0 {
		t.Error("it is not counted")
	}
	first.Close()
	a.wait(func() bool { peers, _ := a.Kept(); return peers == 0 })
	d := deltaOn(t, dialTo(t, "passthrough:///"+tcp.Addr().String()), nodeOf("default.web"))
	d.subscribe(lds)
	d.wantAck("LDS l=1")
}
