// Package sender identifies the senders of API requests, and bounds their connections and
// concurrent requests. No user or address can use all connections, and some are reserved for root
// and the agent's user. It starts no goroutines.
package sender

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

// OfConn is the ConnContext of a server with a [Listener]. It adds the peer, which was determined
// when the connection was accepted. The kernel reports the credentials at the time of connect(2),
// so later changes or the end of the peer do not matter.
func OfConn(ctx context.Context, c net.Conn) context.Context {
	if x, ok := c.(*peerConn); ok {
		return With(ctx, x.peer)
	}
	return ctx
}

// With returns a context of a request from a peer.
func With(ctx context.Context, p access.Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// Of returns the sender of a request: the peer of its connection, with its verified token. Without
// [OfConn] and [With], the peer is unknown.
func Of(r *http.Request) access.Peer {
	p, _ := r.Context().Value(peerKey{}).(access.Peer)
	return p
}

// refusedEvery is the minimum interval between log messages about closed connections.
const refusedEvery = 10 * time.Second

// Listener closes connections above a limit immediately. In the backlog, a client could not
// distinguish a busy agent from a dead one.
type Listener struct {
	net.Listener
	Connections int  // most open connections
	Reserved    int  // of them, those for privileged peers
	PerOwner    int  // most open connections of a peer that is not privileged
	AsksCgroup  bool // whether peers are identified with their control group
	Privileged  func(*access.Peer) bool
	Log         *slog.Logger

	mu      sync.Mutex
	open    int            // guarded by mu, like the fields below
	of      map[string]int // open connections by owner
	refused int            // since the last log message
	logged  time.Time
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := access.PeerOf(c, l.AsksCgroup)
		if err != nil {
			l.Log.Warn("api: the kernel does not report the peer, so it only has the permissions of all users", "error", err)
			p = access.Peer{Local: true, Foreign: true}
		}
		if out := l.admit(c, p); out != nil {
			return out, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection, or returns nil if the limit is reached.
func (l *Listener) admit(c net.Conn, p access.Peer) net.Conn {
	owner, most, each := p.Owner(), l.Connections, l.Connections
	if !l.Privileged(&p) {
		most, each = most-l.Reserved, l.PerOwner
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= most || l.of[owner] >= each {
		l.refused++
		if now := time.Now(); now.Sub(l.logged) >= refusedEvery {
			l.Log.Warn("api: connections were closed, because too many are open", "socket", l.Addr().String(), "peer", owner,
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

// Shares bounds the concurrent requests of one kind by owner. The zero value is ready to use.
type Shares struct {
	mu sync.Mutex
	of map[string]int
}

// Take returns a function that releases the share, or nil if the owner has reached its limit.
func (x *Shares) Take(owner string, most int) (release func()) {
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

// Shut stops a server: it lets requests in flight finish within a time, aborts the remaining ones,
// and closes the listeners. The context may have ended.
func Shut(ctx context.Context, srv *http.Server, within time.Duration, listeners []net.Listener) {
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer done()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // aborts the remaining requests
	}
	for _, l := range listeners {
		_ = l.Close() // a listener that Serve has not reached is unknown to Shutdown
	}
}
