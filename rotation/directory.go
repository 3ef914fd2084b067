package rotation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Modes of created files.
const (
	dirMode  = 0o750
	fileMode = 0o640
	lockMode = 0o600
)

// directory is the open directory of a file. All operations are relative to it and do not follow
// links.
type directory struct {
	path  string
	f     *os.File
	lock  *os.File
	gid   int
	names naming
}

// openDirectory opens or creates a directory that other users cannot change, and locks the name in
// it.
func openDirectory(path string, gid int) (_ *directory, err error) {
	dir, base := filepath.Dir(path), filepath.Base(path)
	created := false
	if err := os.Mkdir(dir, dirMode); err == nil {
		created = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the log directory: %w; create its parent directory", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s is a symbolic link or not a directory; set the path of the directory itself", dir)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	d := &directory{path: dir, f: os.NewFile(uintptr(fd), dir), gid: gid, names: namesOf(base)}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if created && gid != os.Getegid() {
		if err := d.f.Chown(-1, gid); err != nil {
			return nil, fmt.Errorf("set the group of the log directory to %d: %w; run as a member of that group", gid, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	switch mode := uint32(st.Mode); {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to user %d, who could replace its files; use a directory of this user (%d) "+
			"or of root", dir, st.Uid, os.Geteuid())
	case mode&0o002 != 0:
		return nil, fmt.Errorf("%s has mode %04o, so every user can replace its files; run chmod o-w %s",
			dir, mode&0o7777, dir)
	case mode&0o020 != 0 && int(st.Gid) != gid && int(st.Gid) != os.Getegid() && st.Gid != 0:
		return nil, fmt.Errorf("%s has mode %04o and group %d, whose members can replace its files; run chmod g-w %s",
			dir, mode&0o7777, st.Gid, dir)
	}
	return d, d.acquire()
}

// acquire locks the name of the active file for this process. The lock ends with the process; the
// lock file stays.
func (d *directory) acquire() error {
	name := d.names.lock()
	fd, err := unix.Openat(d.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, lockMode)
	if err != nil {
		return d.failed("lock", name, err)
	}
	d.lock = os.NewFile(uintptr(fd), d.join(name))
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s is in use by another process or opened twice; stop the other process or set another path",
				d.join(d.names.base))
		}
		return d.failed("lock", name, err)
	}
	return nil
}

func (d *directory) close() {
	if d.lock != nil {
		d.lock.Close()
	}
	d.f.Close()
}

func (d *directory) fd() int                 { return int(d.f.Fd()) }
func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

func (d *directory) failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: d.join(name), Err: err}
}

// open opens or creates a regular file of this user or root, and sets its mode and group.
func (d *directory) open(name string, flags int) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, fileMode)
	if errors.Is(err, unix.ELOOP) {
		return nil, st, fmt.Errorf("%s is a symbolic link; remove it or set another path", d.join(name))
	}
	if err != nil {
		return nil, st, d.failed("open", name, err)
	}
	f := os.NewFile(uintptr(fd), d.join(name))
	if err := d.adopt(f, &st); err != nil {
		f.Close()
		return nil, st, err
	}
	return f, st, nil
}

func (d *directory) adopt(f *os.File, st *unix.Stat_t) error {
	fd := int(f.Fd())
	if err := unix.Fstat(fd, st); err != nil {
		return &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	switch {
	case uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file; remove it or set another path", f.Name())
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d; remove it or set another path", f.Name(), st.Uid)
	}
	if int(st.Gid) != d.gid {
		if err := unix.Fchown(fd, -1, d.gid); err != nil {
			return fmt.Errorf("set the group of %s to %d: %w; run as a member of that group", f.Name(), d.gid, err)
		}
	}
	if uint32(st.Mode)&0o7777 != fileMode {
		if err := unix.Fchmod(fd, fileMode); err != nil {
			return &fs.PathError{Op: "chmod", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// stat returns the status of a name without following links.
func (d *directory) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, d.failed("stat", name, err)
	}
	return st, nil
}

func (d *directory) remove(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil {
		return d.failed("remove", name, err)
	}
	return nil
}

func (d *directory) rename(from, to string) error {
	if err := renameNoReplace(d.fd(), from, to); err != nil {
		return d.failed("rename to "+to+":", from, err)
	}
	return nil
}

// renameIfFree renames a file if the new name does not exist. It is not atomic.
func renameIfFree(dir int, from, to string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return unix.Renameat(dir, from, dir, to)
}

// scan returns the backups, oldest first, and the names of temporary files left by compression.
func (d *directory) scan() (backups []backup, temps []string, err error) {
	fd, err := unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, d.failed("list", ".", err)
	}
	list := os.NewFile(uintptr(fd), d.path)
	defer list.Close()
	found := map[int64]backup{}
	for {
		names, err := list.Readdirnames(1024)
		for _, name := range names {
			if d.names.isTemp(name) {
				temps = append(temps, name)
			}
			stamp, gz, ok := d.names.parse(name)
			if !ok {
				continue
			}
			if st, err := d.stat(name); err != nil || uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			b := found[stamp]
			found[stamp] = backup{stamp: stamp, plain: b.plain || !gz, gz: b.gz || gz}
		}
		if len(names) == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, nil, err
			}
			break
		}
	}
	for _, b := range found {
		backups = append(backups, b)
	}
	slices.SortFunc(backups, byStamp)
	return backups, temps, nil
}
