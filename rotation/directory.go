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

	"github.com/nearside-mesh/nearside/rotation/dirs"
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
	*dirs.Dir
	lock   *os.File
	locked uint64 // inode of lock
	gid    int
	names  naming
}

// openDirectory opens or creates a directory that other users cannot change, and locks the name in
// it.
func openDirectory(o Options, gid int) (*directory, error) {
	d, err := dirs.Open(dirs.Options{Path: filepath.Dir(o.Path), Kind: "log directory", Mode: dirMode, Group: gid,
		Roots: o.Roots, Check: func(path string, st *unix.Stat_t) (uint32, error) { return checkOwner(path, st, gid) }})
	if err != nil {
		return nil, err
	}
	return lockIn(&directory{Dir: d, gid: gid, names: namesOf(filepath.Base(o.Path))})
}

// reopen opens the directory that is at the path now, and locks the name in it. The receiver stays
// open.
func (d *directory) reopen() (*directory, error) {
	next, err := d.Reopen()
	if err != nil {
		return nil, err
	}
	return lockIn(&directory{Dir: next, gid: d.gid, names: d.names})
}

func lockIn(d *directory) (*directory, error) {
	if err := d.acquire(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// checkOwner returns the mode that a log directory needs, and why others can replace its files.
func checkOwner(dir string, st *unix.Stat_t, gid int) (uint32, error) {
	mode := uint32(st.Mode) & 0o7777
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return mode, fmt.Errorf("%s belongs to user %d, who could replace its files; use a directory of this user (%d) "+
			"or of root", dir, st.Uid, os.Geteuid())
	case mode&0o002 != 0:
		return mode, fmt.Errorf("%s has mode %04o, so every user can replace its files; run chmod o-w %s", dir, mode, dir)
	case mode&0o020 != 0 && int(st.Gid) != gid && int(st.Gid) != os.Getegid() && st.Gid != 0:
		return mode, fmt.Errorf("%s has mode %04o and group %d, whose members can replace its files; run chmod g-w %s",
			dir, mode, st.Gid, dir)
	case int(st.Uid) == os.Geteuid() && os.Geteuid() != 0:
		return mode | 0o700, nil // else this user could create no file
	}
	return mode, nil
}

// acquire locks the name of the active file for this process. The lock ends with the process; the
// lock file stays.
func (d *directory) acquire() error {
	name := d.names.lock()
	fd, err := unix.Openat(d.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, lockMode)
	if err != nil {
		return d.failed("lock", name, err)
	}
	lock := os.NewFile(uintptr(fd), d.join(name))
	var st unix.Stat_t
	if err := errors.Join(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.Fstat(fd, &st)); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s is in use by another process or opened twice; stop the other process or set another path",
				d.join(d.names.base))
		}
		return d.failed("lock", name, err)
	}
	d.unlock()
	d.lock, d.locked = lock, st.Ino
	return nil
}

// keepLock locks the name again if another process has removed or replaced the lock file.
func (d *directory) keepLock() error {
	st, err := d.stat(d.names.lock())
	if err == nil && st.Ino == d.locked {
		return nil
	}
	return d.acquire()
}

func (d *directory) unlock() {
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}

// close unlocks the name, and closes the directory unless it is retained.
func (d *directory) close() {
	d.unlock()
	d.Dir.Close()
}

func (d *directory) fd() int                 { return d.FD() }
func (d *directory) join(name string) string { return filepath.Join(d.Path(), name) }

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
	list := os.NewFile(uintptr(fd), d.Path())
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
			st, err := d.stat(name)
			if err != nil || uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			b := found[stamp]
			found[stamp] = backup{stamp: stamp, modified: max(b.modified, st.Mtim.Nano()/1e6), plain: b.plain || !gz,
				gz: b.gz || gz}
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
