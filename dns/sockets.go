package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// Sockets are the sockets of a server. Several UDP sockets on one address share its queries
// (SO_REUSEPORT). The kernel distributes queries over all of them, so each must be served.
type Sockets struct {
	UDP []*net.UDPConn
	TCP []*net.TCPListener
}

// FromFiles returns the sockets of files that systemd, or another process, opened earlier.
// Queries that arrived in the meantime are answered. The files may be in any order. FromFiles
// duplicates them, so the caller still closes them. A file that is neither a bound UDP socket nor
// a listening TCP socket causes an error that names it.
func FromFiles(files []*os.File) (s Sockets, err error) {
	for i, f := range files {
		if err := s.add(f); err != nil {
			return Sockets{}, errors.Join(fmt.Errorf("file %d (%s): %w", i, f.Name(), err), s.Close())
		}
	}
	return s, nil
}

func (s *Sockets) add(f *os.File) error {
	if p, err := net.FilePacketConn(f); err == nil {
		c, ok := p.(*net.UDPConn)
		switch {
		case !ok:
			err = fmt.Errorf("sockets for %s are not supported; pass one for UDP or TCP", p.LocalAddr().Network())
		case c.RemoteAddr() != nil:
			err = fmt.Errorf("it is connected to %s; pass a socket that is only bound", c.RemoteAddr())
		case c.LocalAddr().(*net.UDPAddr).Port == 0:
			err = errors.New("it is not bound to a port; bind it first")
		}
		if err != nil {
			return errors.Join(err, p.Close())
		}
		s.UDP = append(s.UDP, c)
		return nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("it is not a network socket (%w); pass one for UDP or TCP", err)
	}
	t, ok := l.(*net.TCPListener)
	switch {
	case !ok:
		err = fmt.Errorf("listeners for %s are not supported; pass one for UDP or TCP", l.Addr().Network())
	case !listens(t):
		err = errors.New("it is not listening; call listen(2) first")
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.TCP = append(s.TCP, t)
	return nil
}

// Listen opens UDP and TCP sockets on one address. Several UDP sockets spread its queries over
// processors. With port 0, all get the same free port. Errors name the address.
func Listen(ctx context.Context, addr netip.AddrPort, udp int) ([]*net.UDPConn, net.Listener, error) {
	var s Sockets
	if err := s.Complete(ctx, addr, udp); err != nil {
		return nil, nil, err
	}
	return s.UDP, s.TCP[0], nil
}

// Complete opens the missing sockets of an address, like [Listen]: UDP sockets if there are none,
// and one TCP socket. It does not change existing sockets or their number. If it fails, it closes
// the sockets that it opened.
func (s *Sockets) Complete(ctx context.Context, addr netip.AddrPort, udp int) error {
	for try := 0; ; try++ {
		now := *s
		err := now.complete(ctx, addr, udp)
		if err == nil {
			*s = now
			return nil
		}
		opened := Sockets{UDP: now.UDP[len(s.UDP):], TCP: now.TCP[len(s.TCP):]}
		_ = opened.Close()
		if addr.Port() != 0 || try == 50 { // a port that is free for TCP may be in use for UDP
			return fmt.Errorf("listen for DNS on %s: %w", addr, err)
		}
	}
}

// complete opens the TCP socket first. If another process of the same user has the address, UDP
// sockets would otherwise receive some of its queries for a moment.
func (s *Sockets) complete(ctx context.Context, addr netip.AddrPort, udp int) error {
	family := "4"
	if addr.Addr().Is6() {
		family = "6"
	}
	switch {
	case addr.Port() != 0:
	case len(s.TCP) > 0:
		addr = netip.AddrPortFrom(addr.Addr(), s.TCP[0].Addr().(*net.TCPAddr).AddrPort().Port())
	case len(s.UDP) > 0:
		addr = netip.AddrPortFrom(addr.Addr(), s.UDP[0].LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	if len(s.TCP) == 0 {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp"+family, addr.String())
		if err != nil {
			return err
		}
		s.TCP = append(s.TCP, l.(*net.TCPListener))
		addr = netip.AddrPortFrom(addr.Addr(), l.Addr().(*net.TCPAddr).AddrPort().Port())
	}
	if len(s.UDP) > 0 {
		return nil
	}
	lc := net.ListenConfig{Control: prepare(udp > 1)}
	for range max(udp, 1) {
		p, err := lc.ListenPacket(ctx, "udp"+family, addr.String())
		if err != nil {
			return err
		}
		s.UDP = append(s.UDP, p.(*net.UDPConn))
	}
	return nil
}

// Grow enlarges the receive buffers of the UDP sockets to a number of bytes, and returns the size
// of the smallest. It exceeds the limit of the system (net.core.rmem_max) with CAP_NET_ADMIN. It
// does not reduce buffers.
func (s *Sockets) Grow(size int) (smallest int, err error) {
	for i, c := range s.UDP {
		got, gerr := growBuffer(c, size)
		if err = errors.Join(err, gerr); i == 0 || got < smallest {
			smallest = got
		}
	}
	return smallest, err
}

// Files returns the sockets as files, for another process or [FromFiles]: first UDP, then TCP.
// The files are duplicates, so queries still queue in them after the server closes its own
// sockets. The caller closes them.
func (s *Sockets) Files() (files []*os.File, err error) {
	for _, c := range s.UDP {
		f, ferr := c.File()
		if err = errors.Join(err, ferr); ferr == nil {
			files = append(files, f)
		}
	}
	for _, l := range s.TCP {
		f, ferr := l.File()
		if err = errors.Join(err, ferr); ferr == nil {
			files = append(files, f)
		}
	}
	if err != nil {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return files, nil
}

// Close closes the sockets. A server closes the sockets that it serves, so Close is only for
// sockets without one.
func (s *Sockets) Close() (err error) {
	for _, c := range s.UDP {
		err = errors.Join(err, c.Close())
	}
	for _, l := range s.TCP {
		err = errors.Join(err, l.Close())
	}
	return err
}
