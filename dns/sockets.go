package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// Sockets are what a server answers on. Several for UDP on one address share its queries
// (SO_REUSEPORT): each of them must be served, as the kernel gives each its part.
type Sockets struct {
	UDP []*net.UDPConn
	TCP []*net.TCPListener
}

// FromFiles returns the sockets of files that were opened before: by systemd, or by a process that
// holds them while this one starts again. What has queued up in them meanwhile is answered. The
// files may be in any order; they stay open, and the caller's. One that is no bound socket for UDP
// and no listening one for TCP is an error that names it.
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
			err = fmt.Errorf("a socket for %s is no place for DNS; pass one for UDP or TCP", p.LocalAddr().Network())
		case c.RemoteAddr() != nil:
			err = fmt.Errorf("it is connected to %s; pass a socket that is only bound", c.RemoteAddr())
		case c.LocalAddr().(*net.UDPAddr).Port == 0:
			err = errors.New("it is bound to no port; bind it first")
		}
		if err != nil {
			return errors.Join(err, p.Close())
		}
		s.UDP = append(s.UDP, c)
		return nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("it is no socket of this host (%w); pass one for UDP or TCP", err)
	}
	t, ok := l.(*net.TCPListener)
	switch {
	case !ok:
		err = fmt.Errorf("a listener for %s is no place for DNS; pass one for UDP or TCP", l.Addr().Network())
	case !listens(t):
		err = errors.New("it does not listen; call listen(2) first")
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.TCP = append(s.TCP, t)
	return nil
}

// Listen opens sockets for UDP and TCP on one address; several for UDP share its queries among
// processors. With port 0 all get the same free one. Errors name the address.
func Listen(ctx context.Context, addr netip.AddrPort, udp int) ([]*net.UDPConn, net.Listener, error) {
	var s Sockets
	if err := s.Complete(ctx, addr, udp); err != nil {
		return nil, nil, err
	}
	return s.UDP, s.TCP[0], nil
}

// Complete opens what is missing of the sockets of an address, as [Listen] does: those for UDP
// where there is none, and one for TCP. What was there stays as it is, in number too. After an
// error too nothing else is there.
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
		if addr.Port() != 0 || try == 50 { // a port that is free for TCP may be taken for UDP
			return fmt.Errorf("listen for DNS on %s: %w", addr, err)
		}
	}
}

// complete opens the socket for TCP first: where the address belongs to another process, those for
// UDP would share its queries for a moment if that process has the same user.
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

// Files returns the sockets as files, for another process or [FromFiles]: first those for UDP, then
// those for TCP. They are duplicates, and keep what queues up when the server has closed its own.
// The caller closes them.
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

// Close closes the sockets that nobody serves; a server closes its own.
func (s *Sockets) Close() (err error) {
	for _, c := range s.UDP {
		err = errors.Join(err, c.Close())
	}
	for _, l := range s.TCP {
		err = errors.Join(err, l.Close())
	}
	return err
}
