package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// lockWait is how long Open waits for another process to let go of the file, as on a quick restart.
const lockWait = time.Second

// ErrLocked is wrapped by the error of Open when another process has the state file open.
var ErrLocked = errors.New("another process has it open: stop the other agent, " +
	"or give this one a paths.state of its own")

// FormatError says that a state file was written by a newer version.
type FormatError struct {
	Path   string
	Format string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format %q and this version knows %q alone: run the version that wrote it, "+
		"or move the file away to start without what was written over the API", e.Path, e.Format, format)
}

// brokenError is a panic of bbolt, or a fault in its memory map.
type brokenError struct{ cause any }

func (e *brokenError) Error() string { return fmt.Sprintf("the state file is broken: %v", e.cause) }

// guard runs fn and turns panics into a *brokenError. bbolt panics on inconsistent pages; a page
// that the disk does not deliver is a fault in the memory map, which ends the process unless asked
// otherwise.
func guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = &brokenError{cause: r}
		}
	}()
	return fn()
}

// disk is an open state file.
type disk struct {
	db   *bolt.DB
	file *os.File // the same that db has, with the lock on it
	path string
}

// outcome is what opening a file came to beside the disk.
type outcome struct {
	fresh  bool                    // the file is new: it has no content
	empty  bool                    // it was there, but had no bytes
	aside  string                  // new name of a damaged file
	damage error                   // what was wrong with it
	saved  *salvaged               // what of it is in the new one; nil: nothing
	newer  map[resource.Key]uint64 // as of loaded
	loaded *loaded                 // the content
}

// openDisk opens the file for writing, creates it when it is missing and puts a damaged one aside.
func openDisk(path string, now time.Time) (*disk, outcome, error) {
	var o outcome
	for {
		f, created, err := lockFile(path, os.O_RDWR)
		if err != nil {
			return nil, o, err
		}
		d, damage, err := o.accept(f, path, created)
		if err != nil {
			return nil, o, err
		}
		if damage == nil {
			return d, o, nil
		}
		if o.aside != "" {
			return nil, o, fmt.Errorf("a fresh file is damaged: %w", damage)
		}
		// The lock is let go of after the rename: nobody else can take the file for a good one.
		o.aside, err = o.replace(f, path, now)
		f.Close()
		if err != nil {
			return nil, o, fmt.Errorf("%s is damaged (%w) and cannot be renamed: %w", path, damage, err)
		}
		o.damage = damage
	}
}

// accept hands a locked file to bbolt if it is whole. On error the file is closed; on damage it is
// left open, so that its lock holds.
func (o *outcome) accept(f *os.File, path string, created bool) (d *disk, damage, err error) {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	o.fresh, o.empty = info.Size() == 0, info.Size() == 0 && !created
	if !o.fresh {
		if err := checkPages(f, info.Size()); err != nil {
			return nil, err, nil
		}
	}
	if o.newer == nil {
		o.newer = lostChange(f, info.Size())
	}
	d, err = openBolt(f, path, false)
	if err == nil && created {
		err = syncDir(path)
	}
	if err == nil {
		o.loaded, err = d.load()
	}
	if err == nil && o.loaded == nil { // no buckets yet
		o.fresh, o.loaded = true, &loaded{markKnown: true}
		err = d.create()
	}
	if err == nil {
		o.loaded.newer = o.newer
		if o.saved != nil {
			o.loaded.recordsLost = o.loaded.recordsLost || o.saved.recordsLost
			o.loaded.historyLost = o.loaded.historyLost || o.saved.historyLost
		}
		return d, nil, nil
	}
	var broken *brokenError
	if errors.As(err, &broken) || errors.Is(err, errNotOurs) {
		return nil, err, nil
	}
	if d != nil {
		_ = d.close()
	}
	f.Close()
	if o.fresh {
		_ = os.Truncate(path, 0) // half a new file would be taken for a damaged one
	}
	return nil, nil, err
}

