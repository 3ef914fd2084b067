package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
)

// openHolder creates the holder of FIFOs and sockets, if one is configured.
func (a *Agent) openHolder(cfg *config.Config) {
	if a.deps.Hold != nil {
		a.holder = hold.Open(hold.Options{Dir: cfg.Paths.Run, Command: a.deps.Hold})
	}
}

// heldUnix returns the name of a held Unix socket. It has the identity of the socket file, because
// nothing reaches a socket whose file was replaced or removed. It returns "" if there is no file.
func heldUnix(prefix, path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return ""
	}
	return fmt.Sprintf("%sunix/%x:%d/%s", prefix, st.Dev, st.Ino, path)
}

// heldTCP returns the name of a held TCP socket. It has the network namespace of the agent, because
// a holder outlives the namespace of a pod.
func heldTCP(prefix, addr string) string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return ""
	}
	return prefix + "tcp/" + strconv.FormatUint(st.Ino, 10) + "/" + addr
}

// takeHeld returns the listening socket that an earlier agent left under a name, with the
// connections that wait in it, or nil.
func (a *Agent) takeHeld(name string) net.Listener {
	if a.holder == nil || name == "" {
		return nil
	}
	f, ok := a.holder.Take(name)
	if !ok {
		return nil
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err == nil {
		err = relisten(f)
	}
	if err != nil {
		a.log.Warn("a held socket cannot be used; the agent opens another one", "name", name, "error", err)
		_ = a.holder.Release(name)
		return nil
	}
	if err := a.holder.Hold(name, f); err != nil { // so that the next holder process gets it too
		a.log.Warn("a listening socket is not held while the agent is down; retrying", "name", name, "error", err)
	}
	return l
}

// relisten makes this process the peer that clients of a Unix socket see (SO_PEERCRED).
func relisten(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), unix.SOMAXCONN) })
	return errors.Join(failed, err)
}

// holdListener passes a new listening socket to the holder.
func (a *Agent) holdListener(name string, l interface{ File() (*os.File, error) }) {
	if a.holder == nil || name == "" {
		return
	}
	f, err := l.File()
	if err == nil {
		err = a.holder.Hold(name, f)
		_ = f.Close()
	}
	if err != nil {
		a.log.Warn("a listening socket is not held while the agent is down; retrying", "name", name, "error", err)
	}
}

// releaseListeners releases held sockets that the config does not name any more. Receivers that
// are not open yet keep theirs.
func (a *Agent) releaseListeners(cfg *config.Config) {
	if a.holder == nil {
		return
	}
	for _, r := range cfg.AccessLog.Receivers {
		name := heldTCP(hold.InPrefix, r.Address)
		if path, ok := strings.CutPrefix(r.Address, "unix:"); ok {
			name = heldUnix(hold.InPrefix, path)
		}
		if f, ok := a.holder.Take(name); ok {
			_ = f.Close()
		}
	}
	if err := errors.Join(a.holder.ReleaseUnused(hold.APIPrefix), a.holder.ReleaseUnused(hold.InPrefix)); err != nil {
		a.log.Warn("the holder still holds sockets that the config does not name", "error", err)
	}
}

// listenReceiver opens the Unix socket of a receiver.
func (a *Agent) listenReceiver(ctx context.Context, s config.Socket) (net.Listener, error) {
	return a.listenUnix(ctx, hold.InPrefix, s, groupID("accessLog.receivers.group", s.Group, a.log))
}
