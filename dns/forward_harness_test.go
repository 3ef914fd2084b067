package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// fakeClock stands still unless it is told to go on.
type fakeClock struct{ ns atomic.Int64 }

func (c *fakeClock) now() int64              { return c.ns.Load() }
func (c *fakeClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// upstreamQuery is a query as it has reached a scripted server.
type upstreamQuery struct {
	*mdns.Msg
	raw  []byte
	from net.Addr
	tcp  bool
	send func(wire []byte)
	hang func() // ends the TCP connection
}

// name returns the name asked for in lower case.
func (q *upstreamQuery) name() string { return strings.ToLower(q.Question[0].Name) }

// reply sends a reply with records in zone text.
func (q *upstreamQuery) reply(t testing.TB, rcode int, answer []string, authority ...string) {
	t.Helper()
	q.send(q.pack(t, rcode, answer, authority...))
}

func (q *upstreamQuery) pack(t testing.TB, rcode int, answer []string, authority ...string) []byte {
	t.Helper()
	m := new(mdns.Msg)
	m.SetRcode(q.Msg, rcode)
	m.RecursionAvailable, m.Compress = true, true
	m.Answer, m.Ns = records(t, answer...), records(t, authority...)
	if q.IsEdns0() != nil {
		m.SetEdns0(1232, q.IsEdns0().Do())
	}
	return packed(t, m)
}

func packed(t testing.TB, m *mdns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return b
}

// records reads lines of zone text.
func records(t testing.TB, lines ...string) (out []mdns.RR) {
	t.Helper()
	for _, l := range lines {
		rr, err := mdns.NewRR(l)
		if err != nil {
			t.Errorf("%q: %v", l, err)
			continue
		}
		out = append(out, rr)
	}
	return out
}

// scripted is a name server that does as its script says, over UDP and TCP on one port.
type scripted struct {
	t    testing.TB
	addr netip.AddrPort
	do   func(*upstreamQuery)
	udp  *net.UDPConn
	tcp  net.Listener
	wg   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	made  int // TCP connections
}

// newScripted starts a server on a loopback address; port 0 takes a free one.
func newScripted(t testing.TB, at string, do func(*upstreamQuery)) *scripted {
	t.Helper()
	s := &scripted{t: t, do: do, conns: map[net.Conn]bool{}, addr: netip.MustParseAddrPort(at)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *scripted) start() {
	s.t.Helper()
	for range 100 { // until a port is free for both
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr))
		if err != nil {
			s.t.Fatal(err)
		}
		_ = udp.SetReadBuffer(4 << 20)
		at := udp.LocalAddr().(*net.UDPAddr).AddrPort()
		tcp, err := net.Listen("tcp", at.String())
		if err != nil {
			_ = udp.Close()
			continue
		}
		s.addr, s.udp, s.tcp = at, udp, tcp
		s.wg.Go(s.serveUDP)
		s.wg.Go(s.serveTCP)
		return
	}
	s.t.Fatal("no port is free for UDP and TCP")
}

// stop ends the server, as if it had died.
func (s *scripted) stop() {
	_ = s.udp.Close()
	_ = s.tcp.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *scripted) serveUDP() {
	buf := make([]byte, 65536)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		raw := slices.Clone(buf[:n])
		s.handle(&upstreamQuery{raw: raw, from: net.UDPAddrFromAddrPort(from),
			send: func(b []byte) { _, _ = s.udp.WriteToUDPAddrPort(b, from) }, hang: func() {}})
	}
}

func (s *scripted) serveTCP() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.made++
		s.mu.Unlock()
		s.wg.Go(func() { s.serveConn(c) })
	}
}

func (s *scripted) serveConn(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	var mu sync.Mutex
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		raw := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, raw); err != nil {
			return
		}
		s.handle(&upstreamQuery{raw: raw, from: c.RemoteAddr(), tcp: true, hang: func() { _ = c.Close() },
			send: func(b []byte) {
				mu.Lock()
				defer mu.Unlock()
				_, _ = c.Write(framedForTest(b))
			}})
	}
}

