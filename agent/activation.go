package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// activated holds the listening sockets from systemd. Their addresses, not their names, decide
// which config key they serve. So only the config decides what the agent serves, and a unit cannot
// make it serve something else.
type activated struct {
	log *slog.Logger
	at  map[string]*os.File // by [address]

	mu   sync.Mutex
	used []string // guarded by mu
}

// address returns a map key: the path of a Unix socket, or the literal IP address and port of TCP.
func address(network, addr string) string {
	if network == "unix" {
		return "unix:" + addr
	}
	if p, err := netip.ParseAddrPort(addr); err == nil {
		return "tcp:" + netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).String()
	}
	return "tcp:" + addr // a host name, which no socket of the kernel has
}

func newActivated(files []*os.File, log *slog.Logger) *activated {
	a := &activated{log: log, at: map[string]*os.File{}}
	for _, f := range files {
		if forDNS(f) {
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			log.Warn("a file from systemd is ignored, because it is not a listening socket", "name", f.Name(), "error", err)
			continue
		}
		a.at[address(l.Addr().Network(), l.Addr().String())] = f
		_ = l.Close() // closes a copy, and does not remove the file of a Unix socket
	}
	return a
}

// take returns a listener on the socket at an address, or nil if systemd has not opened one. It may
// be called again.
func (a *activated) take(network, addr string) net.Listener {
	at := address(network, addr)
	f := a.at[at]
	if f == nil {
		return nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		a.log.Warn("a socket from systemd cannot be used; the agent opens its own", "address", addr, "error", err)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = append(a.used, at)
	return l
}

// warn logs sockets that no config key uses, because their clients would wait forever.
func (a *activated) warn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, f := range a.at {
		if !slices.Contains(a.used, at) && f.Name() != "log" { // receivers open later
			a.log.Warn("systemd listens for the agent where the config names nothing; give the socket unit and the config the "+
				"same address", "name", f.Name(), "address", at)
		}
	}
}

// listenUnix returns the socket at the path from systemd or from the holder, or opens one. The
// holder keeps it under a name with the prefix.
func (a *Agent) listenUnix(ctx context.Context, prefix string, s config.Socket, gid int) (net.Listener, error) {
	if l := a.sockets.take("unix", s.Path); l != nil {
		if err := share(s.Path, s.Mode, gid); err != nil {
			a.log.Warn("a socket from systemd keeps the group and mode of its unit; set SocketUser= in the unit to the "+
				"agent's user", "socket", s.Path, "error", err)
		}
		return l, nil
	}
	name := heldUnix(prefix, s.Path)
	if l := a.held.take(name); l != nil {
		err := share(s.Path, s.Mode, gid)
		if err == nil {
			a.held.remember(name, s.Path)
			return l, nil
		}
		a.log.Warn("a held socket cannot get its group and mode; the agent opens another one", "socket", s.Path, "error", err)
		_ = l.Close()
		if err := os.Remove(s.Path); err != nil {
			return nil, fmt.Errorf("socket %s: %w", s.Path, err)
		}
	}
	l, err := listenUnix(ctx, s, gid)
	if err != nil {
		return nil, err // returning l would be a non-nil interface
	}
	a.held.addUnix(prefix, s.Path, l)
	return l, nil
}

// listenTCP returns the socket at the address from systemd or from the holder, or opens one. The
// holder keeps it under a name with the prefix.
func (a *Agent) listenTCP(ctx context.Context, prefix, addr string) (net.Listener, error) {
	if l := a.sockets.take("tcp", addr); l != nil {
		return l, nil
	}
	name := heldTCP(prefix, addr)
	if l := a.held.take(name); l != nil {
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, portTaken(addr, err)
	}
	a.held.add(name, l.(*net.TCPListener))
	return l, nil
}
