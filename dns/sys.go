package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepare sets socket options before the socket is bound, so that they hold for the first packet.
func prepare(share bool) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) {
			if share {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			err = errors.Join(err, askDestination(int(fd), 1))
		})
		return errors.Join(cerr, err)
	}
}

// wantDestination calls askDestination for an open socket. A socket that is bound to one address
// needs no destinations, and reading and setting them takes time.
func wantDestination(c *net.UDPConn, want bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	on := 0
	if want {
		on = 1
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = askDestination(int(fd), on) })
	return errors.Join(err, failed)
}

// askDestination requests the destination address of each packet, which is the source address of
// the reply (ip(7), RFC 3542), or no longer if on is 0.
func askDestination(fd, on int) error {
	v4 := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, on)
	// One of the two options is for the other family.
	if v6 := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, on); v4 != nil && v6 != nil {
		return fmt.Errorf("request the destination of packets: %w", errors.Join(v4, v6))
	}
	return nil
}

// growBuffer enlarges the receive buffer of a socket, if possible to a size in bytes, and returns
// its size.
func growBuffer(c *net.UDPConn, size int) (got int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		// The kernel doubles the size for its own data.
		now := func() { got, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); got /= 2 }
		if now(); err != nil || got >= size {
			return
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}
		if err == nil {
			now()
		}
	})
	return got, errors.Join(cerr, err)
}

// listens reports whether a TCP socket accepts connections.
func listens(l *net.TCPListener) bool {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	on := 0
	cerr := raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN) })
	return cerr == nil && err == nil && on != 0
}

// The code below reads and writes kernel structures in the layout of 64-bit systems. This
// constant does not compile on other systems.
const _ = uint(unix.SizeofCmsghdr - 16)

// Control messages consist of a header of 16 bytes (length, level, type) and a struct in_pktinfo
// (interface, local address, destination) or in6_pktinfo (destination, interface).
const (
	controlHeader = unix.SizeofCmsghdr
	pktinfo4Len   = unix.SizeofInet4Pktinfo
	pktinfo6Len   = unix.SizeofInet6Pktinfo
)

// destination returns the local address from control messages, or the zero Addr.
func destination(b []byte) netip.Addr {
	for len(b) >= controlHeader {
		n := binary.NativeEndian.Uint64(b)
		level, typ := binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
		if n < controlHeader || n > uint64(len(b)) {
			break
		}
		switch data := b[controlHeader:n]; {
		case level == unix.IPPROTO_IP && typ == unix.IP_PKTINFO && len(data) >= pktinfo4Len:
			return netip.AddrFrom4([4]byte(data[4:8]))
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= pktinfo6Len:
			a := netip.AddrFrom16([16]byte(data[:16])).Unmap()
			if a.IsLinkLocalUnicast() && a.Is6() {
				return netip.Addr{} // routing by the client's scope selects the source
			}
			return a
		}
		b = b[min(uint64(len(b)), (n+7)&^7):]
	}
	return netip.Addr{}
}

// appendSource appends a control message that sets the source address of a packet.
func appendSource(b []byte, a netip.Addr) []byte {
	head := func(size, level, typ int) {
		b = binary.NativeEndian.AppendUint64(b, uint64(controlHeader+size))
		b = binary.NativeEndian.AppendUint32(b, uint32(level))
		b = binary.NativeEndian.AppendUint32(b, uint32(typ))
	}
	switch {
	case a.Is4():
		head(pktinfo4Len, unix.IPPROTO_IP, unix.IP_PKTINFO)
		v := a.As4()
		b = append(b, 0, 0, 0, 0)
		b = append(b, v[:]...)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the destination, and padding to a multiple of 8
	case a.Is6():
		head(pktinfo6Len, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO)
		v := a.As16()
		b = append(b, v[:]...)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	return b
}

// passing reports whether a socket error is about an earlier packet, so that the socket is still
// usable.
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EMSGSIZE)
}
