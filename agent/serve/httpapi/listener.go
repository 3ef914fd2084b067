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

// withPeer is the server's ConnContext: who connected was asked once, when the connection was
// accepted. What the kernel says are the credentials at the time of connect(2), so a peer that
// changes or ends afterwards does not change them.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if x, ok := c.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, x.peer)
	}
	return ctx
}

// peerOf returns who sends a request: the peer of its connection, with its verified token. A
// request that did not come through [Server.Serve] has a peer of which nothing is known.
func peerOf(r *http.Request) access.Peer {
	p, _ := r.Context().Value(peerKey{}).(access.Peer)
	return p
}

// refusedEvery is how often it is logged at most that connections are closed.
const refusedEvery = 10 * time.Second

// boundedListener closes connections beyond a number at once, instead of leaving them in the
// backlog where the client could not tell a busy agent from a dead one. No user and no address gets
// all of them, and some are kept for root and the agent's user.
type boundedListener struct {
	net.Listener
	limits     Limits
	asksCgroup bool
	privileged func(*access.Peer) bool
	log        *slog.Logger

	mu      sync.Mutex
	open    int            // guarded by mu, as all below
	of      map[string]int // open, by owner
	refused int            // since it was logged
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
			l.log.Warn("api: the kernel does not say who connected, so the peer may only do what everybody may", "error", err)
			p = access.Peer{Local: true, Foreign: true}
		}
		if out := l.admit(c, p); out != nil {
			return out, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection, or returns nil when there is no place for it.
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
			l.log.Warn("api: connections were closed because too many are open", "socket", l.Addr().String(), "peer", owner,
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

// peerConn is a connection that is counted, with who is at its other end.
type peerConn struct {
	net.Conn
	peer   access.Peer
	closed func()
}

func (c *peerConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// shares bounds how many requests of one kind an owner may have under way at once. The zero value
// is ready.
type shares struct {
	mu sync.Mutex
	of map[string]int
}

// take returns what gives a place back, nil when the owner has its share.
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