func framedForTest(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

func (s *scripted) handle(q *upstreamQuery) {
	q.Msg = new(mdns.Msg)
	if err := q.Unpack(q.raw); err != nil {
		s.t.Errorf("a server got what is no query: %v (% x)", err, q.raw)
		return
	}
	s.do(q)
}

// connections returns how many TCP connections there have been.
func (s *scripted) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// answerA answers any question with one address.
func answerA(t testing.TB, ttl string) func(*upstreamQuery) {
	return func(q *upstreamQuery) { q.reply(t, 0, []string{q.Question[0].Name + " " + ttl + " IN A 192.0.2.1"}) }
}

// held is a script that keeps queries until the test looks at them.
type held chan *upstreamQuery

func newHeld() held { return make(held, 20000) }

func (h held) do(q *upstreamQuery) { h <- q }

func (h held) next(t testing.TB) *upstreamQuery {
	t.Helper()
	select {
	case q := <-h:
		return q
	case <-time.After(patience):
		t.Fatal("no query has come to the server")
		return nil
	}
}

func (h held) none(t testing.TB) {
	t.Helper()
	select {
	case q := <-h:
		t.Fatalf("a query has come to the server: %v", q.Question)
	default:
	}
}

// tester is a client of a server with a forwarder, over real sockets.
type tester struct {
	t       testing.TB
	f       *Forwarder
	srv     *Server
	addr    netip.AddrPort
	clock   *fakeClock
	replies chan []byte
	stop    func()
	hits    uint64 // that nextHit has returned
	udp     *net.UDPConn
	tcp     net.Conn // nil until it is needed
	readers sync.WaitGroup
}

// quickTiming looks at what is due all the time; the clock decides.
func quickTiming() timing {
	tm := defaultTiming()
	tm.tick = 5 * time.Millisecond
	tm.debounce = 5 * time.Millisecond
	tm.poll = 20 * time.Millisecond
	return tm
}

func newTester(t testing.TB, opts ForwarderOptions, servers ...*scripted) *tester {
	t.Helper()
	clock := &fakeClock{}
	clock.advance(time.Hour)
	if opts.clock == nil {
		opts.clock = clock.now
	}
	if opts.timing == (timing{}) {
		opts.timing = quickTiming()
	}
	for _, s := range servers {
		opts.Servers = append(opts.Servers, s.addr)
	}
	f, err := NewForwarder(opts)
	if err != nil {
		t.Fatal(err)
	}
	c := &tester{t: t, f: f, srv: NewServer(ServerOptions{Forwarder: f}), clock: clock, replies: make(chan []byte, 20000)}
	c.srv.Swap(NewAnswers(nil, nil))
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
	c.until("the forwarder runs", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.ctx != nil
	})
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

// client returns a socket at an address of this host whose replies are the tester's.
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

// bySource returns how many queries there were, by where their answers come from: of one type,
// which is much less to look at, or of all.
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

// source waits for the server to have one query more than before, of a type or of any, and returns
// where its answer is from.
func (c *tester) source(before [sources]uint64, of ...uint16) int {
	c.t.Helper()
	late := time.Now().Add(patience)
	for looks := 0; ; looks++ {
		if looks < 5 {
			runtime.Gosched()
		} else { // the server may need this processor
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

func (c *tester) reply(_ replyTo, wire []byte) { c.replies <- slices.Clone(wire) }

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

// udp and tcp are clients; clientEDNS is one with EDNS.
type clientKind struct {
	size   uint16 // of EDNS; 0 without
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

func (k clientKind) room() int {
	switch {
	case k.tcp:
		return 65535
	case k.size > 0:
		return min(max(int(k.size), 512), ednsSize)
	}
	return 512
}

// send sends a query. It returns the reply if there is one at once, and whether the query was
// accepted.
func (c *tester) send(k clientKind, name string, qtype uint16) ([]byte, bool) {
	c.t.Helper()
	m := k.message(c.t, name, qtype)
	before := c.srv.bySource(qtype)
	c.write(k.tcp, m)
	switch c.source(before, qtype) {
	case fromOthers:
		return nil, true
	case fromNobody:
		return c.replyWith(binary.BigEndian.Uint16(m)), false
	}
	return c.replyWith(binary.BigEndian.Uint16(m)), true
}

// ask is send for a query that is not in the cache.
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

// hit returns the answer of the cache, which has one.
func (c *tester) hit(k clientKind, name string, qtype uint16) *mdns.Msg {
	c.t.Helper()
	out, ok := c.send(k, name, qtype)
	if out == nil {
		c.t.Fatalf("%s is not in the cache (accepted: %v)", name, ok)
	}
	return c.unpack(out)
}

// query asks, and returns the reply from wherever it comes.
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

// ede returns the extended error of a message; -1 without.
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

// firstA returns the first address of an answer; "" without.
func firstA(m *mdns.Msg) string {
	for _, rr := range m.Answer {
		if a, ok := rr.(*mdns.A); ok {
			return a.A.String()
		}
	}
	return ""
}
