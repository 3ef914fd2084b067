package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

type peerKey struct{}

// withPeer is the ConnContext of the server. It adds the peer, which was determined when the
// connection was accepted. The kernel reports the credentials at the time of connect(2), so later
// changes or the end of the peer do not matter.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if x, ok := c.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, x.peer)
	}
	return ctx
}

// peerOf returns the sender of a request: the peer of its connection, with its verified token.
// Without [Server.Serve], the peer is unknown.
func peerOf(r *http.Request) access.Peer {
	p, _ := r.Context().Value(peerKey{}).(access.Peer)
	return p
}

// refusedEvery is the minimum interval between log messages about closed connections.
const refusedEvery = 10 * time.Second

// boundedListener closes connections above a limit immediately. In the backlog, a client could not
// distinguish a busy agent from a dead one. No user or address can use all connections, and some
// are reserved for root and the agent's user.
type boundedListener struct {
	net.Listener
	limits     Limits
	asksCgroup bool
	privileged func(*access.Peer) bool
	log        *slog.Logger

	mu      sync.Mutex
	open    int            // guarded by mu, like the fields below
	of      map[string]int // open connections by owner
	refused int            // since the last log message
	logged  time.Time
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := access.PeerOf(c, l.asksCgroup)
		if err != nil {
			l.log.Warn("api: the kernel does not report the peer, so it only has the permissions of all users", "error", err)
			p = access.Peer{Local: true, Foreign: true}
		}
		if out := l.admit(c, p); out != nil {
			return out, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection, or returns nil if the limit is reached.
func (l *boundedListener) admit(c net.Conn, p access.Peer) net.Conn {
	owner, most, each := p.Owner(), l.limits.Connections, l.limits.Connections
	if !l.privileged(&p) {
		most, each = most-l.limits.reserved(), l.limits.PerOwner
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= most || l.of[owner] >= each {
		l.refused++
		if now := time.Now(); now.Sub(l.logged) >= refusedEvery {
			l.log.Warn("api: connections were closed, because too many are open", "socket", l.Addr().String(), "peer", owner,
				"open", l.open, "ofPeer", l.of[owner], "max", most, "maxOfPeer", each, "closed", l.refused)
			l.logged, l.refused = now, 0
		}
		return nil
	}
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.open++
	l.of[owner]++
	return &peerConn{Conn: c, peer: p, closed: sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.of[owner]--; l.of[owner] == 0 {
			delete(l.of, owner)
		}
	})}
}

// peerConn is a counted connection with its peer.
type peerConn struct {
	net.Conn
	peer   access.Peer
	closed func()
}

func (c *peerConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// shares bounds the concurrent requests of one kind by owner. The zero value is ready to use.
type shares struct {
	mu sync.Mutex
	of map[string]int
}

// take returns a function that releases the share, or nil if the owner has reached its limit.
func (x *shares) take(owner string, most int) (release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of[owner] >= most {
		return nil
	}
	if x.of == nil {
		x.of = map[string]int{}
	}
	x.of[owner]++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.of[owner]--; x.of[owner] == 0 {
			delete(x.of, owner)
		}
	}
}
