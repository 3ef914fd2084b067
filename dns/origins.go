package dns

import (
	"context"
	"net"
	"net/netip"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Origins registers a network whose queries are redirected to sockets of the server. Queries that
// the table does not answer then go to the server that the client queried. Origins returns nil
// without a forwarder. The caller closes the result when the network ends.
func (s *Server) Origins(n forward.Network) *forward.Origins {
	if s.o.Forwarder == nil {
		return nil
	}
	return s.o.Forwarder.Origins(n)
}

// SetOrigins sets the network of redirected queries for the sockets of ServeUDP and ServeTCP; nil
// means that no queries are redirected to them.
func (s *Server) SetOrigins(o *forward.Origins) { s.origins.Store(o) }

// ServeUDPFrom is like [Server.ServeUDP] for a socket in another network, whose clients query the
// servers of that network.
func (s *Server) ServeUDPFrom(ctx context.Context, c *net.UDPConn, o *forward.Origins) error {
	return s.serveSocket(ctx, c, listener{s: s, origins: o, port: c.LocalAddr().(*net.UDPAddr).AddrPort().Port()})
}

// ServeTCPFrom is like [Server.ServeTCP] for a listener in another network, whose clients query the
// servers of that network.
func (s *Server) ServeTCPFrom(ctx context.Context, l net.Listener, o *forward.Origins) error {
	return s.serveListener(ctx, l, listener{s: s, origins: o, tcp: true, port: addressOfConn(l.Addr()).Port()})
}

// listener finds the origins of queries to one socket.
type listener struct {
	s       *Server
	origins *forward.Origins // nil: those of the server
	port    uint16
	tcp     bool
	foreign uint64 // cookie of the network namespace of the socket, if that is another one
}

// origin returns the origin of a query; nil is the servers of the config. It returns false if it is
// unknown, so that the query fails. Redirected queries arrive on loopback addresses.
func (l *listener) origin(q *table.Query, client netip.AddrPort, local netip.Addr) (*forward.Origin, bool) {
	o := l.origins
	if o == nil {
		o = l.s.origins.Load()
	}
	if o == nil || !local.IsLoopback() {
		return nil, true
	}
	found := o.Find(q.Key(), l.tcp, client, netip.AddrPortFrom(local, l.port))
	return found, found != nil
}

// finder is a Replier that knows where the queries of its socket were sent.
type finder interface {
	origin(q *table.Query, client netip.AddrPort, local netip.Addr) (*forward.Origin, bool)
}

// addressOfConn returns a TCP address, or the zero AddrPort.
func addressOfConn(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
