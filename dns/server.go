package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// ServerOptions are those of a Server. The zero value refuses all that is not in its answers.
type ServerOptions struct {
	// Forwarder answers what is not in the answers; nil: it is refused.
	Forwarder *Forwarder
	// MaxConns bounds the TCP connections, MaxPeerConns those of one address. 0 means 1024 and 256.
	MaxConns, MaxPeerConns int
	// Idle is how long a TCP connection may be silent, or take for a query or to read a reply. 0 means 10 s.
	Idle   time.Duration
	Logger *slog.Logger // nil is silent
}

// Server answers DNS over UDP and TCP. It is safe for concurrent use.
type Server struct {
	o       ServerOptions
	answers atomic.Pointer[Answers]
	turn    atomic.Uint32
	tcp     *counters

	mu       sync.Mutex
	counters []*counters
	conns    int
	byPeer   map[netip.Addr]int
	waiting  shares
}

// NewServer makes a server that has no answers yet: see [Server.Swap].
func NewServer(o ServerOptions) *Server {
	if o.MaxConns <= 0 {
		o.MaxConns = 1024
	}
	if o.MaxPeerConns <= 0 {
		o.MaxPeerConns = 256
	}
	if o.Idle <= 0 {
		o.Idle = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, byPeer: map[netip.Addr]int{}}
	s.answers.Store(PendingAnswers(nil))
	s.tcp = s.newCounters()
	return s
}

// Swap puts other answers in the place of those that are there. Queries under way are answered by the one or the other.
func (s *Server) Swap(a *Answers) { s.answers.Store(a) }

// fate is what becomes of a query.
type fate int

const (
	replied fate = iota
	later        // to.via gets the reply
	silence      // there is no reply
)

// handle answers a message, or sends it on. A reply is appended to out.
func (s *Server) handle(q *query, m []byte, to replyTo, tcp bool, turn uint32, c *counters, out []byte) ([]byte, fate) {
	start := len(out)
	out, v := s.answers.Load().resolve(q, m, to.addr.Addr(), turn, tcp, out)
	switch v {
	case dropped:
		c.add(fromNobody, 0, rcodeSuccess)
		return out, silence
	case failed:
		c.add(fromNobody, q.qtype, rcodeOf(out[start:]))
		return out, replied
	case accepted:
		c.add(fromTable, q.qtype, rcodeOf(out[start:]))
		return out, replied
	}
	f, rcode := s.o.Forwarder, rcodeRefused
	if f != nil {
		to.max = q.limit(tcp)
		if reply, ok := f.cached(q, m, out, to.max, to.at); ok {
			c.add(fromCache, q.qtype, rcodeOf(reply[start:]))
			return reply, replied
		}
		rcode = rcodeServFail
		if s.waiting.take(to.addr.Addr()) {
			if f.ask(q, m, to) {
				c.add(fromOthers, q.qtype, rcodeSuccess)
				return out, later
			}
			s.waiting.giveBack(to.addr.Addr())
		}
	}
	c.add(fromNobody, q.qtype, rcode)
	return q.refuse(out, m, rcode), replied
}

func rcodeOf(reply []byte) int { return int(reply[3] & 15) }

// now is the time by which answers of the cache are fresh.
func (s *Server) now() int64 {
	if s.o.Forwarder == nil {
		return 0
	}
	return s.o.Forwarder.now()
}

// Listen opens sockets for UDP and TCP on one address; several for UDP share its queries among processors. With port 0 all get the same
// free one. Errors name the address.
func Listen(ctx context.Context, addr netip.AddrPort, udp int) ([]*net.UDPConn, net.Listener, error) {
	for try := 0; ; try++ {
		conns, l, err := listen(ctx, addr, udp)
		if err == nil {
			return conns, l, nil
		}
		for _, c := range conns {
			_ = c.Close()
		}
		if addr.Port() != 0 || try == 50 { // a port that is free for UDP may be taken for TCP
			return nil, nil, fmt.Errorf("listen for DNS on %s: %w", addr, err)
		}
	}
}

func listen(ctx context.Context, addr netip.AddrPort, udp int) (conns []*net.UDPConn, _ net.Listener, _ error) {
	family := "4"
	if addr.Addr().Is6() {
		family = "6"
	}
	lc := net.ListenConfig{Control: prepare(udp > 1)}
	for range max(udp, 1) {
		p, err := lc.ListenPacket(ctx, "udp"+family, addr.String())
		if err != nil {
			return conns, nil, err
		}
		c := p.(*net.UDPConn)
		conns = append(conns, c)
		addr = netip.AddrPortFrom(addr.Addr(), c.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	var tcp net.ListenConfig
	l, err := tcp.Listen(ctx, "tcp"+family, addr.String())
	return conns, l, err
}

// ServeUDP answers what arrives on a socket until ctx ends, and closes the socket. Queries that wait for other servers then get no reply.
func (s *Server) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := s.serveUDP(c, s.newCounters())
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve DNS on %s: %w", c.LocalAddr(), err)
}
