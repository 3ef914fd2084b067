package forward

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	maxOrigins    = 16 // servers per network that are remembered
	networkShare  = 8  // a network other than the own one may use one in this many slots
	originSockets = 4  // UDP sockets per server of another network

	// MaxNetworkSockets is the maximum number of sockets to the origins of a network.
	MaxNetworkSockets = 128
)

// Network is a network namespace whose queries are redirected to a listener of this process. Its
// methods are safe for concurrent use, and fail after the namespace was closed.
type Network interface {
	// Name describes the namespace in status and logs; "" is the namespace of this process.
	Name() string
	// Original returns the server that a client queried, before the query was redirected to the
	// local address of the listener. It is the local address if the query was not redirected. It
	// does not block.
	Original(tcp bool, client, local netip.AddrPort) (netip.AddrPort, error)
	// Connect opens a socket for "udp" or "tcp" in the namespace, and begins to connect it. The
	// redirection must exempt it. Connect is not called for the namespace of this process.
	Connect(network string, server netip.AddrPort) (*os.File, error)
}

// Origins are the servers to which the clients of one network send queries. It remembers the last
// 16 of them. It is safe for concurrent use.
type Origins struct {
	f        *Forwarder
	network  Network
	own      bool // of this process
	standard Origin
	sockets  int // to origins; the forwarder's lock guards it
	inFlight int // slots; the forwarder's lock guards it

	mu     sync.Mutex // the forwarder's lock is taken first
	byAddr map[netip.AddrPort]*Origin
	closed bool
}

// Origin is the server that a client queried, with its network. Answers are cached for each
// origin.
type Origin struct {
	of   *Origins
	set  *serverSet // nil: the servers of the config
	id   uint32     // of the cache; 0: the servers of the config
	used atomic.Int64
}

// Server returns the address of the server, or the zero AddrPort for the servers of the config.
func (o *Origin) Server() netip.AddrPort {
	if o.number() == 0 {
		return netip.AddrPort{}
	}
	return o.set.servers[0].addr
}

// Network returns the name of the client's network; see [Network].
func (o *Origin) Network() string {
	if o == nil || o.of.own {
		return ""
	}
	return o.of.network.Name()
}

// number returns the identifier in cache keys.
func (o *Origin) number() uint32 {
	if o == nil {
		return 0
	}
	return o.id
}

// network returns the network for local addresses of sockets; nil is that of this process.
func (o *Origin) network() *Origins {
	if o == nil || o.of.own {
		return nil
	}
	return o.of
}

// Origins registers a network. The caller closes the result when the network ends.
func (f *Forwarder) Origins(n Network) *Origins {
	o := &Origins{f: f, network: n, own: n.Name() == "", byAddr: map[netip.AddrPort]*Origin{}}
	o.standard.of = o
	f.mu.Lock()
	defer f.mu.Unlock()
	f.networks = append(f.networks, o)
	return o
}

// Find returns the origin of a query for a name in wire form that a listener received on a local
// address. It returns nil if the server is unknown or the network is closed. The query must then
// fail, because other servers may know other names.
func (o *Origins) Find(name []byte, tcp bool, client, local netip.AddrPort) *Origin {
	server, err := o.network.Original(tcp, client, local)
	switch {
	case err != nil && o.own: // not redirected
		return &o.standard
	case err != nil:
		o.f.unknownOrigins.Add(1)
		return nil
	case server == local || o.standardFor(server) || o.own && o.f.routed(name):
		return &o.standard
	}
	return o.of(server)
}

// routed reports whether a name has a route.
func (f *Forwarder) routed(name []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.routes.find(name) != nil
}

// standardFor reports whether queries to a server go to the servers of the config.
func (o *Origins) standardFor(server netip.AddrPort) bool {
	f := o.f
	if f.Opts.Own != nil && (o.own || !server.Addr().IsLoopback()) && f.Opts.Own(server) {
		return true
	}
	return o.own && (len(f.Opts.Servers) > 0 || slices.Contains(*f.current.Load(), server))
}

