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

// lockWait is the time that Open waits for another process to unlock the file, for example during a
// quick restart.
const lockWait = time.Second

// ErrLocked is wrapped by the error of Open if another process has the state file open.
var ErrLocked = errors.New("another process has it open: stop the other agent, " +
	"or give this one a separate paths.state")

// FormatError is the error for a state file of a newer version.
type FormatError struct {
	Path   string
	Format string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format %q, and this version supports only %q: run the version that wrote it, "+
		"or move the file away to start without resources that were written over the API", e.Path, e.Format, format)
}

// brokenError is a panic of bbolt, or a fault in its memory map.
type brokenError struct{ cause any }

func (e *brokenError) Error() string { return fmt.Sprintf("the state file is broken: %v", e.cause) }

// guard runs fn and converts panics into a *brokenError. bbolt panics on inconsistent pages. A page
// that the disk cannot deliver is a fault in the memory map, which would end the process without
// SetPanicOnFault.
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
	file *os.File // the file that db has open, with its lock
	path string
	// unsynced is set if a sync may have failed since the last successful one, in this process or
	// before it.
	unsynced bool
}

// outcome holds the results of opening a file, besides the disk.
type outcome struct {
	fresh  bool                    // the file is new and without content
	empty  bool                    // the file existed but was empty
	aside  string                  // new name of a damaged file
	damage error                   // why the file is damaged
	saved  *salvaged               // content salvaged into the new file; nil if none
	newer  map[resource.Key]uint64 // like loaded.newer
	loaded *loaded                 // content of the file

	acceptDamage bool
}

// openDisk opens the file for writing. It creates a missing file, and moves a damaged one aside,
// with acceptDamage even if content is lost without a trace.
func openDisk(path string, now time.Time, acceptDamage bool) (*disk, outcome, error) {
	o := outcome{acceptDamage: acceptDamage}
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
			return nil, o, fmt.Errorf("a new file is damaged: %w", damage)
		}
		// The lock is released after the rename, so that no other process can use the damaged file.
		o.aside, err = o.replace(f, path, now)
		f.Close()
		if err == nil && o.aside == "" {
			return nil, o, &UnusableError{Path: path, Reason: damage}
		}
		if err != nil {
			return nil, o, fmt.Errorf("%s is damaged (%w) and cannot be renamed: %w", path, damage, err)
		}
		o.damage = damage
	}
}

// accept passes a locked file to bbolt if it is intact. On error it closes the file. On damage it
// leaves the file open, so that the lock holds.
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
	if err == nil && o.loaded == nil { // the file has no buckets yet
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
		_ = os.Truncate(path, 0) // an incomplete new file would look damaged
	}
	return nil, nil, err
}

// openReadOnly reads a file that cannot be written.
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

// openBolt opens a locked file with bbolt, which locks it again without effect and closes it on
// error.
func openBolt(f *os.File, path string, readOnly bool) (*disk, error) {
	d := &disk{file: f, path: path, unsynced: true}
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

// close closes an intact file.
func (d *disk) close() error {
	return guard(d.db.Close)
}

// resync writes the meta pages once more after a failed sync. The kernel reports a failed sync once
// and then treats the page as synced, so bbolt would build on a meta page that only the memory has,
// and overwrite pages that the meta page on disk needs.
func (d *disk) resync() error {
	if !d.unsynced {
		return nil
	}
	err := guard(func() error {
		b := make([]byte, 2*d.db.Info().PageSize)
		if _, err := d.file.ReadAt(b, 0); err != nil {
			return err
		}
		if _, err := d.file.WriteAt(b, 0); err != nil {
			return err
		}
		return d.db.Sync()
	})
	d.unsynced = err != nil
	return err
}

// abandon releases a broken file. A regular close could wait for locks that bbolt holds. The memory
// map stays, and with it the open file, so abandon has to release its lock explicitly.
func (d *disk) abandon() {
	_ = syscall.Flock(int(d.file.Fd()), syscall.LOCK_UN)
	_ = d.file.Close()
}

// moved reports whether the path no longer names this file, so that writes to it would be lost.
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

// lockFile opens and locks a file. For reading, the lock is shared. For writing, it is exclusive,
// and a missing file is created.
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
			if to, lerr := os.Readlink(path); lerr == nil && errors.Is(err, fs.ErrExist) {
				return nil, false, &UnusableError{path, fmt.Errorf("it is a symbolic link to %s, which does not exist", to)}
			}
			if errors.Is(err, fs.ErrExist) && time.Now().Before(deadline) {
				continue // another process created it first
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

// private rejects a file that users other than its owner can read or write.
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

// replace moves a damaged file aside. If some of it can be read, a new file replaces it atomically.
// If resources may be lost without a trace, and that is not accepted, it changes nothing and
// returns "".
func (o *outcome) replace(f *os.File, path string, now time.Time) (aside string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	rename := os.Rename
	o.saved = salvage(f, info.Size())
	if !o.acceptDamage && (o.saved == nil || o.saved.recordsLost && o.saved.historyLost) {
		return "", nil
	}
	if o.saved != nil {
		o.newer = lostChange(f, info.Size())
		fresh, err := o.saved.store(path)
		if err != nil {
			return "", err
		}
		rename = func(from, to string) error {
			if err := os.Link(from, to); err != nil { // the path always names a file
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
