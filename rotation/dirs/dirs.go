// Package dirs opens directories whose files other users cannot replace, and opens them again when
// they were removed, moved, or hidden by a mount.
package dirs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// parentMode is the mode of a new parent directory. It lets members of the groups of files pass.
const parentMode = 0o751

// Options describes a directory. Path, Kind, Mode, and Check are required.
type Options struct {
	Path string
	Kind string // for messages, for example "log directory"
	// Mode and Group are those of a new directory. Group -1: that of the process.
	Mode  uint32
	Group int
	// Roots are directories that are created if they are missing, with all parents between them and
	// Path. Other parents must exist.
	Roots []string
	// Check returns why a directory is not safe, and the mode that it needs. A mode that differs from
	// that of the status is set, unless there is an error.
	Check func(path string, st *unix.Stat_t) (mode uint32, err error)
}

// Dir is an open directory. Compare, Reopen, and the first Retain after them must not overlap.
type Dir struct {
	opts     Options
	f        *os.File
	dev, ino uint64
	known    map[string]state // by path: the directory, and its parents at and below Roots
	users    atomic.Int32
}

// state is what a directory gets again when it is created again.
type state struct {
	mode     uint32
	uid, gid int // -1: those of the process
}

// Open opens a directory, or creates it. It follows one symbolic link if root owns the link and the
// directory of the link, and other users cannot write there.
func Open(o Options) (*Dir, error) {
	for _, root := range slices.Clone(o.Roots) {
		if real, err := filepath.EvalSymlinks(root); err == nil && real != root {
			o.Roots = append(slices.Clip(o.Roots), real)
		}
	}
	return open(o, map[string]state{o.Path: {o.Mode, -1, o.Group}})
}

func open(o Options, known map[string]state) (_ *Dir, err error) {
	path, err := resolve(o.Path)
	if err != nil {
		return nil, err
	}
	d := &Dir{opts: o, known: known}
	if err := d.create(path, known[o.Path]); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; create its parent directory", err)
		}
		return nil, fmt.Errorf("create the %s: %w", o.Kind, err)
	}
	if d.f, err = openFile(path); err != nil {
		return nil, err
	}
	d.users.Store(1)
	var st unix.Stat_t
	if err = unix.Fstat(d.FD(), &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	} else {
		err = d.checkState(&st, false)
	}
	if err != nil {
		d.f.Close()
		return nil, err
	}
	d.dev, d.ino = uint64(st.Dev), st.Ino
	d.learnParents()
	return d, nil
}

// View opens an existing directory to read it. It follows links as Open does, and checks nothing.
func View(path string) (*Dir, error) {
	real, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(real)
	if err != nil {
		return nil, err
	}
	d := &Dir{opts: Options{Path: path}, f: f}
	d.users.Store(1)
	return d, nil
}

// openFile opens a directory that is not a symbolic link.
func openFile(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s is a symbolic link or not a directory; set the path of the directory itself", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// resolve returns the path to open. It follows one link of root.
func resolve(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return path, nil // opening it reports the error
	}
	var above unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &above); err != nil {
		return "", &fs.PathError{Op: "stat", Path: filepath.Dir(path), Err: err}
	}
	if st.Uid != 0 || above.Uid != 0 || above.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s is a symbolic link or not a directory, and only a link of root in a directory that "+
			"only root can change is followed; set the path of the directory itself", path)
	}
	to, err := os.Readlink(path)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return filepath.Clean(to), nil
}

