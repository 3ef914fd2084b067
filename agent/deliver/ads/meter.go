package ads

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// connStreams bounds the streams of one connection. An Envoy uses one.
	connStreams = 100
	// streamWindow is what a client may send on a stream that nobody reads, in bytes (HTTP/2 flow
	// control); connWindow is that of a connection.
	streamWindow = 64 << 10
	connWindow   = 256 << 10
	// requestWait is how long a large request waits for those of its peer that are under way, and
	// requestStall how long these may stay without one that is complete.
	requestWait  = 10 * time.Second
	requestStall = 30 * time.Second
)

// meteredConn is a connection whose large requests are counted while they are read. The gRPC server
// holds a message until it is whole, be it of RecvBytes, and a peer may have thousands under way:
// before one that is larger than the window of its stream is read, its size is taken off what the
// peer may have. It is given back when the request is decoded, or the stream or connection has
// ended.
type meteredConn struct {
	net.Conn
	s      *Server
	owner  *owner
	frames frames          // of the goroutine that reads
	open   context.Context // ends with the connection
	end    context.CancelFunc

	mu       sync.Mutex
	reserved int64       // bytes of large requests, under way or complete and not decoded
	partial  int64       // of these the ones under way
	stall    *time.Timer // runs while there are some
}

// meter counts a connection in, if its peer may have one more.
func (s *Server) meter(c net.Conn, p access.Peer) (*meteredConn, error) {
	limit := s.opts.MaxPeerConns
	if p.Root() {
		limit *= rootFactor
	}
	s.mu.Lock()
	o := s.ownerOf(p)
	if o.conns >= limit {
		s.mu.Unlock()
		s.cut(o, "too-many-connections", "a peer has too many xDS connections; no more of it are taken")
		return nil, fmt.Errorf("xds: %s has %d connections", o.name, limit)
	}
	o.conns++
	s.mu.Unlock()
	m := &meteredConn{Conn: c, s: s, owner: o}
	m.open, m.end = context.WithCancel(context.Background())
	m.frames = frames{begin: m.begin, drop: m.drop, full: m.full, maxPartial: 2 * connStreams}
	return m, nil
}

// cut counts a connection that is refused or ended, and logs the first one of the peer.
func (s *Server) cut(o *owner, reason, message string) {
	s.metrics.closed.WithLabelValues(reason).Inc()
	o.warned.Do(func() { s.opts.Log.Warn(message, "peer", o.name) })
}

// Read implements net.Conn.
func (m *meteredConn) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if n > 0 {
		if err := m.frames.feed(p[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Close implements net.Conn.
func (m *meteredConn) Close() error {
	if m.open.Err() == nil {
		m.mu.Lock()
		first := m.open.Err() == nil
		m.end()
		m.giveBack(m.reserved)
		m.mu.Unlock()
		if first {
			m.s.mu.Lock()
			m.owner.conns--
			m.s.dropOwner(m.owner)
			m.s.mu.Unlock()
		}
	}
	return m.Conn.Close()
}

// isLarge says whether a request of this size is counted. One that is larger than RecvBytes is not
// read at all.
func (m *meteredConn) isLarge(size int) bool {
	return size > streamWindow && size <= m.s.opts.RecvBytes
}

// begin takes what a large request needs off the account of the peer, and waits for it if need be.
func (m *meteredConn) begin(size int) (reserved int64, err error) {
	if !m.isLarge(size) {
		return 0, nil
	}
	n := int64(size)
	if !m.owner.requests.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(m.open, requestWait)
		defer cancel()
		if err := m.owner.requests.Acquire(ctx, n); err != nil {
			if m.open.Err() == nil {
				m.s.cut(m.owner, "too-many-bytes", "a peer has too many large xDS requests under way; a connection of it is closed")
			}
			return 0, fmt.Errorf("xds: the requests of %s that are under way take too many bytes", m.owner.name)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.Err() != nil {
		m.owner.requests.Release(n)
		return 0, net.ErrClosed
	}
	m.reserved += n
	m.partial += n
	if m.stall == nil {
		m.stall = time.AfterFunc(requestStall, m.stalled)
	}
	return n, nil
}

func (m *meteredConn) full(reserved int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partial -= min(reserved, m.partial)
}

func (m *meteredConn) drop(reserved int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partial -= min(reserved, m.partial)
	m.giveBack(reserved)
}

// decoded gives back what a request has taken that is decoded now.
func (m *meteredConn) decoded(size int) {
	if m == nil || !m.isLarge(size) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveBack(int64(size))
}

// giveBack returns bytes to the account. The mu is held.
func (m *meteredConn) giveBack(n int64) {
	if n = min(n, m.reserved); n > 0 {
		m.owner.requests.Release(n)
	}
	m.reserved -= n
	switch {
	case m.stall == nil:
	case m.reserved == 0:
		m.stall.Stop()
		m.stall = nil
	default:
		m.stall.Reset(requestStall)
	}
}

// stalled ends a connection whose requests do not become whole. Those that are whole and were not
// asked for, as on a stream that has ended, are forgotten.
func (m *meteredConn) stalled() {
	m.mu.Lock()
	partial := m.partial
	if partial == 0 {
		m.giveBack(m.reserved)
	}
	m.mu.Unlock()
	if partial > 0 {
		m.s.cut(m.owner, "too-slow", "a large xDS request of a peer does not go on; its connection is closed")
		_ = m.Close()
	}
}

// meteredCredentials makes a meteredConn of each connection, once it is known who it is of.
type meteredCredentials struct {
	credentials.TransportCredentials
	s *Server
}

// meteredInfo is what the credentials found out, with the connection that it is about.
type meteredInfo struct {
	credentials.AuthInfo
	conn *meteredConn
}

// ServerHandshake implements credentials.TransportCredentials.
func (c meteredCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.s.meter(conn,
		peerOf(peer.NewContext(context.Background(), &peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: info})))
	if err != nil {
		return nil, nil, err
	}
	return m, meteredInfo{AuthInfo: info, conn: m}, nil
}

// Clone implements credentials.TransportCredentials.
func (c meteredCredentials) Clone() credentials.TransportCredentials {
	return meteredCredentials{c.TransportCredentials.Clone(), c.s}
}

// unmetered returns the context of a call with the AuthInfo that the credentials gave, and the
// connection of the call.
func unmetered(ctx context.Context) (context.Context, *meteredConn) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	info, ok := p.AuthInfo.(meteredInfo)
	if !ok {
		return ctx, nil
	}
	inner := *p
	inner.AuthInfo = info.AuthInfo
	return peer.NewContext(ctx, &inner), info.conn
}
