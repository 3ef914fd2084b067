package netsock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Messages of nfnetlink_conntrack (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	ctNew = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaZone       = 18
	ctaTupleIP    = 1 // in a tuple
	ctaTupleProto = 2
	ctaIPv4Src    = 1 // in CTA_TUPLE_IP; the destination follows
	ctaIPv6Src    = 3
	ctaProtoNum   = 1 // in CTA_TUPLE_PROTO
	ctaSrcPort    = 2
	ctaDstPort    = 3

	typeMask   = 0x3fff                  // of the type of an attribute
	msgHeader  = unix.SizeofNlMsghdr + 4 // with struct nfgenmsg
	maxReplies = 4                       // late replies that are skipped
)

// errNoEntry means that connection tracking does not know a query.
var errNoEntry = errors.New("the query is not in connection tracking")

// conntrack looks up entries in the connection tracking of one network namespace. It is safe for
// concurrent use.
type conntrack struct {
	mu       sync.Mutex
	fd       int // -1 when closed
	seq      uint32
	out, in  [4096]byte
	received int
}

// newConntrack opens a socket in the network namespace of the calling thread.
func newConntrack() (*conntrack, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err == nil {
		if err = unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to conntrack: %w", err)
	}
	return &conntrack{fd: fd}, nil
}

func (c *conntrack) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

// original returns the destination of the first packet of a connection, of which replies go from
// local to client. It allocates nothing unless it fails.
func (c *conntrack) original(proto byte, zone uint16, client, local netip.AddrPort) (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return netip.AddrPort{}, syscall.EBADF
	}
	c.seq++
	size := c.request(proto, zone, client, local)
	if errno := c.call(unix.SYS_SENDTO, &c.out[0], size); errno != 0 {
		return netip.AddrPort{}, fmt.Errorf("query conntrack: %w", errno)
	}
	for range maxReplies { // the kernel has replied when the request was sent
		if errno := c.call(unix.SYS_RECVFROM, &c.in[0], len(c.in)); errno != 0 {
			return netip.AddrPort{}, fmt.Errorf("read from conntrack: %w", errno)
		}
		b := c.in[:c.received]
		if len(b) < msgHeader || binary.NativeEndian.Uint32(b[8:]) != c.seq {
			continue
		}
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_ERROR:
			// #nosec G115 -- the kernel sends a negative errno
			errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])))
			if errno == unix.ENOENT {
				return netip.AddrPort{}, errNoEntry
			}
			return netip.AddrPort{}, fmt.Errorf("query conntrack: %w", errno)
		case ctNew:
			if a := destination(b[msgHeader:]); a.IsValid() {
				return a, nil
			}
			return netip.AddrPort{}, errors.New("the reply of conntrack has no destination")
		}
	}
	return netip.AddrPort{}, errors.New("conntrack does not reply")
}

// call sends or receives without blocking. Ordinary system calls would wake the monitor thread of
// the runtime.
func (c *conntrack) call(trap uintptr, b *byte, size int) syscall.Errno {
	for {
		n, _, errno := syscall.RawSyscall6(trap, uintptr(c.fd), uintptr(unsafe.Pointer(b)), uintptr(size),
			unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		c.received = int(n)
		return errno
	}
}

// request writes a request for an entry, and returns its size.
func (c *conntrack) request(proto byte, zone uint16, client, local netip.AddrPort) int {
	family, src := byte(unix.AF_INET), uint16(ctaIPv4Src)
	if client.Addr().Is6() {
		family, src = unix.AF_INET6, ctaIPv6Src
	}
	b := append(c.out[:unix.SizeofNlMsghdr], family, 0, 0, 0)
	b = nested(b, ctaTupleReply, func(b []byte) []byte {
		b = nested(b, ctaTupleIP, func(b []byte) []byte {
			return appendAddr(appendAddr(b, src, local.Addr()), src+1, client.Addr())
		})
		return nested(b, ctaTupleProto, func(b []byte) []byte {
			b = appendAttr(b, ctaProtoNum, []byte{proto})
			return appendNumber(appendNumber(b, ctaSrcPort, local.Port()), ctaDstPort, client.Port())
		})
	})
	if zone != 0 {
		b = appendNumber(b, ctaZone, zone)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], ctGet)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], c.seq)
	binary.NativeEndian.PutUint32(b[12:], 0)
	return len(b)
}

// nested appends an attribute that contains others.
func nested(b []byte, kind uint16, content func([]byte) []byte) []byte {
	start := len(b)
	b = content(append(b, 0, 0, 0, 0))
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start)) // #nosec G115 -- a request is small
	binary.NativeEndian.PutUint16(b[start+2:], kind|unix.NLA_F_NESTED)
	return b
}

func appendAddr(b []byte, kind uint16, a netip.Addr) []byte {
	if a.Is4() {
		v := a.As4()
		return appendAttr(b, kind, v[:])
	}
	v := a.As16()
	return appendAttr(b, kind, v[:])
}

// appendNumber appends an attribute with a number in network byte order.
func appendNumber(b []byte, kind, n uint16) []byte {
	return appendAttr(b, kind, []byte{byte(n >> 8), byte(n)})
}

// appendAttr appends an attribute with padding.
func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(value))) // #nosec G115 -- at most 20
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// attribute returns the value of an attribute, or nil.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == kind {
			return b[unix.SizeofNlAttr:size]
		}
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return nil
}

// destination returns the destination of an entry, or the zero AddrPort.
func destination(b []byte) netip.AddrPort {
	tuple := attribute(b, ctaTupleOrig)
	ip, port := attribute(tuple, ctaTupleIP), attribute(attribute(tuple, ctaTupleProto), ctaDstPort)
	a, ok := netip.AddrFromSlice(attribute(ip, ctaIPv4Src+1))
	if !ok {
		a, ok = netip.AddrFromSlice(attribute(ip, ctaIPv6Src+1))
	}
	if !ok || len(port) != 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
