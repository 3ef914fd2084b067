package access

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Layout of a query for one TCP socket and of its response (sock_diag(7), struct inet_diag_req_v2
// and inet_diag_msg).
const (
	diagHeader  = unix.SizeofNlMsghdr
	diagRequest = diagHeader + 56
	diagUID     = diagHeader + 64
	diagAnswer  = diagHeader + 72
	established = 1 // TCP_ESTABLISHED
)

// tcpUser returns the user of this host who owns the other end of a loopback TCP connection. The
// kernel reports it while that end is open. The result is used only to separate limits and grants
// no access, because a process may have received the socket from another one.
func tcpUser(c net.Conn) (uid uint32, ok bool) {
	local, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	remote, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err1 != nil || err2 != nil || !remote.Addr().Unmap().IsLoopback() {
		return 0, false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, diagOf(remote, local), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, false
	}
	answer := make([]byte, 1024)
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel responds before the send returns
	if err != nil || n < diagAnswer {
		return 0, false
	}
	if k, is := from.(*unix.SockaddrNetlink); !is || k.Pid != 0 ||
		binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY || answer[diagHeader+1] != established {
		return 0, false
	}
	return binary.NativeEndian.Uint32(answer[diagUID:]), true
}

// diagOf builds the query for the socket that is bound to one address and connected to another.
func diagOf(bound, to netip.AddrPort) []byte {
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[diagHeader:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if bound.Addr().Unmap().Is4() {
		r[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // states
	binary.BigEndian.PutUint16(r[8:], bound.Port())
	binary.BigEndian.PutUint16(r[10:], to.Port())
	copy(r[12:28], bound.Addr().Unmap().AsSlice())
	copy(r[28:44], to.Addr().Unmap().AsSlice())
	binary.NativeEndian.PutUint64(r[48:], ^uint64(0)) // no cookie
	return b
}
