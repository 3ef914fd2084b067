package dns

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// owner identifies the clients that share capacity. A member is a part of its group: a cgroup of a
// user. Addresses and network namespaces have one member. Both values are hashes with a random
// seed, so clients cannot choose equal ones.
type owner struct{ group, member uint64 }

// owners finds the owners of client sockets. It is safe for concurrent use.
type owners struct {
	seed maphash.Seed
	own  func() uint64 // cookie of the network namespace of this process; 0 if unknown
	// find returns the user and cgroup of a client's TCP or UDP socket. Tests replace it.
	find func(protocol uint8, client, server netip.AddrPort) (user, bool)

	mu     sync.Mutex
	diag   *os.File // netlink socket; nil until the first lookup
	recent [256]recentOwner
}

// user is the owner of a socket.
type user struct {
	uid    uint32
	cgroup uint64 // ID of the cgroup v2 in which the socket was created; 0 if unknown
}

// recentOwner is the owner of a UDP socket that was found a moment ago.
type recentOwner struct {
	client netip.AddrPort
	until  int64
	owner  owner
}

// recentTime is how long the owner of a UDP socket is remembered.
const recentTime = int64(time.Second)

func newOwners() *owners {
	o := &owners{seed: maphash.MakeSeed()}
	o.own = sync.OnceValue(func() uint64 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0
		}
		defer func() { _ = unix.Close(fd) }()
		return namespaceOf(fd)
	})
	o.find = o.ask
	return o
}

// namespaceOf returns the cookie of a socket's network namespace, or 0 before Linux 5.14.
func namespaceOf(fd int) uint64 {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return cookie
}

// foreign returns the cookie of a socket's network namespace if it is not that of this process.
// The socket table of such a namespace cannot be read from here.
func (o *owners) foreign(c syscall.Conn) (cookie uint64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	if err := raw.Control(func(fd uintptr) { cookie = namespaceOf(int(fd)) }); err != nil || cookie == o.own() {
		return 0
	}
	return cookie
}

func (o *owners) ofAddress(a netip.Addr) owner {
	h := maphash.Comparable(o.seed, a)
	return owner{h, ^h}
}

// ofNamespace returns the common owner of all clients of a namespace, such as a pod.
func (o *owners) ofNamespace(cookie uint64) owner {
	h := maphash.Comparable(o.seed, cookie)
	return owner{h, ^h}
}

func (o *owners) ofUser(u user) owner {
	return owner{maphash.Comparable(o.seed, u.uid), maphash.Comparable(o.seed, u)}
}

// unknown is the common owner of all sockets on this host that are not found, because they are
// closed, or because their connections were redirected from an unknown address.
func (o *owners) unknown() owner { return o.ofAddress(netip.Addr{}) }

// ofUDP returns the owner of the UDP socket that sent a query. The client may have connected it to
// any of the servers, because interception redirects.
func (o *owners) ofUDP(client netip.AddrPort, now int64, servers []netip.AddrPort) owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.recent[maphash.Comparable(o.seed, client)%uint64(len(o.recent))]
	if r.client == client && now < r.until {
		return r.owner
	}
	*r = recentOwner{client: client, until: now + recentTime, owner: o.unknown()}
	for _, s := range servers {
		if u, ok := o.find(unix.IPPROTO_UDP, client, s); ok {
			r.owner = o.ofUser(u)
			break
		}
	}
	return r.owner
}

// ofTCP returns the owner of the other end of an accepted connection.
func (o *owners) ofTCP(c net.Conn) owner {
	client, server := addressOfConn(c.RemoteAddr()), addressOfConn(c.LocalAddr())
	o.mu.Lock()
	defer o.mu.Unlock()
	u, ok := o.find(unix.IPPROTO_TCP, client, server)
	if !ok {
		if s := originalOf(c, server.Addr().Is4()); s.IsValid() {
			u, ok = o.find(unix.IPPROTO_TCP, client, s)
		}
	}
	if !ok {
		return o.unknown()
	}
	return o.ofUser(u)
}

// originalOf returns the address that the client of a redirected connection used.
func originalOf(c net.Conn, v4 bool) (a netip.AddrPort) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return a
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return a
	}
	_ = raw.Control(func(fd uintptr) {
		if v4 { // struct ipv6_mreq is at least as long as struct sockaddr_in
			if m, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
				b := m.Multiaddr
				a = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
			}
			return
		}
		if m, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			port := binary.NativeEndian.AppendUint16(nil, m.Addr.Port)
			a = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), binary.BigEndian.Uint16(port))
		}
	})
	return a
}

const (
	diagRequest = 56 // size of struct inet_diag_req_v2
	diagReply   = 72 // size of struct inet_diag_msg
	diagCgroup  = 21 // INET_DIAG_CGROUP_ID
)

// ask looks a socket up with sock_diag(7), which takes about 4 µs and no privilege. The caller
// holds the lock.
func (o *owners) ask(protocol uint8, client, server netip.AddrPort) (user, bool) {
	if client.Addr().Is4() != server.Addr().Is4() {
		return user{}, false
	}
	if o.diag == nil {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		if err != nil {
			return user{}, false
		}
		o.diag = os.NewFile(uintptr(fd), "sock_diag")
	}
	fd := int(o.diag.Fd())
	if err := unix.Sendto(fd, diagMessage(protocol, client, server), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return user{}, false
	}
	var buf [2048]byte
	n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT) // the kernel replies before sendto returns
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
	}
	if err != nil {
		return user{}, false
	}
	return diagUser(buf[:n])
}

// diagMessage returns a request for one socket.
func diagMessage(protocol uint8, client, server netip.AddrPort) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	binary.NativeEndian.PutUint32(b, uint32(len(b))) // #nosec G115 -- constant
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET6, protocol
	if client.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // any state
	from, to := client, server
	if protocol == unix.IPPROTO_UDP { // the kernel swaps source and destination of UDP
		from, to = server, client
	}
	binary.BigEndian.PutUint16(r[8:], from.Port())
	binary.BigEndian.PutUint16(r[10:], to.Port())
	copy(r[12:28], from.Addr().AsSlice())
	copy(r[28:44], to.Addr().AsSlice())
	binary.NativeEndian.PutUint64(r[48:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return b
}

// diagUser reads a reply. A socket without an inode is closed, and its user is no longer known.
func diagUser(b []byte) (u user, ok bool) {
	const least = unix.NLMSG_HDRLEN + diagReply
	if len(b) < least || binary.NativeEndian.Uint16(b[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return u, false
	}
	m := b[unix.NLMSG_HDRLEN:]
	if binary.NativeEndian.Uint32(m[68:]) == 0 {
		return u, false
	}
	u.uid = binary.NativeEndian.Uint32(m[64:])
	for a := m[diagReply:]; len(a) >= unix.SizeofNlAttr; {
		n := int(binary.NativeEndian.Uint16(a))
		if n < unix.SizeofNlAttr || n > len(a) {
			break
		}
		if binary.NativeEndian.Uint16(a[2:]) == diagCgroup && n == unix.SizeofNlAttr+8 {
			u.cgroup = binary.NativeEndian.Uint64(a[unix.SizeofNlAttr:])
		}
		a = a[min((n+3)&^3, len(a)):]
	}
	return u, true
}
