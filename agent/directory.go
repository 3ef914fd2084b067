package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/lockfile"
)

// forAll reports whether a socket admits all users of the node.
func forAll(c config.Socket) bool { return c.Mode&0o006 == 0o006 }

// socketDirMode returns the mode of a new directory for a socket. Users of the socket must be able
// to pass; only the group may list the directory.
func socketDirMode(c config.Socket) fs.FileMode {
	if forAll(c) {
		return 0o751
	}
	return 0o750
}

// makeDir creates a directory and its parents. It does not change an existing one. A new one gets
// the group gid, unless gid is negative, so that its members can enter it.
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
	return os.Chmod(dir, mode) // regardless of the umask
}

// unsafeDirError says why a directory is unsafe for sockets and keys.
type unsafeDirError struct{ path, why string }

func (e *unsafeDirError) Error() string { return e.path + " " + e.why }

// checkDirs refuses to start if other users could replace the sockets, the locks, or the state.
func checkDirs(cfg *config.Config) error {
	for _, d := range []struct{ key, path string }{
		{"paths.run", cfg.Paths.Run}, {"paths.state", cfg.Paths.State},
		{"api.socket.path", filepath.Dir(cfg.API.Socket.Path)}, {"xds.socket.path", filepath.Dir(cfg.XDS.Socket.Path)},
	} {
		var unsafe *unsafeDirError
		if err := checkDir(d.path); errors.As(err, &unsafe) {
			return fmt.Errorf("%s: %w, or set %s", d.key, err, d.key)
		}
	}
	return nil
}

// maxLinks bounds the symbolic links of a path, as in path_resolution(7).
const maxLinks = 40

// checkDir refuses a directory that a user other than root and the agent's user could replace or
// fill. Each directory and symbolic link on the path must belong to one of them, and other users
// may write to it only if the sticky bit protects their files. A path that does not exist yet is
// safe below such directories. Members of a directory's group are trusted.
func checkDir(dir string) error {
	todo := strings.Split(strings.TrimPrefix(filepath.Clean(dir), "/"), "/")
	at := "/"
	for links := 0; ; {
		st, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; !lockfile.Trusted(uid) && !unmapped(uid) {
			return &unsafeDirError{at, fmt.Sprintf("belongs to uid %d, who could take what the agent has below it; "+
				"give it to root or to the agent's user (uid %d)", uid, os.Geteuid())}
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return fmt.Errorf("%s leads through more than %d symbolic links", dir, maxLinks)
			}
			if at = filepath.Dir(at); filepath.IsAbs(to) {
				at = "/"
			}
			todo = append(strings.Split(to, "/"), todo...)
		} else if st.Mode()&(fs.ModeSticky|0o002) == 0o002 {
			return &unsafeDirError{at,
				"is writable for all users, who could replace the agent's files below it; run chmod o-w " + at}
		}
		for len(todo) > 0 && (todo[0] == "" || todo[0] == ".") {
			todo = todo[1:]
		}
		if len(todo) == 0 {
			return nil
		}
		at = filepath.Join(at, todo[0]) // at has no links, so ".." is its parent
		todo = todo[1:]
	}
}

// overflowUID is the user ID that the kernel reports for users without an ID in the user namespace.
const overflowUID = 65534

// unmapped reports whether a user is outside the agent's user namespace. The identity of such a
// user is unknown; in a container, this includes the root user of the host.
func unmapped(uid uint32) bool {
	if uid != overflowUID {
		return false
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return err == nil && (len(f) != 3 || f[2] != "4294967295")
}
