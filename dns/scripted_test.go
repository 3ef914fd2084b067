package dns

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// upstreamQuery is a query that arrived at a scripted server.
type upstreamQuery struct {
	*mdns.Msg
	raw  []byte
	from net.Addr
	tcp  bool
	send func(wire []byte)
	hang func() // closes the TCP connection
}

// name returns the lower-case name of the question.
func (q *upstreamQuery) name() string { return strings.ToLower(q.Question[0].Name) }

// Reply sends a reply with records in zone file syntax.
func (q *upstreamQuery) Reply(t testing.TB, rcode int, answer []string, authority ...string) {
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

// records parses records in zone file syntax.
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

// scripted is a name server that follows a script, over UDP and TCP on one port.
type scripted struct {
	t    testing.TB
	addr netip.AddrPort
	do   func(*upstreamQuery)
	udp  *net.UDPConn
	tcp  net.Listener
	tls  *tls.Config // of connections; nil means no TLS
	wg   sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	accepted int // number of TCP connections
}

// newScripted starts a server on a loopback address. Port 0 selects a free port.
func newScripted(t testing.TB, at string, do func(*upstreamQuery)) *scripted {
	t.Helper()
	return newScriptedTLS(t, at, nil, do)
}

// newScriptedTLS starts a server whose TCP connections use TLS.
func newScriptedTLS(t testing.TB, at string, conf *tls.Config, do func(*upstreamQuery)) *scripted {
	t.Helper()
	s := &scripted{t: t, do: do, conns: map[net.Conn]bool{}, addr: netip.MustParseAddrPort(at), tls: conf}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *scripted) start() {
	s.t.Helper()
	for range 100 { // until a port is free for both protocols
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

// stop stops the server abruptly.
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
		s.accepted++
		s.mu.Unlock()
		if s.tls != nil {
			c = tls.Server(c, s.tls)
		}
		s.wg.Go(func() { s.serveConn(c) })
	}
}

func (s *scripted) serveConn(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
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

// connections returns the number of accepted TCP connections.
func (s *scripted) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// answerA returns a script that answers every question with one address.
func answerA(t testing.TB, ttl string) func(*upstreamQuery) {
	return func(q *upstreamQuery) { q.Reply(t, 0, []string{q.Question[0].Name + " " + ttl + " IN A 192.0.2.1"}) }
}

// held is a script that stores queries for the test.
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
