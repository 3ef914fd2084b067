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
	raw   syscall.RawConn // nil without a socket
	tls   *tls.Conn       // nil without TLS
	lines accesslog.Lines

	turn    bool // holds a slot of r.turns
	counted bool // unread data was counted
	// State of readReady. The functions are created once, because each call would allocate them.
	ready func(fd uintptr) bool
	fill  func([]byte) (int, error)
	fd, n int
	err   error
	full  bool

	ending sync.Once
	first  [512]byte // with TLS, the read buffer of an idle connection
	have   int
}

func newConn(r *Receiver, c net.Conn) *conn {
	s := &conn{r: r, peer: c,
		lines: accesslog.Lines{To: r.opts.To, Count: &r.count, Max: r.opts.MaxLine, Buffers: r.memory}}
	if sc, ok := c.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn() // on error, the connection is read without it
		s.ready = s.readReady
		s.fill = func(b []byte) (int, error) { return readSocket(s.fd, b) }
	}
	if r.opts.TLS != nil {
		s.tls = tls.Server(c, r.opts.TLS)
		s.peer = s.tls
	}
	return s
}

// serve reads the connection until it ends.
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
			s.r.log.Debug("TLS handshake failed", "from", s.peer.RemoteAddr(), "error", err)
			return
		}
	}
	read := s.readTLS
	if s.tls == nil && s.raw != nil {
		read = s.readSocket
	}
	for {
		_, err := read(ctx)
		failed := s.lines.Flush(ctx)
		s.endTurn()
		if failed != nil {
			s.giveUp()
			return
		}
		if err != nil {
			if errors.Is(err, errDrainTimeout) {
				s.countUnread()
			}
			break
		}
	}
	if err := s.lines.Finish(ctx); err != nil {
		s.giveUp()
	}
}

// giveUp counts lines that cannot be delivered anymore, here and in the kernel.
func (s *conn) giveUp() {
	s.lines.Drop(accesslog.CauseStopped)
	s.countUnread()
}

// errDrainTimeout means that the peer did not close the connection in time.
var errDrainTimeout = errors.New("the drain time is over")

// turns limits how many connections at a time use a large buffer, in order of arrival. So flooding
// connections do not each use that much memory, and do not delay the lines of quiet ones at the
// destination.
type turns chan struct{}

// maxTurns allows one connection to write while others read.
const maxTurns = 4

// tryTurn acquires a turn if the next read needs one, and reports whether the read may begin.
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

// endTurn releases the turn and the buffer, except for a partial line.
func (s *conn) endTurn() {
	if s.turn {
		s.lines.Idle()
		<-s.r.turns
		s.turn = false
	}
}

// readSocket reads available data. It waits without holding a buffer.
func (s *conn) readSocket(ctx context.Context) (n int, err error) {
	for {
		if failed := s.raw.Read(s.ready); failed != nil {
			return 0, asDrainTimeout(failed)
		}
		if !s.full {
			return s.n, s.err
		}
		select {
		case s.r.turns <- struct{}{}:
			s.turn = true
		case <-ctx.Done():
			return 0, errDrainTimeout
		}
	}
}

// readReady reads from the socket once. It returns false if there is no data. The result is in full
// if the connection needs a turn, and else in n and err.
func (s *conn) readReady(fd uintptr) bool {
	if s.full = !s.tryTurn(); s.full {
		return true
	}
	s.fd = int(fd)
	s.n, s.err = s.lines.Fill(s.fill)
	if errors.Is(s.err, unix.EAGAIN) {
		s.lines.Idle()
		s.endTurn()
		return false
	}
	return true
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

// readTLS reads connections that cannot be read by system calls.
func (s *conn) readTLS(context.Context) (int, error) {
	if s.have == 0 && s.lines.Held() == 0 {
		s.lines.Idle()
	}
	if s.lines.Size() == 0 {
		n, err := s.peer.Read(s.first[:])
		if n == 0 {
			return 0, asDrainTimeout(err)
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
		return n, asDrainTimeout(err)
	})
}

// asDrainTimeout replaces timeout errors with errDrainTimeout.
func asDrainTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errDrainTimeout
	}
	return err
}

// end closes the write side of the connection and sets a deadline for the peer. The rest of the
// drain time is for the last writes.
func (s *conn) end(within time.Duration) {
	s.ending.Do(func() {
		// The deadline applies to writes too: the TLS alert must not wait for a peer that does not read.
		_ = s.peer.SetDeadline(time.Now().Add(within)) // fails only if closed
		if c, ok := s.peer.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite() // fails only if the peer is gone
		}
	})
}

// countUnread counts data in the kernel that will not be read.
func (s *conn) countUnread() {
	if s.raw == nil || s.counted {
		return
	}
	s.counted = true
	_ = s.raw.Control(func(fd uintptr) { // a closed connection has no data
		s.r.abandoned.Add(uint64(max(unread(int(fd)), 0)))
	})
}
