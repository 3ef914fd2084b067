package netsock

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Options describes a network namespace whose queries are redirected.
type Options struct {
	// Name describes the namespace; "" is that of this process.
	Name string
	// Do runs a function on a thread in the namespace.
	Do func(func() error) error
	// Mark is set on sockets (SO_MARK), so that the redirection exempts them.
	Mark int
	// Zone is the conntrack zone of redirected UDP.
	Zone uint16
}

// Network is a network namespace whose queries are redirected. It implements [forward.Network].
type Network struct {
	o      Options
	tables *conntrack
	enter  sync.Mutex // at most one thread is in the namespace
}

// Open opens a network. It returns an error if the kernel cannot find the servers of redirected
// queries.
func Open(o Options) (*Network, error) {
	n := &Network{o: o}
	err := o.Do(func() (err error) {
		n.tables, err = newConntrack()
		return err
	})
	if err != nil {
		return nil, err
	}
	none := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	if _, err := n.Original(false, none, none); err != nil && !errors.Is(err, errNoEntry) {
		n.Close()
		return nil, fmt.Errorf("find the servers of redirected queries: %w", err)
	}
	return n, nil
}

// Close closes the network. Sockets from Connect stay open.
func (n *Network) Close() { n.tables.close() }

// Name implements [forward.Network].
func (n *Network) Name() string { return n.o.Name }

// Original implements [forward.Network].
func (n *Network) Original(tcp bool, client, local netip.AddrPort) (netip.AddrPort, error) {
	proto, zone := byte(unix.IPPROTO_UDP), n.o.Zone
	if tcp {
		proto, zone = unix.IPPROTO_TCP, 0
	}
	return n.tables.original(proto, zone, client, local)
}

// Connect implements [forward.Network]. Only the creation of the socket needs a thread in the
// namespace.
func (n *Network) Connect(network string, server netip.AddrPort) (*os.File, error) {
	kind := unix.SOCK_DGRAM
	if network == "tcp" {
		kind = unix.SOCK_STREAM
	}
	domain, to := sockaddr(server)
	fd, err := n.socket(domain, kind)
	if err != nil {
		return nil, fmt.Errorf("open a socket in the network namespace %s: %w", n.o.Name, err)
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, errors.Join(os.NewSyscallError("connect", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), network), nil
}

// sockaddr returns the address family and the address of a server.
func sockaddr(server netip.AddrPort) (int, unix.Sockaddr) {
	a, port := server.Addr(), int(server.Port())
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: a.As16()}
}

// socket creates a socket in the namespace.
func (n *Network) socket(domain, kind int) (fd int, err error) {
	n.enter.Lock()
	defer n.enter.Unlock()
	err = n.o.Do(func() error {
		fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, n.o.Mark); err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	return fd, err
}
