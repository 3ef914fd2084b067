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

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// ServerOptions are those of a Server. The zero value refuses all that is not in its answers.
type ServerOptions struct {
	// Forwarder answers what is not in the answers; nil: it is refused.
	Forwarder *forward.Forwarder
	// PastNot are addresses that answers past the table ([table.PastLabel]) do not have: whoever gives
	// a name out cannot lead there by it.
	PastNot []netip.Prefix
	// MaxConns bounds the TCP connections, MaxPeerConns those of one address. 0 means 1024 and 256.
	MaxConns, MaxPeerConns int
	// PeerRate bounds the queries of one address that are sent on in a second; what is more gets
	// SERVFAIL. 0 means no bound. Clients on this host, of which many have one address, have none.
	PeerRate int
	// Idle is how long a TCP connection may be silent, or take for a query or to read a reply. 0 means
	// 10 s.
	Idle   time.Duration
	Logger *slog.Logger // nil is silent
	// Sampled is told of some queries once their reply is known; see [Server.Sample]. It is called on
	// the way of the reply, and must not block. Nil: none is told of.
	Sampled func(Sampled)
}

// Server answers DNS over UDP and TCP. It is safe for concurrent use.
type Server struct {
	o       ServerOptions
	answers atomic.Pointer[table.Answers]
	sample  atomic.Uint32 // see Sample
	turn    atomic.Uint32
	tcp     *counters
	// When the server ends: how long queries that wait for others may take, and how long a connection
	// may be silent.
	drain, grace time.Duration

	mu       sync.Mutex
	counters []*counters
	conns    int
	byPeer   map[netip.Addr]int
	waiting  shares
	rates    rates
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
	s := &Server{o: o, byPeer: map[netip.Addr]int{}, drain: drainTime, grace: graceTime}
	s.answers.Store(table.PendingAnswers(nil))
	s.tcp = s.newCounters()
	return s
}

// Swap puts other answers in the place of those that are there. Queries under way are answered by
// the one or the other.
func (s *Server) Swap(a *table.Answers) { s.answers.Store(a) }

// fate is what becomes of a query.
type fate int

const (
	replied fate = iota
	later        // to.via gets the reply
	silence      // there is no reply
)

// handle answers a message, or sends it on. A reply is appended to out.
func (s *Server) handle(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, turn uint32, c *counters,
	out []byte) ([]byte, fate) {
	n := s.sample.Load()
	if n == 0 || scatter(c.seen.Add(1))%n != 0 {
		out, f, _ := s.decide(q, m, to, tcp, turn, c, out)
		return out, f
	}
	to.Tcp, to.Sampled = tcp, true
	start := len(out)
	out, f, source := s.decide(q, m, to, tcp, turn, c, out)
	if f == replied {
		s.tell(to, out[start:], source)
	}
	return out, f
}

// decide is handle, and returns where the reply is from.
func (s *Server) decide(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, turn uint32, c *counters,
	out []byte) ([]byte, fate, int) {
	start := len(out)
	out, v := s.answers.Load().Resolve(q, m, to.Addr.Addr(), turn, tcp, out)
	switch v {
	case table.Dropped:
		c.add(fromNobody, 0, table.RcodeSuccess)
		return out, silence, fromNobody
	case table.Failed:
		rcode := rcodeOf(out[start:])
		if rcode == table.RcodeSuccess {
			rcode = table.RcodeBadVers // which is 0 in the header
		}
		c.add(fromNobody, q.Qtype, rcode)
		return out, replied, fromNobody
	case table.Accepted:
		c.add(fromTable, q.Qtype, rcodeOf(out[start:]))
		return out, replied, fromTable
	}
	if v == table.PastTable {
		return s.past(q, m, to, tcp, c, out)
	}
	return s.elsewhere(q, m, to, tcp, c, out)
}

// elsewhere answers by the cache, or asks other servers.
func (s *Server) elsewhere(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, c *counters,
	out []byte) ([]byte, fate, int) {
	start := len(out)
	f, rcode := s.o.Forwarder, table.RcodeRefused
	if f != nil {
		to.Max = q.Limit(tcp)
		if reply, ok := f.Cached(q, m, out, to.Max, to.At); ok {
			c.add(fromCache, q.Qtype, rcodeOf(reply[start:]))
			return reply, replied, fromCache
		}
		rcode = table.RcodeServFail
		if s.rates.take(to.Addr.Addr(), s.o.PeerRate, to.At) && s.waiting.take(to.Addr.Addr()) {
			if f.Ask(q, m, to) {
				c.add(fromOthers, q.Qtype, table.RcodeSuccess)
				return out, later, fromOthers
			}
			s.waiting.giveBack(to.Addr.Addr())
		}
	}
	c.add(fromNobody, q.Qtype, rcode)
	return q.Refuse(out, m, rcode), replied, fromNobody
}

func rcodeOf(reply []byte) int { return int(reply[3] & 15) }

// now is the time by which answers of the cache are fresh.
func (s *Server) now() int64 {
	if s.o.Forwarder == nil {
		return 0
	}
	return s.o.Forwarder.Now()
}

// When a server ends, queries that other servers are asked for may take so long, and what is on its
// way over a connection: clients ask again for what comes later.
const (
	drainTime = 500 * time.Millisecond
	graceTime = 100 * time.Millisecond
)

// ServeUDP answers what arrives on a socket until ctx ends, and closes the socket. Queries that
// wait for other servers then get their reply if it comes within half a second and the forwarder
// runs as long.
func (s *Server) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	defer c.Close()
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	via := &udpReplier{s: s, conn: c, none: make(chan struct{}, 1)}
	err := s.serveUDP(c, s.newCounters(), via, &ended)
	via.drain()
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve DNS on %s: %w", c.LocalAddr(), err)
}
