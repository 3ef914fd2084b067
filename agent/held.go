package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
)

// heldSockets passes listening sockets to the holder and takes them from it. A nil heldSockets
// does nothing.
type heldSockets struct {
	holder *hold.Holder
	log    *slog.Logger

	mu    sync.Mutex
	files map[string]string // paths of Unix sockets, by name
}

// openHolder creates the holder of FIFOs and sockets, if one is configured, and what passes the
// sockets of pods to it.
func (a *Agent) openHolder(cfg *config.Config) {
	if a.deps.Hold != nil {
		a.holder = hold.Open(hold.Options{Dir: cfg.Paths.Run, Command: a.deps.Hold})
		a.held = &heldSockets{holder: a.holder, log: a.log, files: map[string]string{}}
	}
	a.newPods(cfg)
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

// take returns the listening socket that an earlier agent left under a name, with the connections
// that wait in it, or nil.
func (h *heldSockets) take(name string) net.Listener {
	if h == nil || name == "" {
		return nil
	}
	f, ok := h.holder.Take(name)
	if !ok {
		return nil
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err == nil {
		err = relisten(f)
	}
	if err != nil {
		h.log.Warn("a held socket cannot be used; the agent opens another one", "name", name, "error", err)
		_ = h.holder.Release(name)
		return nil
	}
	h.hold(name, f) // so that the next holder process gets it too
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

func (h *heldSockets) hold(name string, f *os.File) {
	if err := h.holder.Hold(name, f); err != nil {
		h.log.Warn("a listening socket is not held while the agent is down; retrying", "name", name, "error", err)
	}
}

// addUnix passes a new Unix socket to the holder. Its file stays when the socket is closed.
func (h *heldSockets) addUnix(prefix, path string, l *net.UnixListener) {
	if h == nil {
		return
	}
	name := heldUnix(prefix, path)
	h.remember(name, path)
	l.SetUnlinkOnClose(false)
	h.add(name, l)
}

// add passes a new socket to the holder.
func (h *heldSockets) add(name string, l interface{ File() (*os.File, error) }) {
	if h == nil || name == "" {
		return
	}
	f, err := l.File()
	if err != nil {
		h.log.Warn("a listening socket is not held while the agent is down", "name", name, "error", err)
		return
	}
	h.hold(name, f)
	_ = f.Close()
}

func (h *heldSockets) remember(name, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[name] = path
}

// release releases held sockets that the config does not name any more. Receivers that are not open
// yet keep theirs.
func (h *heldSockets) release(cfg *config.Config) {
	if h == nil {
		return
	}
	for _, r := range cfg.AccessLog.Receivers {
		name := heldTCP(hold.InPrefix, r.Address)
		if path, ok := strings.CutPrefix(r.Address, "unix:"); ok {
			name = heldUnix(hold.InPrefix, path)
		}
		if f, ok := h.holder.Take(name); ok {
			_ = f.Close()
		}
	}
	if err := errors.Join(h.holder.ReleaseUnused(hold.APIPrefix), h.holder.ReleaseUnused(hold.InPrefix)); err != nil {
		h.log.Warn("the holder still holds sockets that the config does not name", "error", err)
	}
}

// removeFiles removes the files of Unix sockets that nothing holds for the next agent.
func (h *heldSockets) removeFiles() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, path := range h.files {
		prefix, _, _ := strings.Cut(name, "unix/")
		if h.holder.By(name) == "" && heldUnix(prefix, path) == name {
			_ = os.Remove(path)
		}
	}
}

// listenReceiver opens the Unix socket of a receiver.
func (a *Agent) listenReceiver(ctx context.Context, s config.Socket) (net.Listener, error) {
	return a.listenUnix(ctx, hold.InPrefix, s, groupID("accessLog.receivers.group", s.Group, a.log))
}
