package dns

import (
	"context"
	"log/slog"
	"net/netip"
)

// ForwarderOptions says whom a Forwarder asks, and how. The zero value asks the name servers of /etc/resolv.conf.
type ForwarderOptions struct {
	// Servers are asked in this order. Where there are none, those of ResolvConf are, and that file is watched.
	Servers []netip.AddrPort
	// ResolvConf is the path of the file; "" means /etc/resolv.conf.
	ResolvConf string
	// CacheBytes bounds the memory of cached answers; 0 means 4 MiB, less than 0 none at all.
	CacheBytes int
	// InFlight bounds the questions that are asked at the same time; 0 means 10,000.
	InFlight int
	// Mark is set on all sockets (SO_MARK), so that a redirection of port 53 exempts them; 0 sets none.
	Mark uint32
	// Own reports whether an address is one that this process listens on: such a server is refused. nil knows of none.
	Own func(netip.AddrPort) bool
	// Logger is told about servers that change, fail and answer again; nil is silent.
	Logger *slog.Logger
}

// Forwarder asks name servers what no table answers, and keeps their answers. It is safe for concurrent use, and one serves all
// listeners.
type Forwarder struct{}

// replier sends a reply to a client. It is called once for each accepted query, from a goroutine of the forwarder, and must not block.
// The wire is only valid during the call.
type replier interface {
	reply(to replyTo, wire []byte)
}

// replyTo is where a reply goes. The forwarder reads max; the rest is for the listener alone.
type replyTo struct {
	via   replier
	addr  netip.AddrPort // of the client
	local netip.Addr     // the address that the query was sent to
	at    int64          // when it came, by the forwarder's clock
	max   int            // bytes that the reply may have: by the client's EDNS for UDP, 65535 for TCP
}

// NewForwarder makes a forwarder. It answers from its cache, and asks others while Run runs.
func NewForwarder(opts ForwarderOptions) (*Forwarder, error) { return &Forwarder{}, nil }

// Run asks until the context ends, and returns when all of its goroutines and sockets have gone. Queries in flight then get no answer.
func (f *Forwarder) Run(ctx context.Context) error { return nil }

// now is the clock of the cache, in nanoseconds of no particular beginning. A listener reads it once for a batch.
func (f *Forwarder) now() int64 { return 0 }

// cached appends the whole reply to a query to out, if there is an answer that is fresh enough: ID, flags and question as the client
// has them, an OPT record if the query had one, at most max bytes, which are not cut within a record. It allocates nothing where out
// has the room.
func (f *Forwarder) cached(q *query, msg, out []byte, max int, now int64) ([]byte, bool) {
	return out, false
}

// ask asks the servers; the reply goes to to.via once, later. It never blocks and keeps neither q nor msg. False means that there will be no
// reply: too many questions are in flight, or too many clients wait for this one. The caller answers SERVFAIL; the reason is counted here.
func (f *Forwarder) ask(q *query, msg []byte, to replyTo) bool { return false }