// openReadOnly opens a file that cannot be written.
func openReadOnly(path string) (*loaded, error) {
	f, _, err := lockFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkPages(f, info.Size()); err != nil {
		return nil, err
	}
	d, err := openBolt(f, path, true)
	if err != nil {
		return nil, err
	}
	newer := lostChange(f, info.Size())
	l, err := d.load()
	if err == nil {
		if l != nil {
			l.newer = newer
		}
		err = d.close()
	}
	return l, err
}

// openBolt gives a locked file to bbolt, which locks it once more to no effect and closes it on
// error.
func openBolt(f *os.File, path string, readOnly bool) (*disk, error) {
	d := &disk{file: f, path: path}
	err := guard(func() (err error) {
		d.db, err = bolt.Open(path, 0o600, &bolt.Options{
			ReadOnly:     readOnly,
			NoStatistics: true,
			OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return f, nil },
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return d, nil
}

// close ends the use of a file that works.
func (d *disk) close() error {
	return guard(d.db.Close)
}

// abandon ends the use of a broken file: bbolt may hold locks of its own that a proper close would
// wait for. The memory map stays, and with it the open file, so that the lock on it has to be given
// back by hand.
func (d *disk) abandon() {
	_ = syscall.Flock(int(d.file.Fd()), syscall.LOCK_UN)
	_ = d.file.Close()
}

// moved reports whether the path names another file by now, or none: writes would be lost with the
// old one.
func (d *disk) moved() bool {
	here, err := d.file.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(d.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(here, there)
}

// lockFile opens a file and locks it: against all for writing (it is created when it is missing),
// against writers for reading.
func lockFile(path string, flag int) (f *os.File, created bool, err error) {
	how := syscall.LOCK_EX
	if flag == os.O_RDONLY {
		how = syscall.LOCK_SH
	}
	deadline := time.Now().Add(lockWait)
	for {
		f, err := os.OpenFile(path, flag, 0)
		if errors.Is(err, fs.ErrNotExist) && flag != os.O_RDONLY {
			f, err = os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, 0o600)
			created = err == nil
			if errors.Is(err, fs.ErrExist) && time.Now().Before(deadline) {
				continue // someone else was faster
			}
		}
		if err != nil {
			return nil, false, err
		}
		if err := private(f); err != nil {
			f.Close()
			return nil, false, err
		}
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			if d := (&disk{file: f, path: path}); !d.moved() {
				return f, created, nil
			}
		}
		f.Close()
		if err != nil && err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			return nil, false, fmt.Errorf("lock %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			return nil, false, fmt.Errorf("state file %s: %w", path, ErrLocked)
		}
		time.Sleep(lockWait / 50)
	}
}

// private refuses a file that others than its owner can read or write.
func private(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return &ExposedError{Path: f.Name(), Mode: mode}
	}
	return nil
}

// replace sets a damaged file aside, and puts a new one in its place in the same step where
// something of the old one can be read.
func (o *outcome) replace(f *os.File, path string, now time.Time) (aside string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	rename := os.Rename
	if o.saved = salvage(f, info.Size()); o.saved != nil {
		o.newer = lostChange(f, info.Size())
		fresh, err := o.saved.store(path)
		if err != nil {
			return "", err
		}
		rename = func(from, to string) error {
			if err := os.Link(from, to); err != nil { // the name has a file all the time
				if err := os.Rename(from, to); err != nil {
					return err
				}
			}
			return os.Rename(fresh, from)
		}
	}
	return setAside(path, now, rename)
}

// setAside renames a file to <path>.damaged-<UTC time> and makes the rename durable.
func setAside(path string, now time.Time, rename func(from, to string) error) (string, error) {
	base := path + ".damaged-" + now.UTC().Format("20060102T150405Z")
	name := base
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
		name = base + "-" + strconv.Itoa(i)
	}
	if err := rename(path, name); err != nil {
		return "", err
	}
	return name, syncDir(path)
}

// syncDir makes the name of a file durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
