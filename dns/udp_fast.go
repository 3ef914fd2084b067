package dns

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// batch is the maximum number of packets per system call.
const batch = 32

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

// packets has the buffers and headers of one system call.
type packets struct {
	hdrs  [batch]mmsghdr
	iovs  [batch]unix.Iovec
	names [batch]unix.RawSockaddrInet6 // large enough for both address families
	oobs  [batch][64]byte
	bufs  [batch][]byte
}

func newPackets(size int) *packets {
	p := &packets{}
	all := make([]byte, batch*size)
	for i := range p.hdrs {
		p.bufs[i] = all[i*size : (i+1)*size : (i+1)*size]
		p.iovs[i].Base = &p.bufs[i][0]
		h := &p.hdrs[i].hdr
		h.Iov, h.Name, h.Control = &p.iovs[i], (*byte)(unsafe.Pointer(&p.names[i])), &p.oobs[i][0]
		h.SetIovlen(1)
	}
	return p
}

// ready prepares the headers to receive n packets.
func (p *packets) ready(n int) {
	for i := range n {
		h := &p.hdrs[i].hdr
		p.iovs[i].SetLen(len(p.bufs[i]))
		h.Namelen, h.Flags = unix.SizeofSockaddrInet6, 0
		h.SetControllen(len(p.oobs[i]))
	}
}

// from returns the sender of a packet.
func (p *packets) from(i int) netip.AddrPort {
	name := &p.names[i]
	port := func(at *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(at))[:]) }
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port(&v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), port(&name.Port))
}

// fastLoop answers the packets of one socket. It uses raw system calls that never block. An
// ordinary system call would wake the runtime's monitor thread, which costs more than the answer
// at a low rate.
type fastLoop struct {
	s       *Server
	count   *counters
	in, out *packets
	q       table.Query
	via     *udpReplier
	turn    uint32
	ended   *atomic.Bool
	local   netip.Addr // that the socket is bound to; invalid if it receives for several addresses
	err     error
}

func (s *Server) serveUDP(c *net.UDPConn, count *counters, via *udpReplier, ended *atomic.Bool) error {
	local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if local.IsUnspecified() {
		local = netip.Addr{}
	}
	if err := wantDestination(c, !local.IsValid()); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	l := &fastLoop{s: s, count: count, in: newPackets(maxQuery), out: newPackets(table.MaxUDP), via: via, ended: ended,
		local: local}
	l.in.ready(batch)
	err = raw.Read(l.run) // calls run whenever the socket is readable
	runtime.KeepAlive(l)
	if l.err != nil {
		return l.err
	}
	return err
}

// run answers all readable packets. It returns false to wait for more.
func (l *fastLoop) run(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&l.in.hdrs)), batch,
			unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno == syscall.EINTR || errno != 0 && passing(errno):
			continue
		case errno != 0:
			l.err = errno
			return true
		}
		l.send(fd, l.answer(int(n)))
		l.in.ready(int(n))
		switch {
		case n < batch:
			return false // the poller wakes the loop for packets that arrived meanwhile
		case l.ended.Load(): // under a flood, no read ever waits
			l.err = net.ErrClosed
			return true
		}
	}
}

// answer answers n packets, and returns the number of replies.
func (l *fastLoop) answer(n int) (replies int) {
	now := l.s.now()
	for i := range n {
		h := &l.in.hdrs[i]
		if h.hdr.Flags&unix.MSG_TRUNC != 0 || h.hdr.Namelen == 0 {
			continue
		}
		to := forward.ReplyTo{Via: l.via, Addr: l.in.from(i), Local: l.local, At: now}
		if !l.local.IsValid() {
			to.Local = destination(l.in.oobs[i][:h.hdr.Controllen])
		}
		l.turn++
		reply, f := l.s.handle(&l.q, l.in.bufs[i][:h.len], to, false, l.turn, l.count, l.out.bufs[replies][:0])
		if f == pending {
			l.via.waiting.Add(1)
		}
		if f != replied || len(reply) > table.MaxUDP {
			continue
		}
		l.out.names[replies] = l.in.names[i]
		o := &l.out.hdrs[replies].hdr
		o.Namelen, o.Flags = h.hdr.Namelen, 0
		control := 0
		if !l.local.IsValid() {
			control = len(appendSource(l.out.oobs[replies][:0], to.Local))
		}
		o.SetControllen(control)
		l.out.iovs[replies].SetLen(len(reply))
		replies++
	}
	return replies
}

// send sends replies. Replies that the kernel does not accept are lost, as packets may be.
func (l *fastLoop) send(fd uintptr, n int) {
	for sent := 0; sent < n; {
		done, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&l.out.hdrs[sent])),
			uintptr(n-sent), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno != 0:
			sent++ // skip the packet that cannot be sent
		default:
			sent += int(done)
		}
	}
}
