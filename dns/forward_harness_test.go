package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// patience is the time limit for expected events.
const patience = 2 * time.Minute

// fakeClock only advances when a test says so.
type fakeClock struct{ ns atomic.Int64 }

func (c *fakeClock) now() int64              { return c.ns.Load() }
func (c *fakeClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// tester is a client of a server with a forwarder, over real sockets.
type tester struct {
	t       testing.TB
	f       *forward.Forwarder
	srv     *Server
	addr    netip.AddrPort
	clock   *fakeClock
	replies chan []byte
	stop    func()
	hits    uint64 // hits that nextHit returned
	udp     *net.UDPConn
	tcp     net.Conn // nil until first used
	readers sync.WaitGroup
}

// quickTiming handles timers very often, because the clock is fake.
func quickTiming() forward.Timing {
	tm := forward.DefaultTiming()
	tm.Tick = 5 * time.Millisecond
	tm.Debounce = 5 * time.Millisecond
	tm.Poll = 20 * time.Millisecond
	return tm
}

func newTester(t testing.TB, opts forward.Options, servers ...*scripted) *tester {
	t.Helper()
	clock := &fakeClock{}
	clock.advance(time.Hour)
	if opts.Clock == nil {
		opts.Clock = clock.now
	}
	if opts.Timing == (forward.Timing{}) {
		opts.Timing = quickTiming()
	}
	for _, s := range servers {
		opts.Servers = append(opts.Servers, s.addr)
	}
	f, err := forward.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	c := &tester{t: t, f: f, srv: NewServer(ServerOptions{Forwarder: f}), clock: clock, replies: make(chan []byte, 20000)}
	c.srv.Swap(table.NewAnswers(nil, nil))
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.addr = udp[0].LocalAddr().(*net.UDPAddr).AddrPort()
	c.udp = c.client("127.0.0.1")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	done := make(chan error, 3)
	wg.Go(func() { done <- f.Run(ctx) })
	wg.Go(func() { done <- c.srv.ServeUDP(ctx, udp[0]) })
	wg.Go(func() { done <- c.srv.ServeTCP(ctx, tcp) })
	<-f.Started()
	c.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for range cap(done) {
			fatal(t, <-done)
		}
		_ = c.udp.Close()
		if c.tcp != nil {
			_ = c.tcp.Close()
		}
		c.readers.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

// client returns a socket at an address of this host. The tester receives its replies.
func (c *tester) client(at string) *net.UDPConn {
	c.t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(at)}, net.UDPAddrFromAddrPort(c.addr))
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.SetReadBuffer(4 << 20)
	c.readers.Go(func() {
		buf := make([]byte, 65536)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			c.replies <- slices.Clone(buf[:n])
		}
	})
	return conn
}

// write sends a message as a client.
func (c *tester) write(tcp bool, m []byte) {
	c.t.Helper()
	if !tcp {
		if _, err := c.udp.Write(m); err != nil {
			c.t.Fatal(err)
		}
		return
	}
	if c.tcp == nil {
		conn, err := net.Dial("tcp", c.addr.String())
		if err != nil {
			c.t.Fatal(err)
		}
		c.tcp = conn
		c.readers.Go(func() {
			for {
				var size [2]byte
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				b := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(conn, b); err != nil {
					return
				}
				c.replies <- b
			}
		})
	}
	if _, err := c.tcp.Write(framedForTest(m)); err != nil {
		c.t.Fatal(err)
	}
}