// create creates a missing directory and its missing parents at and below the roots.
func (d *Dir) create(path string, as state) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) && d.belowRoot(filepath.Dir(path)) {
		parent := filepath.Dir(path)
		had, ok := d.known[parent]
		if !ok {
			had = state{parentMode, -1, -1}
		}
		if err := d.create(parent, had); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := as.apply(f); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// apply gives a new directory its owner and mode.
func (s state) apply(f *os.File) error {
	if s.gid == os.Getegid() {
		s.gid = -1
	}
	if s.uid == os.Geteuid() || os.Geteuid() != 0 {
		s.uid = -1
	}
	if s.uid >= 0 || s.gid >= 0 {
		if err := f.Chown(s.uid, s.gid); err != nil {
			return fmt.Errorf("set the group of %s to %d: %w; run as a member of that group", f.Name(), s.gid, err)
		}
	}
	return unix.Fchmod(int(f.Fd()), s.mode)
}

// belowRoot reports whether a directory is a root or below one.
func (d *Dir) belowRoot(path string) bool {
	return slices.ContainsFunc(d.opts.Roots, func(root string) bool {
		rel, err := filepath.Rel(root, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// learnParents remembers the modes and owners of the parents.
func (d *Dir) learnParents() {
	for path := filepath.Dir(d.opts.Path); d.belowRoot(path); path = filepath.Dir(path) {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			d.known[path] = stateOf(&st)
		}
		if path == filepath.Dir(path) {
			return
		}
	}
}

func stateOf(st *unix.Stat_t) state {
	return state{uint32(st.Mode) & 0o7777, int(st.Uid), int(st.Gid)}
}

// checkState checks the status of the open directory, and sets its mode. With restore, it restores
// the last safe mode of an unsafe directory.
func (d *Dir) checkState(st *unix.Stat_t, restore bool) error {
	mode, err := d.opts.Check(d.f.Name(), st)
	now := uint32(st.Mode) & 0o7777
	if err != nil {
		if mode = d.known[d.opts.Path].mode; !restore || mode == now || unix.Fchmod(d.FD(), mode) != nil {
			return err
		}
		if e := unix.Fstat(d.FD(), st); e != nil {
			return err
		}
		_, err = d.opts.Check(d.f.Name(), st)
		return err
	}
	if mode != now {
		if err := unix.Fchmod(d.FD(), mode); err != nil {
			return fmt.Errorf("%s has mode %04o and needs %04o: %w; run chmod %04o %s", d.f.Name(), now, mode, err, mode,
				d.f.Name())
		}
		st.Mode = st.Mode&^0o7777 | mode
	}
	d.known[d.opts.Path] = stateOf(st)
	return nil
}

// Result is a result of [Dir.Compare].
type Result int

// Results of [Dir.Compare].
const (
	Same     Result = iota // the path leads to the open directory
	Restored               // the same, and its mode was restored because it was not safe
	Other                  // the path leads to nothing or to another directory
)

// Compare compares the directory at the path with the open one. It restores the mode of a directory
// that has become unsafe. An error means that the directory is not safe or cannot be checked.
func (d *Dir) Compare() (Result, error) {
	path, err := resolve(d.opts.Path)
	if err != nil {
		return Same, err
	}
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return Other, nil
	case err != nil:
		return Same, &fs.PathError{Op: "stat", Path: path, Err: err}
	case uint64(st.Dev) != d.dev || st.Ino != d.ino:
		return Other, nil
	}
	was := st.Mode
	if err := d.checkState(&st, true); err != nil || st.Mode == was {
		return Same, err
	}
	return Restored, nil
}

// Reopen opens the directory that is at the path now, or creates it with the mode and owner that it
// had. The receiver stays open.
func (d *Dir) Reopen() (*Dir, error) { return open(d.opts, maps.Clone(d.known)) }

// Retain adds a user, who must call Close too.
func (d *Dir) Retain() { d.users.Add(1) }

// Close closes the directory after its last user.
func (d *Dir) Close() error {
	if d.users.Add(-1) > 0 {
		return nil
	}
	return d.f.Close()
}

// FD returns the descriptor, until the last Close.
func (d *Dir) FD() int { return int(d.f.Fd()) }

// File returns the open directory.
func (d *Dir) File() *os.File { return d.f }

// Path returns the path of the options.
func (d *Dir) Path() string { return d.opts.Path }
