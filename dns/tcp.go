package dns

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
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
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); _ = l.Close() })
	defer func() {
		if !stop() {
			<-closed // of two concurrent calls of Close, only the first one waits for the descriptor
		}
	}()
	defer l.Close()
	if c, ok := l.(syscall.Conn); ok {
		at.foreign = s.owners.foreign(c)
	}
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
		t := at.newConn(conns, c)
		if !s.conns.admit(t) {
			t.cancel()
			_ = c.Close()
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer s.conns.remove(t)
			t.serve(ctx)
		}()
	}
}

// tcpConn is a client connection. The owner of a slot may send one message to out, which has a
// capacity of one message per slot.
type tcpConn struct {
	listener
	conn   net.Conn
	ctx    context.Context
	cancel context.CancelFunc // ends the connection, also if the client does not read
	peer   netip.AddrPort
	local  netip.Addr
	slots  chan struct{}
	out    chan []byte
	ending atomic.Bool // the server is shutting down

	busy   atomic.Int32  // queries without a complete reply
	idleAt atomic.Uint64 // turn of conns in which it became idle

	// The lock of conns guards these fields.
	index         int // in conns.open, or -1
	owner         owner
	resolved      bool // owner is the result of a lookup
	group, member *share
}

func (l listener) newConn(ctx context.Context, c net.Conn) *tcpConn {
	t := &tcpConn{listener: l, conn: c, peer: addressOfConn(c.RemoteAddr()), local: addressOfConn(c.LocalAddr()).Addr(),
		index: -1, slots: make(chan struct{}, maxPipelined), out: make(chan []byte, maxPipelined)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.idleAt.Store(l.s.conns.turn.Add(1))
	return t
}

// Reply implements [forward.Replier].
func (t *tcpConn) Reply(to forward.ReplyTo, wire []byte) {
	t.out <- bytes.Clone(t.s.finish(to, wire))
}

// serve serves the connection until its context ends. When the server context ends, it reads only
// messages in transit. Replies are sent in the order in which they become available.
func (t *tcpConn) serve(server context.Context) {
	s, ctx, cancel, c := t.s, t.ctx, t.cancel, t.conn
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
	t.read(ctx, c)
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
func (t *tcpConn) read(ctx context.Context, c net.Conn) {
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
		t.busy.Add(1)
		to := forward.ReplyTo{Via: t, Addr: t.peer, Local: t.local, At: t.s.now()}
		reply, f := t.s.handle(&q, m, to, true, t.s.turn.Add(1), t.s.tcp, nil)
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
		t.idleAt.Store(t.s.conns.turn.Add(1)) // before the connection appears idle
		t.busy.Add(-1)
		<-t.slots
	}
}
