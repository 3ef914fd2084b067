package ads

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// connStreams is the maximum number of streams of one connection. An Envoy uses one.
	connStreams = 100
	// streamWindow is the number of bytes that a client may send on a stream from which the server
	// does not read (HTTP/2 flow control). connWindow is that of a connection.
	streamWindow = 64 << 10
	connWindow   = 256 << 10
	// requestWait is how long a large request waits for other large requests of its peer.
	// requestStall is how long these may remain without progress.
	requestWait  = 10 * time.Second
	requestStall = 30 * time.Second
)

// meteredConn is a connection that reserves memory for large requests. A gRPC server buffers a
// message of up to RecvBytes until it is complete, and a peer can send thousands at the same time.
// Before meteredConn reads a message that is larger than the window of its stream, it reserves the
// size from the limit of the peer. The reservation ends when the request is decoded, or when the
// stream or connection ends. TestLimitsOfGRPC shows why the limits of gRPC do not suffice.
type meteredConn struct {
	net.Conn
	s      *Server
	owner  *owner
	frames frames          // used by the goroutine that reads
	open   context.Context // canceled when the connection is closed
	end    context.CancelFunc

	mu       sync.Mutex
	reserved int64       // bytes of large requests that are incomplete or not decoded
	partial  int64       // bytes of the incomplete ones
	stall    *time.Timer // runs while reserved is not 0
}

// meter returns a metered connection, or an error if the peer has too many connections.
func (s *Server) meter(c net.Conn, p access.Peer) (*meteredConn, error) {
	limit := s.opts.MaxPeerConns
	if p.Root() {
		limit *= rootFactor
	}
	s.mu.Lock()
	o := s.ownerOf(p)
	if o.conns >= limit {
		s.mu.Unlock()
		s.cut(o, reasonConnections, "a peer has too many xDS connections; further ones are refused")
		s.refusals.record(p, node.Key{}, reasonConnections, fmt.Errorf("%s has %d xDS connections, which is the maximum; "+
			"see docs/xds.md for the bounds of a user", o.name, limit), s.opts.Now())
		return nil, fmt.Errorf("xds: %s has %d connections", o.name, limit)
	}
	o.conns++
	s.mu.Unlock()
	m := &meteredConn{Conn: c, s: s, owner: o}
	m.open, m.end = context.WithCancel(context.Background())
	m.frames = frames{begin: m.begin, drop: m.drop, full: m.full, maxPartial: 2 * connStreams}
	return m, nil
}

// cut counts a connection that is refused or closed, and logs the first one of a peer.
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
		m.release(m.reserved)
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

// isLarge reports whether a reservation is necessary for a request of this size. gRPC does not read
// requests that are larger than RecvBytes.
func (m *meteredConn) isLarge(size int) bool {
	return size > streamWindow && size <= m.s.opts.RecvBytes
}

// begin reserves memory for a large request. It waits if other requests of the peer use all of it.
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
				m.s.cut(m.owner,
					"too-many-bytes", "a peer sends too many large xDS requests at a time; one of its connections is closed")
			}
			return 0, fmt.Errorf("xds: the pending requests of %s have too many bytes", m.owner.name)
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
	m.release(reserved)
}

// decoded releases the reservation of a decoded request.
func (m *meteredConn) decoded(size int) {
	if m == nil || !m.isLarge(size) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(int64(size))
}

// release releases bytes. The caller holds mu.
func (m *meteredConn) release(n int64) {
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

// stalled closes a connection whose large requests make no progress. Complete requests that were
// never decoded, for example on a stream that has ended, are released.
func (m *meteredConn) stalled() {
	m.mu.Lock()
	partial := m.partial
	if partial == 0 {
		m.release(m.reserved)
	}
	m.mu.Unlock()
	if partial > 0 {
		m.s.cut(m.owner, "too-slow", "a large xDS request of a peer makes no progress; its connection is closed")
		_ = m.Close()
	}
}

// meteredCredentials wraps each connection in a meteredConn when its peer is known.
type meteredCredentials struct {
	credentials.TransportCredentials
	s *Server
}

// meteredInfo is the result of the handshake with the metered connection.
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

// unmetered returns the context of a call with the original AuthInfo, and the connection of the
// call.
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
