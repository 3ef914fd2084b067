package dns

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// maxPipelined is the maximum number of queries in progress on one TCP connection (RFC 7766
// section 6.2.1.1).
const maxPipelined = 100

// ServeTCP serves the connections of a listener until ctx ends, and closes the listener. Open
// connections then get half a second for their queries; idle ones are closed earlier. ServeTCP
// returns when all of its goroutines have ended.
func (s *Server) ServeTCP(ctx context.Context, l net.Listener) error {
	return s.ServeTCPFrom(ctx, l, nil)
}

func (s *Server) serveListener(ctx context.Context, l net.Listener, at listener) error {
	conns, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		end()
		late := time.AfterFunc(s.drain, cut)
		defer late.Stop()
		wg.Wait()
	}()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default: // an error of this connection, or no free descriptors
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		peer := addressOfConn(c.RemoteAddr())
		if !s.admit(peer.Addr()) {
			_ = c.Close()
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer s.leave(peer.Addr())
			at.serveConn(ctx, conns, c, peer)
		}()
	}
}

// admit counts a connection, or returns false if there are too many.
func (s *Server) admit(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= s.o.MaxConns || s.byPeer[a] >= s.o.MaxPeerConns && !a.IsLoopback() {
		return false
	}
	s.conns++
	s.byPeer[a]++
	return true
}

func (s *Server) leave(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	if s.byPeer[a]--; s.byPeer[a] == 0 {
		delete(s.byPeer, a)
	}
}

// tcpConn is a client connection. The owner of a slot may send one message to out, which has a
// capacity of one message per slot.
type tcpConn struct {
	listener
	local  netip.Addr
	slots  chan struct{}
	out    chan []byte
	ending atomic.Bool // the server is shutting down
}

// Reply implements [forward.Replier].
func (t *tcpConn) Reply(to forward.ReplyTo, wire []byte) {
	t.s.waiting.release(to.Addr.Addr())
	t.s.reportSample(to, wire, fromUpstream)
	t.out <- bytes.Clone(wire)
}

// serveConn serves one connection until ctx ends. When the server context ends, it reads only
// messages in transit. Replies are sent in the order in which they become available.
func (l listener) serveConn(server, ctx context.Context, c net.Conn, peer netip.AddrPort) {
	s := l.s
	t := &tcpConn{listener: l, local: addressOfConn(c.LocalAddr()).Addr(), slots: make(chan struct{}, maxPipelined),
		out: make(chan []byte, maxPipelined)}
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		defer cancel()
		t.write(ctx, c)
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	soon := context.AfterFunc(server, func() {
		t.ending.Store(true)
		_ = c.SetReadDeadline(time.Now().Add(s.grace))
	})
	t.read(ctx, c, peer)
	soon()
	// Queries in progress still get their replies.
	linger := time.AfterFunc(s.o.Idle, cancel)
	for range maxPipelined {
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
		}
	}
	linger.Stop()
	stop()
	cancel()
	writer.Wait()
	_ = c.Close()
}

// read reads queries until the client closes the connection, is idle for too long, or sends an
// invalid message.
func (t *tcpConn) read(ctx context.Context, c net.Conn, peer netip.AddrPort) {
	in := mdns.Conn{Conn: c}
	var q table.Query
	for {
		if !t.ending.Load() && c.SetReadDeadline(time.Now().Add(t.s.o.Idle)) != nil || ctx.Err() != nil {
			return
		}
		m, err := in.ReadMsgHeader(nil)
		if err != nil {
			return
		}
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		reply, f := t.s.handle(&q, m, forward.ReplyTo{Via: t, Addr: peer, Local: t.local, At: t.s.now()}, true,
			t.s.turn.Add(1), t.s.tcp, nil)
		switch f {
		case replied:
			t.out <- reply
		case noReply: // not a query
			<-t.slots
			return
		}
	}
}

// write writes replies until ctx ends, or the client stops reading.
func (t *tcpConn) write(ctx context.Context, c net.Conn) {
	out := mdns.Conn{Conn: c}
	for {
		var b []byte
		wait := t.s.o.Idle
		select {
		case b = <-t.out:
		case <-ctx.Done(): // write replies that are ready
			wait = min(wait, time.Second)
			select {
			case b = <-t.out:
			default:
				return
			}
		}
		if err := c.SetWriteDeadline(time.Now().Add(wait)); err != nil {
			return
		}
		if _, err := out.Write(b); err != nil {
			return
		}
		<-t.slots
	}
}