// of returns the origin for an address. A new one replaces the one that was used least recently.
func (o *Origins) of(addr netip.AddrPort) *Origin {
	now := o.f.clock()
	o.mu.Lock()
	if x := o.byAddr[addr]; x != nil || o.closed {
		o.mu.Unlock()
		if x != nil {
			x.used.Store(now)
		}
		return x
	}
	o.mu.Unlock()
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if x := o.byAddr[addr]; x != nil || o.closed {
		return x
	}
	if len(o.byAddr) >= maxOrigins {
		var oldest *Origin
		for _, x := range o.byAddr {
			if oldest == nil || x.used.Load() < oldest.used.Load() {
				oldest = x
			}
		}
		o.drop(oldest)
	}
	o.f.lastOrigin++
	x := &Origin{of: o, id: o.f.lastOrigin}
	// The client is as close to the server as this process, so its AD bit is passed on.
	x.set = &serverSet{servers: []*server{{addr: addr, origin: x}}, trusted: true}
	x.used.Store(now)
	o.byAddr[addr] = x
	return x
}

// drop forgets an origin. Its questions in flight are still answered.
func (o *Origins) drop(x *Origin) {
	delete(o.byAddr, x.Server())
	sv := x.set.servers[0]
	sv.dropped = true
	o.f.pastOrigins.Add(&sv.stats)
	o.f.dismiss(sv)
}

// Close ends the network. Its questions in flight fail with SERVFAIL, its sockets are closed, and
// its answers leave the cache.
func (o *Origins) Close() {
	f := o.f
	f.mu.Lock()
	defer f.mu.Unlock()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	f.networks = slices.DeleteFunc(f.networks, func(x *Origins) bool { return x == o })
	for c := 0; c < len(f.slots.chunks); c++ { // replying releases the lock
		for i := range f.slots.chunks[c] {
			if s := &f.slots.chunks[c][i]; s.asking && s.origin != nil && s.origin.of == o {
				s.endsAt = 0
				f.fail(s, f.clock())
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []uint32
	for _, x := range o.byAddr {
		ids = append(ids, x.id)
		o.drop(x)
	}
	f.cache.dropOrigins(ids)
}

// admits reports whether the network may use another slot. The caller holds the forwarder's lock.
func (o *Origin) admits() bool {
	if o == nil {
		return true
	}
	if n := o.of; n.closed || !n.own && n.inFlight >= max(n.f.slots.limit/networkShare, 1) {
		n.f.counts.Refused.Network++
		return false
	}
	return true
}

// mayOpen returns an error if no further socket to a server may be opened.
func (s *server) mayOpen() error {
	switch {
	case s.dropped:
		return net.ErrClosed
	case s.origin != nil && s.origin.of.sockets >= MaxNetworkSockets:
		return errNoCapacity
	}
	return nil
}

// opened counts sockets to a server.
func (s *server) opened(n int) {
	if s.origin != nil {
		s.origin.of.sockets += n
	}
}

// report logs a change of a server. Clients choose the servers of origins, so they are logged only
// for debugging.
func (f *Forwarder) report(sv *server, level slog.Level, text string, more ...any) {
	if sv.origin != nil {
		level, more = slog.LevelDebug, append(more, "netns", sv.origin.Network())
	}
	f.log.Log(context.Background(), level, text, append(more, "server", sv.addr)...)
}

// localAddr is the address of a socket in a network; nil is that of this process.
type localAddr struct {
	network *Origins
	addr    netip.AddrPort
}

// OriginStats counts queries to an origin.
type OriginStats struct {
	Network string // see [Network]
	ServerStats
}

// originStats adds the counters of origins. The caller holds the forwarder's lock.
func (f *Forwarder) originStats(out *Stats) {
	out.OriginTotal, out.Refused.Origin = f.pastOrigins, f.unknownOrigins.Load()
	for _, o := range f.networks {
		o.mu.Lock()
		for _, x := range o.byAddr {
			st := x.set.servers[0].state()
			out.OriginTotal.Add(&st)
			out.Origins = append(out.Origins, OriginStats{Network: x.Network(), ServerStats: st})
		}
		o.mu.Unlock()
	}
	slices.SortFunc(out.Origins, func(a, b OriginStats) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Addr.Compare(b.Addr))
	})
}
