package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

const (
	SocketsPerServer = 16
	usesPerSocket    = 1000

	// receiveSize is the maximum length of a datagram. If a server sends a longer one, it is
	// queried over TCP.
	receiveSize = 4096
)

// udpSocket is a connected socket: the kernel drops packets from other addresses. It is replaced
// after a while, because every local user can see its port.
type udpSocket struct {
	channel
	f      *Forwarder
	io     *datagrams
	local  netip.AddrPort
	index  int
	opened int64
	uses   int
	closed bool
}

// socket returns a socket for the next question to a server. The caller holds the lock.
func (f *Forwarder) socket(sv *server, now int64) (*udpSocket, error) {
	most := uint64(SocketsPerServer)
	if sv.origin.network() != nil {
		most = originSockets
	}
	index := int(f.random() % most)
	s := sv.sockets[index]
	if s != nil && (s.uses >= usesPerSocket || now-s.opened >= int64(f.timing.socketAge) || s.inFlight >= maxInFlight) {
		f.retire(s)
		s = nil
	}
	if s == nil {
		var err error
		if s, err = f.openSocket(sv, index, now); err != nil {
			for _, other := range sv.sockets {
				if other != nil && other.inFlight < maxInFlight {
					return other, nil
				}
			}
			return nil, err
		}
	}
	s.uses++
	return s, nil
}

// openSocket opens a socket and starts its reader.
func (f *Forwarder) openSocket(sv *server, index int, now int64) (*udpSocket, error) {
	if err := sv.mayOpen(); err != nil {
		return nil, err
	}
	conn, err := f.dial(context.Background(), sv, "udp")
	if err != nil {
		return nil, err
	}
	io, err := newDatagrams(conn.(*net.UDPConn))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s := &udpSocket{f: f, io: io, index: index, opened: now, local: netip.AddrPortFrom(local.Addr().Unmap(), local.Port())}
	s.server, s.udp = sv, s
	sv.sockets[index] = s
	sv.opened(1)
	f.locals[localAddr{sv.origin.network(), s.local}] = &s.channel
	f.wg.Add(1)
	go s.read()
	return s, nil
}

// retire stops the use of a socket. It is closed after its last question in flight.
func (f *Forwarder) retire(s *udpSocket) {
	if s.retired {
		return
	}
	s.retired = true
	s.server.sockets[s.index] = nil
	f.closeIdle(s)
}

// closeIdle closes a retired socket without questions in flight.
func (f *Forwarder) closeIdle(s *udpSocket) {
	if !s.retired || s.inFlight > 0 || s.closed {
		return
	}
	s.closed = true
	s.server.opened(-1)
	f.forgetLocal(&s.channel, s.local)
	if err := s.io.Close(); err != nil {
		f.log.Debug("Cannot close a socket to a name server", "server", s.server.addr, "error", err)
	}
}

// forgetLocal removes the local address of a socket.
func (f *Forwarder) forgetLocal(ch *channel, local netip.AddrPort) {
	at := localAddr{ch.server.origin.network(), local}
	if f.locals[at] == ch {
		delete(f.locals, at)
	}
}

// read reads until the socket is closed.
func (s *udpSocket) read() {
	defer s.f.wg.Done()
	w := s.f.worker()
	defer s.f.workers.Put(w)
	for {
		n, cut, err := s.io.read(w.in[:receiveSize])
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !s.f.socketError(&s.channel, err) {
				return
			}
		default:
			s.f.received(&s.channel, w, w.in[:n], cut)
		}
	}
}

// controlMark returns a function that sets SO_MARK on new sockets, or nil for mark 0.
func controlMark(mark uint32) func(context.Context, string, string, syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_ context.Context, _, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = setMark(fd, mark) }); err != nil {
			return err
		}
		if failed != nil {
			return fmt.Errorf("cannot set the mark %#x on a socket (%w); add the capability CAP_NET_ADMIN",
				mark, failed)
		}
		return nil
	}
}
