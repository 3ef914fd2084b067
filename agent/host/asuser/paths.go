package asuser

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Problem is why a user cannot use a path.
type Problem struct {
	Path   string // the directory or file that is missing or denied
	Kind   Kind
	Access Access // of Path, if it exists
	Err    error
}

// Kind is the kind of a [Problem].
type Kind int

// Kinds of problems.
const (
	Missing    Kind = iota // Path does not exist
	NotEntered             // Path is a directory that the user may not enter, or is no directory
	NotSocket              // Path is not a socket
	Denied                 // the user may not use Path
	NoListener             // no process listens on the socket
	Failed                 // another error, in Err
)

// Access is the owner, group, and mode of a file.
type Access struct {
	UID, GID     uint32
	Owner, Group string // names, or numbers
	Mode         fs.FileMode
}

// String returns the access as "owner root, group nearside, mode 0750".
func (a Access) String() string {
	return fmt.Sprintf("owner %s, group %s, mode %04o", a.Owner, a.Group, a.Mode.Perm())
}

// AccessOf returns the access of a file.
func AccessOf(path string) (Access, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Access{}, err
	}
	a := Access{UID: st.Uid, GID: st.Gid, Owner: fmt.Sprint(st.Uid), Group: fmt.Sprint(st.Gid),
		Mode: fs.FileMode(st.Mode & 0o777)}
	if u, err := user.LookupId(a.Owner); err == nil {
		a.Owner = u.Username
	}
	if g, err := user.LookupGroupId(a.Group); err == nil {
		a.Group = g.Name
	}
	return a, nil
}

// Connect connects to a Unix socket as the user. The connection carries the user's credentials.
func (u *User) Connect(path string) (net.Conn, *Problem) {
	fd := -1
	p := u.try(path, func() error {
		var err error
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	})
	if p == nil || p.Kind == Denied || p.Kind == NoListener {
		if st, err := os.Stat(path); err == nil && st.Mode()&fs.ModeSocket == 0 {
			p = &Problem{Path: path, Kind: NotSocket}
		}
	}
	if p != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, p
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, &Problem{Path: path, Kind: Failed, Err: err}
	}
	return c, nil
}

// Read tests whether the user can read a file.
func (u *User) Read(path string) *Problem {
	return u.try(path, func() error {
		f, err := os.Open(path)
		if err == nil {
			_ = f.Close()
		}
		return err
	})
}

// Create tests whether the user could create or replace a file, without doing it. The directory
// must exist.
func (u *User) Create(path string) *Problem {
	dir := filepath.Dir(path)
	p := u.try(dir, func() error {
		return unix.Access(dir, unix.W_OK|unix.X_OK)
	})
	if p != nil {
		return p
	}
	// Only the owner of a file may replace it in a directory with the sticky bit.
	var d, f unix.Stat_t
	if unix.Stat(dir, &d) == nil && unix.Lstat(path, &f) == nil && d.Mode&unix.S_ISVTX != 0 && u.UID != 0 &&
		f.Uid != u.UID && d.Uid != u.UID {
		a, _ := AccessOf(path)
		return &Problem{Path: path, Kind: Denied, Access: a, Err: unix.EPERM}
	}
	return nil
}

// try runs f, which uses a path, as the user. For a failure it finds the directory or file that is
// the cause.
func (u *User) try(path string, f func() error) *Problem {
	var at string // the first directory on the path that cannot be entered
	err := u.Do(func() error {
		err := f()
		if err == nil {
			return nil
		}
		for _, dir := range parents(path) {
			if unix.Access(dir, unix.X_OK) != nil {
				at = dir
				break
			}
		}
		return err
	})
	if err == nil {
		return nil
	}
	p := &Problem{Path: path, Kind: Failed, Err: err}
	switch {
	case at != "":
		p.Path, p.Kind = at, NotEntered
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			p.Kind = Missing
		}
	case errors.Is(err, fs.ErrNotExist):
		p.Kind = Missing
	case errors.Is(err, unix.ENOTDIR):
		p.Path, p.Kind = filepath.Dir(path), NotEntered
	case errors.Is(err, fs.ErrPermission):
		p.Kind = Denied
	case errors.Is(err, unix.ECONNREFUSED):
		p.Kind = NoListener
	}
	p.Access, _ = AccessOf(p.Path)
	return p
}

// parents returns the directories on the way to an absolute path, outermost first.
func parents(path string) []string {
	out := []string{"/"}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// Sockets returns the paths of the sockets in a directory.
func Sockets(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}
