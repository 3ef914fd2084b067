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

// ServerOptions configures a Server. The zero value refuses all queries that the table does not
// answer.
type ServerOptions struct {
	// Forwarder answers the queries that the table does not; nil refuses them.
	Forwarder *forward.Forwarder
	// PassthroughDeny lists addresses that are removed from answers to names with
	// [table.PassthroughLabel], so that the owner of an external name cannot direct clients
	// there.
	PassthroughDeny []netip.Prefix
	// MaxConns limits TCP connections, and MaxPeerConns those of one address that is not a
	// loopback address. 0 means 1024 and 256. When they are nearly full, a new connection
	// replaces an idle one of the owner with the most.
	MaxConns, MaxPeerConns int
	// PeerRate limits the forwarded queries per second and address. Queries beyond it get
	// SERVFAIL. 0 means no limit. Clients on this host are exempt, because many share one
	// address.
	PeerRate int
	// Idle is how long a TCP connection may be idle, and how long reading a query or writing a
	// reply may take. 0 means 10 s.
	Idle   time.Duration
	Logger *slog.Logger // nil discards
	// Sampled is called with a sample of the answered queries; see [Server.Sample]. It runs
	// before the reply is sent and must not block. It may be nil.
	Sampled func(Sampled)
}

// Server answers DNS over UDP and TCP. It is safe for concurrent use.
type Server struct {
	o       ServerOptions
	answers atomic.Pointer[table.Answers]
	origins atomic.Pointer[forward.Origins]
	sample  atomic.Uint32 // see Sample
	turn    atomic.Uint32
	tcp     *counters
	// Limits for shutdown: how long forwarded queries may take, and how long an open connection
	// may be idle.
	drain, grace time.Duration

	owners      *owners
	conns       *conns
	waiting     waitingQueries
	clientRates clientRates
	refused     clientRefusals

	mu       sync.Mutex
	counters []*counters
}

// NewServer returns a server without answers; see [Server.Swap].
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
	s := &Server{o: o, owners: newOwners(), drain: drainTime, grace: graceTime}
	s.conns = newConns(o.MaxConns, o.MaxPeerConns, s.owners)
	s.answers.Store(table.PendingAnswers(nil))
	s.tcp = s.newCounters()
	return s
}

// Swap replaces the answers. Queries in progress get either the old or the new ones.
func (s *Server) Swap(a *table.Answers) { s.answers.Store(a) }

// disposition is what happens to a query.
type disposition int

const (
	replied disposition = iota
	pending             // to.Via gets the reply later
	noReply             // the client gets no reply
)

// handle answers or forwards a message. It appends an immediate reply to out.
func (s *Server) handle(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, turn uint32, c *counters,
	out []byte) ([]byte, disposition) {
	n := s.sample.Load()
	if n == 0 || scatter(c.seen.Add(1))%n != 0 {
		out, f, _ := s.decide(q, m, &to, tcp, turn, c, out)
		return out, f
	}
	to.Tcp, to.Sampled = tcp, true
	start := len(out)
	out, f, source := s.decide(q, m, &to, tcp, turn, c, out)
	if f == replied {
		s.reportSample(to, out[start:], source)
	}
	return out, f
}

// decide does the work of handle, and also returns the source of the reply. It sets the origin.
func (s *Server) decide(q *table.Query, m []byte, to *forward.ReplyTo, tcp bool, turn uint32, c *counters,
	out []byte) ([]byte, disposition, int) {
	start := len(out)
	out, v := s.answers.Load().Resolve(q, m, to.Addr.Addr(), turn, tcp, out)
	switch v {
	case table.Dropped:
		c.add(fromNone, 0, table.RcodeSuccess)
		return out, noReply, fromNone
	case table.Failed:
		rcode := rcodeOf(out[start:])
		if rcode == table.RcodeSuccess {
			rcode = table.RcodeBadVers // its low bits in the header are 0
		}
		c.add(fromNone, q.Qtype, rcode)
		return out, replied, fromNone
	case table.Accepted:
		c.add(fromTable, q.Qtype, rcodeOf(out[start:]))
		return out, replied, fromTable
	}
	if via, ok := to.Via.(finder); ok {
		if to.Origin, ok = via.origin(q, to.Addr, to.Local); !ok {
			c.add(fromNone, q.Qtype, table.RcodeServFail)
			return q.Refuse(out[:start], m, table.RcodeServFail), replied, fromNone
		}
	}
	switch v {
	case table.AcceptedDefault:
		if to.Origin == nil {
			c.add(fromTable, q.Qtype, rcodeOf(out[start:]))
			return out, replied, fromTable
		}
		out = out[:start]
	case table.PassthroughName:
		return s.passthrough(q, m, *to, tcp, c, out)
	case table.RealName:
		to.Via, to.Real = uncachedReplier{to.Via}, true
		out, f, source := s.forward(q, m, to, tcp, c, out)
		if f == replied {
			clearTTLs(out[start:])
		}
		return out, f, source
	}
	out, f, source := s.forward(q, m, to, tcp, c, out)
	if f == replied {
		out = s.follow(out, start, *to, q.Limit(tcp))
	}
	return out, f, source
}

// forward answers from the cache, or asks an upstream.
func (s *Server) forward(q *table.Query, m []byte, to *forward.ReplyTo, tcp bool, c *counters,
	out []byte) ([]byte, disposition, int) {
	start := len(out)
	f, rcode := s.o.Forwarder, table.RcodeRefused
	if f != nil {
		to.Max = q.Limit(tcp)
		if reply, ok := f.Cached(q, m, out, to); ok {
			c.add(fromCache, q.Qtype, rcodeOf(reply[start:]))
			return reply, replied, fromCache
		}
		rcode = table.RcodeServFail
		if s.take(to) {
			if f.Ask(q, m, *to) {
				c.add(fromUpstream, q.Qtype, table.RcodeSuccess)
				return out, pending, fromUpstream
			}
			s.waiting.release(*to)
		}
		if reply, ok := f.Stale(q, m, out, *to); ok {
			c.add(fromCache, q.Qtype, rcodeOf(reply[start:]))
			return reply, replied, fromCache
		}
	}
	c.add(fromNone, q.Qtype, rcode)
	return q.Refuse(out, m, rcode), replied, fromNone
}

func rcodeOf(reply []byte) int { return int(reply[3] & 15) }

// now returns the time for the age of cached answers.
func (s *Server) now() int64 {
	if s.o.Forwarder == nil {
		return 0
	}
	return s.o.Forwarder.Now()
}

// On shutdown, forwarded queries and messages in transit over a connection get this much time.
// Clients repeat queries that take longer.
const (
	drainTime = 500 * time.Millisecond
	graceTime = 100 * time.Millisecond
)

// ServeUDP answers queries on a socket until ctx ends, then closes the socket. Before it returns,
// it waits up to half a second for the replies to forwarded queries; the forwarder must run that
// long.
func (s *Server) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	return s.ServeUDPFrom(ctx, c, nil)
}

func (s *Server) serveSocket(ctx context.Context, c *net.UDPConn, at listener) error {
	defer c.Close()
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	at.foreign = s.owners.foreign(c)
	via := &udpReplier{listener: at, conn: c, none: make(chan struct{}, 1)}
	err := s.serveUDP(c, s.newCounters(), via, &ended)
	via.drain()
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve DNS on %s: %w", c.LocalAddr(), err)
}