// bySource returns the number of queries by source, for one type or for all. One type is faster.
func (s *Server) bySource(of ...uint16) (n [sources]uint64) {
	types := []int{countA, countAAAA, countSRV, countPTR, countHTTPS, countOther}
	if len(of) > 0 {
		types = types[countType(of[0]):][:1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counters {
		for source := range n {
			for _, t := range types {
				for r := range c.n[source][t] {
					n[source] += c.n[source][t][r].Load()
				}
			}
		}
	}
	return n
}

// source waits until the server has counted another query, and returns the source of its answer.
func (c *tester) source(before [sources]uint64, of ...uint16) int {
	c.t.Helper()
	late := time.Now().Add(patience)
	for looks := 0; ; looks++ {
		if looks < 5 {
			runtime.Gosched()
		} else { // let the server run
			<-time.After(100 * time.Microsecond)
		}
		now := c.srv.bySource(of...)
		for i := range now {
			if now[i] != before[i] {
				return i
			}
		}
		if time.Now().After(late) {
			c.t.Fatal("the query has not come to the server")
		}
	}
}

// replyWith returns the reply with an ID.
func (c *tester) replyWith(id uint16) []byte {
	c.t.Helper()
	var others [][]byte
	defer func() {
		for _, b := range others {
			c.replies <- b
		}
	}()
	for {
		b := c.wire()
		if len(b) >= 2 && binary.BigEndian.Uint16(b) == id {
			return b
		}
		others = append(others, b)
	}
}

func (c *tester) Reply(_ forward.ReplyTo, wire []byte) { c.replies <- slices.Clone(wire) }

// until waits for a condition.
func (c *tester) until(what string, ok func() bool) {
	c.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !ok(); {
		select {
		case <-late:
			c.t.Fatalf("in vain: %s; %+v", what, c.f.Stats())
		case <-tick.C:
		}
	}
}

// clientKind describes a client: its protocol, and whether it uses EDNS.
type clientKind struct {
	size   uint16 // EDNS buffer size; 0 without EDNS
	do, cd bool
	ad     bool
	tcp    bool
	id     uint16
}

func (k clientKind) message(t testing.TB, name string, qtype uint16) []byte {
	m := new(mdns.Msg)
	m.SetQuestion(mdns.Fqdn(name), qtype)
	m.CheckingDisabled, m.AuthenticatedData = k.cd, k.ad
	if k.id != 0 {
		m.Id = k.id
	}
	if k.size > 0 || k.do {
		m.SetEdns0(max(k.size, 512), k.do)
	}
	return packed(t, m)
}

func (k clientKind) maxSize() int {
	switch {
	case k.tcp:
		return 65535
	case k.size > 0:
		return min(max(int(k.size), 512), forward.EdnsSize)
	}
	return 512
}

// send sends a query. It returns an immediate reply, and whether the query was accepted.
func (c *tester) send(k clientKind, name string, qtype uint16) ([]byte, bool) {
	c.t.Helper()
	m := k.message(c.t, name, qtype)
	before := c.srv.bySource(qtype)
	c.write(k.tcp, m)
	switch c.source(before, qtype) {
	case fromUpstream:
		return nil, true
	case fromNone:
		return c.replyWith(binary.BigEndian.Uint16(m)), false
	}
	return c.replyWith(binary.BigEndian.Uint16(m)), true
}

// ask sends a query that is not in the cache.
func (c *tester) ask(k clientKind, name string, qtype uint16) {
	c.t.Helper()
	if out, ok := c.send(k, name, qtype); out != nil || !ok {
		c.t.Fatalf("%s: answered from the cache: %v, accepted: %v", name, out != nil, ok)
	}
}

// answer waits for a reply.
func (c *tester) answer() *mdns.Msg {
	c.t.Helper()
	return c.unpack(c.wire())
}

func (c *tester) wire() []byte {
	c.t.Helper()
	select {
	case b := <-c.replies:
		return b
	case <-time.After(patience):
		c.t.Fatalf("no reply has come; %+v", c.f.Stats())
		return nil
	}
}

func (c *tester) unpack(b []byte) *mdns.Msg {
	c.t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(b); err != nil {
		c.t.Fatalf("a reply cannot be read: %v (% x)", err, b)
	}
	return m
}

// hit returns an answer that must be in the cache.
func (c *tester) hit(k clientKind, name string, qtype uint16) *mdns.Msg {
	c.t.Helper()
	out, ok := c.send(k, name, qtype)
	if out == nil {
		c.t.Fatalf("%s is not in the cache (accepted: %v)", name, ok)
	}
	return c.unpack(out)
}

// query sends a query, and returns the reply from any source.
func (c *tester) query(k clientKind, name string, qtype uint16) *mdns.Msg {
	c.t.Helper()
	out, ok := c.send(k, name, qtype)
	switch {
	case out != nil:
		return c.unpack(out)
	case !ok:
		c.t.Fatalf("%s was not accepted: %+v", name, c.f.Stats())
	}
	return c.answer()
}

// ede returns the extended error code of a message, or -1.
func ede(m *mdns.Msg) int {
	if o := m.IsEdns0(); o != nil {
		for _, x := range o.Option {
			if e, ok := x.(*mdns.EDNS0_EDE); ok {
				return int(e.InfoCode)
			}
		}
	}
	return -1
}

// firstA returns the first address of an answer, or "".
func firstA(m *mdns.Msg) string {
	for _, rr := range m.Answer {
		if a, ok := rr.(*mdns.A); ok {
			return a.A.String()
		}
	}
	return ""
}
