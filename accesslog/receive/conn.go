package receive

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// conn is one connection.
type conn struct {
	r     *Receiver
	peer  net.Conn
	raw   syscall.RawConn // of the socket; nil where it has none
	tls   *tls.Conn       // nil without TLS
	lines accesslog.Lines

	turn   bool // of r.turns is taken
	rest   bool // what nobody will read is counted
	ending sync.Once
	first  [512]byte // with TLS, what an idle connection waits with, in the place of a buffer
	have   int
}

func newConn(r *Receiver, c net.Conn) *conn {
	s := &conn{r: r, peer: c,
		lines: accesslog.Lines{To: r.opts.To, Count: &r.count, Max: r.opts.MaxLine, Buffers: r.memory}}
	if sc, ok := c.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn() // without it, conn is read
	}
	if r.opts.TLS != nil {
		s.tls = tls.Server(c, r.opts.TLS)
		s.peer = s.tls
	}
	return s
}

// serve reads the connection to its end.
func (s *conn) serve(ctx context.Context) {
	defer s.peer.Close()
	s.r.add(s)
	defer s.r.remove(s)
	if s.tls != nil {
		hs, cancel := context.WithTimeout(ctx, tlsHandshakeTime)
		err := s.tls.HandshakeContext(hs)
		cancel()
		if err != nil {
			s.r.failed.Add(1)
			s.r.log.Debug("a handshake failed", "from", s.peer.RemoteAddr(), "error", err)
			return
		}
	}
	read := s.readTLS
	if s.tls == nil && s.raw != nil {
		read = s.readSocket
	}
	for {
		_, err := read(ctx)
		held := s.lines.Flush(ctx)
		s.endTurn()
		if held != nil {
			s.giveUp()
			return
		}
		if err != nil {
			if errors.Is(err, errTimeUp) {
				s.countRest()
			}
			break
		}
	}
	if err := s.lines.Finish(ctx); err != nil {
		s.giveUp()
	}
}

// giveUp counts what cannot be handed on any more, here and in the kernel.
func (s *conn) giveUp() {
	s.lines.Drop(accesslog.CauseStopped)
	s.countRest()
}

// errTimeUp says that the peer did not end in time.
var errTimeUp = errors.New("the time to end is over")

// turns lets few connections at a time read into a large buffer and hand on what they have read, in
// the order of their arrival. So those that flood take neither memory each, nor the place of the
// line of a quiet one: it would wait at the destination until each of them has written as much as
// it may.
type turns chan struct{}

// mostTurns is one for what is written, and others for what is read meanwhile.
const mostTurns = 4

// tryTurn takes a turn if the next read needs one, and reports whether it may begin.
func (s *conn) tryTurn() bool {
	if s.turn || !s.lines.Flows() {
		return true
	}
	select {
	case s.r.turns <- struct{}{}:
		s.turn = true
	default:
	}
	return s.turn
}

// endTurn gives the turn back, with the buffer but for the line that was begun.
func (s *conn) endTurn() {
	if s.turn {
		s.lines.Idle()
		<-s.r.turns
		s.turn = false
	}
}

// readSocket reads what is there, or waits without a buffer until there is something.
func (s *conn) readSocket(ctx context.Context) (n int, err error) {
	for {
		full := false
		failed := s.raw.Read(func(fd uintptr) bool {
			if full = !s.tryTurn(); full {
				return true
			}
			n, err = s.lines.Fill(func(b []byte) (int, error) { return readSocket(int(fd), b) })
			if errors.Is(err, unix.EAGAIN) {
				s.lines.Idle()
				s.endTurn()
				return false
			}
			return true
		})
		if failed != nil {
			return 0, timeUp(failed)
		}
		if !full {
			return n, err
		}
		select {
		case s.r.turns <- struct{}{}:
			s.turn = true
		case <-ctx.Done():
			return 0, errTimeUp
		}
	}
}

func readSocket(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0:
			return 0, io.EOF
		}
		return n, err
	}
}

// readTLS is readSocket for what is not read by system calls.
func (s *conn) readTLS(context.Context) (int, error) {
	if s.have == 0 && s.lines.Held() == 0 {
		s.lines.Idle()
	}
	if s.lines.Size() == 0 {
		n, err := s.peer.Read(s.first[:])
		if n == 0 {
			return 0, timeUp(err)
		}
		s.have = n
	}
	return s.lines.Fill(func(b []byte) (int, error) {
		if s.have > 0 {
			n := copy(b, s.first[:s.have])
			s.have = copy(s.first[:], s.first[n:s.have])
			return n, nil
		}
		n, err := s.peer.Read(b)
		return n, timeUp(err)
	})
}

func timeUp(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errTimeUp
	}
	return err
}

// end tells the peer that nothing is read after what is under way, and gives it a time to end. What
// is left of the drain time after it is for the last writes.
func (s *conn) end(within time.Duration) {
	s.ending.Do(func() {
		// A deadline for writes too: the alert of TLS must not wait for a peer that reads nothing.
		_ = s.peer.SetDeadline(time.Now().Add(within)) // one that is closed needs none
		if c, ok := s.peer.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite() // one that is gone is read to its end anyway
		}
	})
}

// countRest counts what the kernel has of the connection and nobody will read.
func (s *conn) countRest() {
	if s.raw == nil || s.rest {
		return
	}
	s.rest = true
	_ = s.raw.Control(func(fd uintptr) { // one that is closed has nothing
		s.r.abandoned.Add(uint64(max(unread(int(fd)), 0)))
	})
}
