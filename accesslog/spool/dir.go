package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File modes of a spool. Access logs are private to the agent's user.
const (
	spoolDirMode  = 0o700
	spoolFileMode = 0o600
)

// File names in the directory of a spool.
const (
	lockName       = "lock"
	cursorName     = "cursor"
	cursorTempName = "cursor.tmp"
	segmentSuffix  = ".spool"
	badSuffix      = ".bad"
	numberDigits   = 20
)

// spoolDir is the open directory of a spool. All operations are relative to it and do not follow
// links.
type spoolDir struct {
	path string
	f    *os.File
	lock *os.File
}

// openSpoolDir opens or creates a directory that this user owns, and locks it for this process.
func openSpoolDir(path string) (_ *spoolDir, err error) {
	path = filepath.Clean(path)
	if err := os.Mkdir(path, spoolDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the spool directory: %w; create its parent directory", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s is a symbolic link or not a directory; set the path of the directory itself", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &spoolDir{path: path, f: os.NewFile(uintptr(fd), path)}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, d.failed("stat", ".", err)
	}
	if int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to user %d, who could replace its files; use a directory of this user (%d)",
			path, st.Uid, os.Geteuid())
	}
	if uint32(st.Mode)&0o7777 != spoolDirMode {
		if err := unix.Fchmod(fd, spoolDirMode); err != nil {
			return nil, d.failed("chmod", ".", err)
		}
	}
	if d.lock, err = d.open(lockName, unix.O_RDWR|unix.O_CREAT); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use; stop the other process or set another path",
				path)
		}
		return nil, d.failed("lock", lockName, err)
	}
	return d, nil
}

func (d *spoolDir) close() {
	if d.lock != nil {
		d.lock.Close()
	}
	d.f.Close()
}

func (d *spoolDir) fd() int { return int(d.f.Fd()) }

func (d *spoolDir) failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, name), Err: err}
}

// open opens a regular file that this user owns.
func (d *spoolDir) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, spoolFileMode)
	if err != nil {
		return nil, d.failed("open", name, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, d.failed("stat", name, err)
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file of this user; remove it", f.Name())
	}
	return f, nil
}

func (d *spoolDir) remove(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.failed("remove", name, err)
	}
	return nil
}

// replace writes a file atomically.
func (d *spoolDir) replace(name, temp string, content []byte, sync bool) error {
	f, err := d.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := unix.Renameat(d.fd(), temp, d.fd(), name); err != nil {
		return d.failed("rename", temp, err)
	}
	return nil
}

// read reads at most limit bytes of a file.
func (d *spoolDir) read(name string, limit int64) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// names lists the directory.
func (d *spoolDir) names() ([]string, error) {
	fd, err := unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, d.failed("list", ".", err)
	}
	list := os.NewFile(uintptr(fd), d.path)
	defer list.Close()
	return list.Readdirnames(-1)
}

// destroy removes the files of the spool, and the directory if it is then empty.
func (d *spoolDir) destroy() error {
	names, err := d.names()
	for _, name := range names {
		_, isSegment := segmentNumber(name, segmentSuffix)
		_, isBad := segmentNumber(name, badSuffix)
		if isSegment || isBad || name == cursorName || name == cursorTempName {
			err = errors.Join(err, d.remove(name))
		}
	}
	err = errors.Join(err, d.remove(lockName))
	if rm := unix.Rmdir(d.path); rm != nil && !errors.Is(rm, unix.ENOENT) {
		err = errors.Join(err, d.failed("remove", ".", rm))
	}
	return err
}

// segmentName returns the name of the segment whose first line has a number.
func segmentName(first uint64, suffix string) string {
	return fmt.Sprintf("%0*d%s", numberDigits, first, suffix)
}

// segmentNumber parses the name of a segment.
func segmentNumber(name, suffix string) (first uint64, ok bool) {
	if len(name) != numberDigits+len(suffix) || name[numberDigits:] != suffix {
		return 0, false
	}
	for _, c := range []byte(name[:numberDigits]) {
		if c < '0' || c > '9' || first > MaxNumber/10 {
			return 0, false
		}
		first = 10*first + uint64(c-'0')
	}
	return first, first > 0
}
