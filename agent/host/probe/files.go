package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// unwritable says why a user cannot open a file for appending or create it, and what to do. It
// returns "" if the user can, or if that is uncertain.
func (p *Prober) unwritable(who user, name string) string {
	name = filepath.Clean(name)
	if !filepath.IsAbs(name) || below(name, "/dev") || below(name, "/proc") || p.o.Own != "" && below(name, p.o.Own) {
		return "" // depends on the process, or is created on demand
	}
	if p.o.Refused != nil {
		if err := p.o.Refused(name); err != nil {
			return err.Error()
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(p.o.Root, filepath.Dir(name)))
	shown := clip.Value(filepath.Dir(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("the directory %s does not exist; make it, for the uid %d of Envoy", shown, who.peer.UID)
	case errors.Is(err, syscall.ENOTDIR):
		return shown + " is not a directory; give another path"
	case err != nil:
		return ""
	}
	for d := dir; len(d) > len(filepath.Clean(p.o.Root)); d = filepath.Dir(d) {
		st, err := os.Stat(d)
		switch {
		case err != nil:
			return ""
		case !st.IsDir():
			return shown + " is not a directory; give another path"
		case !who.may(d, st, 0o1):
			return fmt.Sprintf("its uid %d may not enter %s (mode %04o); let it, with chmod or chown",
				who.peer.UID, clip.Value(d), st.Mode().Perm())
		}
	}
	path := filepath.Join(dir, filepath.Base(name))
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return "it is a directory; give the path of a file"
	case err == nil && st.Mode()&fs.ModeSocket != 0:
		return "it is a socket; give the path of a file"
	case err == nil && !who.may(path, st, 0o2):
		return fmt.Sprintf("its uid %d may not write it (mode %04o); let it, with chmod or chown",
			who.peer.UID, st.Mode().Perm())
	case err == nil && st.Mode().IsRegular() && errors.Is(unix.Access(path, unix.W_OK), unix.EROFS):
		return "its file system is read-only; give another path"
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	}
	if _, err := os.Lstat(path); err == nil {
		return "" // a link to a missing file, which Envoy may be able to create
	}
	switch st, err := os.Stat(dir); {
	case err != nil:
	case !who.may(dir, st, 0o2):
		return fmt.Sprintf("its uid %d may not make files in %s (mode %04o); let it, with chmod or chown",
			who.peer.UID, shown, st.Mode().Perm())
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS):
		return "its file system is read-only; give another path"
	}
	return ""
}

// below reports whether a path is a directory or inside it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, filepath.Clean(dir))
	return ok && (rest == "" || rest[0] == '/')
}

// may reports whether the mode of a file permits a user to enter (1) or write (2) it. It returns
// true for a file with an access control list.
func (u user) may(path string, st fs.FileInfo, what fs.FileMode) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if u.all || !ok {
		return true
	}
	switch {
	case sys.Uid == u.peer.UID:
		what <<= 6
	case sys.Gid == u.peer.GID || slices.Contains(u.peer.Groups, sys.Gid):
		what <<= 3
	}
	if st.Mode().Perm()&what != 0 {
		return true
	}
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}
