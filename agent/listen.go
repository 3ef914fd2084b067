package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/config"
)

// listenUnix opens a unix socket with the permissions and the group given. A socket file that nobody answers on is
// replaced; one that somebody answers on is an error that names the process.
func listenUnix(ctx context.Context, c config.Socket, gid int) (*net.UnixListener, error) {
	if len(c.Path) > config.MaxSocketBytes {
		return nil, fmt.Errorf("socket %s: the path has %d bytes, and the system takes at most %d; set a shorter one", c.Path, len(c.Path), config.MaxSocketBytes)
	}
	if err := makeDir(filepath.Dir(c.Path), socketDirMode(c), gid); err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.Path, err)
	}
	if err := clearStale(ctx, c.Path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		// The file that bind makes takes the permissions of the descriptor, so nobody else gets in before the final
		// ones are set (unix(7)).
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
	if gid >= 0 {
		err = os.Lchown(c.Path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(c.Path, c.Mode)
	}
	if err != nil {
		ul.Close()
		return nil, fmt.Errorf("socket %s: set group and mode: %w", c.Path, err)
	}
	return ul, nil
}

// clearStale removes the socket file that an agent left which was killed.
func clearStale(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("socket %s: there is something there that is not a socket (%s); remove it or set another path", path, st.Mode().Type())
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		defer conn.Close()
		return &lockedError{path, peerPID(conn)}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: somebody may still serve it: %w; remove it if that is not so", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: remove the one that nobody serves: %w", path, err)
	}
	return nil
}

// peerPID returns the process at the other end, 0 when it is not known.
func peerPID(c net.Conn) int {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// forAll reports whether a socket lets every user of the node in.
func forAll(c config.Socket) bool { return c.Mode&0o006 == 0o006 }

// socketDirMode is the mode of a directory that is made for a socket. Who may use the socket must be able to pass
// through; to list what else is there takes the group.
func socketDirMode(c config.Socket) fs.FileMode {
	if forAll(c) {
		return 0o751
	}
	return 0o750
}

// envoyDirName is the directory beside the xDS socket in which Envoys make their admin sockets.
const envoyDirName = "envoy"

func envoyDir(cfg *config.Config) string {
	return filepath.Join(filepath.Dir(cfg.XDS.Socket.Path), envoyDirName)
}

// envoyDirMode lets those make sockets who may use the xDS socket. Nobody can list or remove those of others.
func envoyDirMode(c config.Socket) fs.FileMode {
	if forAll(c) {
		return fs.ModeSticky | 0o733
	}
	return fs.ModeSticky | 0o770
}

// makeDir makes a directory with those above it. One that is there stays as it is; a new one gets the group, when gid
// is not negative, so that its members reach what lies in it.
func makeDir(dir string, mode fs.FileMode, gid int) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if st, err := os.Stat(dir); err != nil {
		return err
	} else if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if gid >= 0 {
		if err := os.Chown(dir, -1, gid); err != nil {
			return fmt.Errorf("give %s to its group: %w", dir, err)
		}
	}
	return os.Chmod(dir, mode) // past the umask
}

// groupID resolves the group of the API socket. A group that does not exist, or that the agent's user may not give
// files to, is a warning: then the agent's own group holds, which lets nobody in whom the operator did not mean.
func groupID(name string, log *slog.Logger) int {
	if name == "" {
		return -1
	}
	gid, err := strconv.Atoi(name)
	if err != nil {
		g, err := user.LookupGroup(name)
		if err != nil {
			log.Warn("the group of the API socket does not exist; only root and the agent's user may write (create it, or set api.socket.group)", "group", name)
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
		log.Warn("the agent's user is not in the group of the API socket, so that it cannot give the socket to it", "group", name)
		return -1
	}
	return gid
}

// lockFile is a file that one process at a time holds, with its process id in it. The kernel frees it when the process
// ends, however it ends; the file itself stays.
type lockFile struct{ f *os.File }

// lockedError says that another agent holds a lock.
type lockedError struct {
	path string
	pid  int // 0 when it is not known
}

func (e *lockedError) Error() string {
	who := "another agent"
	if e.pid != 0 {
		who = fmt.Sprintf("another agent (pid %d)", e.pid)
	}
	return fmt.Sprintf("%s uses these paths already and holds %s: stop it, or give this one other paths (paths.run, paths.state)", who, e.path)
}

// lock takes the lock or says who has it.
func lock(path string) (*lockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &lockedError{path, readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The id is for people; the lock holds without it, on a full disk too.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &lockFile{f}, nil
}

func readPID(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// release frees the lock. A nil lock is released already.
func (l *lockFile) release() {
	if l == nil {
		return
	}
	_ = l.f.Truncate(0)
	_ = l.f.Close() // frees the lock
}
