package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/lockfile"
)

// listenUnix opens a Unix socket with a mode and a group. It replaces a socket file without a
// listener. If a process listens, the error names it.
func listenUnix(ctx context.Context, c config.Socket, gid int) (*net.UnixListener, error) {
	if len(c.Path) > config.MaxSocketBytes {
		return nil, fmt.Errorf("socket %s: the path has %d bytes, and the system takes at most %d; set a shorter one",
			c.Path, len(c.Path), config.MaxSocketBytes)
	}
	if err := makeDir(filepath.Dir(c.Path), socketDirMode(c), gid); err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.Path, err)
	}
	if err := clearStale(ctx, c.Path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		// The file inherits the mode of the descriptor, so no other user can connect before the
		// final mode is set (unix(7)).
		if cerr := raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	l, err := lc.Listen(ctx, "unix", c.Path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.Path, err)
	}
	ul := l.(*net.UnixListener)
	if err := share(c.Path, c.Mode, gid); err != nil {
		ul.Close()
		return nil, fmt.Errorf("socket %s: set group and mode: %w", c.Path, err)
	}
	return ul, nil
}

// share sets the group and mode of a socket. It works on the opened file, so that a user who may
// write to the directory cannot redirect the change with a symbolic link.
func share(path string, mode fs.FileMode, gid int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return fmt.Errorf("another user has replaced it; prevent other users from writing to %s", filepath.Dir(path))
	}
	if gid >= 0 {
		if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode) // fchmod does not support O_PATH descriptors
}

// clearStale removes the socket file of an agent that was killed.
func clearStale(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("socket %s: the path is not a socket (%s); remove it, or use another path",
			path, st.Mode().Type())
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		defer conn.Close()
		peer := peerOf(conn)
		if peer != nil && !lockfile.Trusted(peer.Uid) {
			return fmt.Errorf("socket %s: a process of uid %d (pid %d) serves it; stop it, "+
				"and let only root and the agent's user write to %s", path, peer.Uid, peer.Pid, filepath.Dir(path))
		}
		if peer == nil {
			peer = &unix.Ucred{}
		}
		if peer.Pid == 1 {
			return fmt.Errorf("socket %s: systemd listens on it for a socket unit; let that unit start the agent (systemctl "+
				"start nearside), or stop the unit", path)
		}
		if peer.Pid > 0 && errors.Is(unix.Kill(int(peer.Pid), 0), unix.ESRCH) {
			return removeStale(path) // a holder that this agent does not use has the socket of an ended agent
		}
		return &lockfile.HeldError{Path: path, PID: int(peer.Pid)}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: another process may still serve it: %w; if not, remove the socket", path, err)
	}
	return removeStale(path)
}

func removeStale(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: remove the stale socket: %w", path, err)
	}
	return nil
}

// peerOf returns the process that listens at the other end, or nil if it is unknown.
func peerOf(c net.Conn) (cred *unix.Ucred) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			cred = c
		}
	})
	return cred
}

// groupID resolves the group of a socket. If the group does not exist, or the agent's user may not
// assign it, groupID logs a warning, and the agent's own group applies, which admits no additional
// users.
func groupID(key, name string, log *slog.Logger) int {
	if name == "" {
		return -1
	}
	gid, err := strconv.Atoi(name)
	if err != nil {
		g, err := user.LookupGroup(name)
		if err != nil {
			log.Warn("the socket group does not exist; only root and the agent's user have access (create it or set "+
				"the key)", "key", key, "group", name)
			return -1
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return -1
		}
	}
	if os.Geteuid() != 0 && gid != os.Getegid() {
		mine, err := os.Getgroups()
		if err != nil {
			return -1
		}
		if slices.Contains(mine, gid) {
			return gid
		}
		log.Warn("the agent's user is not in the group of a socket, so it cannot assign the group",
			"key", key, "group", name)
		return -1
	}
	return gid
}
