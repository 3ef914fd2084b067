package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation/dirs"
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
	foreignSuffix  = ".found"
	numberDigits   = 20
)

// spoolDir is the open directory of a spool. All operations are relative to it and do not follow
// links.
type spoolDir struct {
	*dirs.Dir
	path string
	lock *os.File
}

// openSpoolDir opens or creates a directory that this user owns, and locks it for this process. It
// creates missing parents at and below the roots.
func openSpoolDir(path string, roots ...string) (*spoolDir, error) {
	path = filepath.Clean(path)
	d, err := dirs.Open(dirs.Options{Path: path, Kind: "spool directory", Mode: spoolDirMode, Group: -1, Roots: roots,
		Check: checkSpoolDir})
	if err != nil {
		return nil, err
	}
	return lockSpoolDir(&spoolDir{Dir: d, path: path})
}

// reopen opens the directory that is at the path now, and locks it. The receiver stays open.
func (d *spoolDir) reopen() (*spoolDir, error) {
	next, err := d.Reopen()
	if err != nil {
		return nil, err
	}
	return lockSpoolDir(&spoolDir{Dir: next, path: d.path})
}

// checkSpoolDir returns the mode of a spool directory, and why it is not safe.
func checkSpoolDir(path string, st *unix.Stat_t) (uint32, error) {
	if int(st.Uid) != os.Geteuid() {
		return spoolDirMode, fmt.Errorf("%s belongs to user %d, who could replace its files; "+
			"use a directory of this user (%d)", path, st.Uid, os.Geteuid())
	}
	return spoolDirMode, nil
}

func lockSpoolDir(d *spoolDir) (_ *spoolDir, err error) {
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.lock, err = d.open(lockName, unix.O_RDWR|unix.O_CREAT); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use; stop the other process or set another path",
				d.path)
		}
		return nil, d.failed("lock", lockName, err)
	}
	return d, nil
}

// close unlocks the directory, and closes it unless it is retained.
func (d *spoolDir) close() {
	d.unlock()
	d.Dir.Close()
}

func (d *spoolDir) unlock() {
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}

func (d *spoolDir) fd() int { return d.FD() }

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
		if isSegment || isBad || name == cursorName || name == cursorTempName || name == lossName {
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
