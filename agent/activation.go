package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// activated are the listening sockets that systemd has opened for the agent. Which key a socket is
// for says the address that it listens at, so that the config alone decides what the agent serves,
// and a unit cannot make it serve something else.
type activated struct {
	log *slog.Logger
	at  map[string]*os.File // by what [address] makes of where they listen

	mu   sync.Mutex
	used []string // guarded by mu
}

// address is a map key: of a unix socket its path, of TCP the literal of address and port.
func address(network, addr string) string {
	if network == "unix" {
		return "unix:" + addr
	}
	if p, err := netip.ParseAddrPort(addr); err == nil {
		return "tcp:" + netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).String()
	}
	return "tcp:" + addr // a host name; the kernel knows none
}

func newActivated(files []*os.File, log *slog.Logger) *activated {
	a := &activated{log: log, at: map[string]*os.File{}}
	for _, f := range files {
		if forDNS(f) {
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			log.Warn("a file of systemd is not used, since it is no listening socket", "name", f.Name(), "error", err)
			continue
		}
		a.at[address(l.Addr().Network(), l.Addr().String())] = f
		_ = l.Close() // a copy; that of a unix socket leaves its file alone
	}
	return a
}

// take returns a listener on the socket at an address; nil where systemd has opened none. It may be
// taken again.
func (a *activated) take(network, addr string) net.Listener {
	at := address(network, addr)
	f := a.at[at]
	if f == nil {
		return nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		a.log.Warn("a socket of systemd cannot be used; the agent opens its own", "address", addr, "error", err)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = append(a.used, at)
	return l
}

// warn names the sockets that nothing in the config asks for: who connects there waits in vain.
func (a *activated) warn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, f := range a.at {
		if !slices.Contains(a.used, at) && f.Name() != "log" { // receivers are opened later
			a.log.Warn("systemd listens for the agent where the config names nothing; give the socket unit and the config the "+
				"same address", "name", f.Name(), "address", at)
		}
	}
}

// listenUnix returns the socket that systemd has opened at the path, else it opens one.
func (a *Agent) listenUnix(ctx context.Context, s config.Socket, gid int) (net.Listener, error) {
	l := a.sockets.take("unix", s.Path)
	if l == nil {
		u, err := listenUnix(ctx, s, gid)
		if err != nil {
			return nil, err // not u, which would be a listener that is not nil
		}
		return u, nil
	}
	if err := share(s.Path, s.Mode, gid); err != nil {
		a.log.Warn("a socket of systemd keeps the group and mode of its unit; set SocketUser= there to the agent's user",
			"socket", s.Path, "error", err)
	}
	return l, nil
}

// listenTCP returns the socket that systemd has opened at the address, else it opens one.
func (a *Agent) listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	if l := a.sockets.take("tcp", addr); l != nil {
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, portTaken(addr, err)
	}
	return l, nil
}
