package rotation

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// mostRetired bounds the files that wait for Run to close them.
const mostRetired = 16

// Rotate makes a backup of the active file and begins a new one. An empty file stays.
func (f *File) Rotate() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return ErrClosed
	}
	if err := f.repair(); err != nil {
		return err
	}
	if f.size == 0 {
		return nil
	}
	f.rotateAfter = time.Time{}
	return f.rotate()
}

// Reopen closes the active file and opens what its path names now, for those who have moved it
// away.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return ErrClosed
	}
	if err := f.repair(); err != nil {
		return err
	}
	return f.openActive()
}

// tryRotate rotates, unless that has failed a moment ago.
func (f *File) tryRotate() bool {
	if time.Now().Before(f.rotateAfter) {
		return false
	}
	return f.rotate() == nil
}

// rotate renames the active file to the next name and opens a new one. What fails is undone, and
// the file stays active.
func (f *File) rotate() (err error) {
	defer func() {
		if err != nil {
			f.count.rotationErrors.Add(1)
			f.rotateAfter = time.Now().Add(rotateWait)
			err = fmt.Errorf("cannot rotate, so the file grows: %w", err)
		}
		f.faults.set(faultRotate, err)
	}()
	base := f.dir.names.base
	switch st, err := f.dir.stat(base); {
	case isGone(err) || err == nil && !f.isActive(st):
		f.count.outside.Add(1) // somebody has made a backup of his own
		return f.openActive()
	case err != nil:
		return err
	}
	stamp := max(f.opts.Now().UnixMilli(), f.last+1, 0)
	for {
		if stamp > lastStamp {
			return fmt.Errorf("the names of backups in %s are used up to the year 8999; remove those that are not of the past",
				f.dir.path)
		}
		if _, err = f.dir.stat(f.dir.names.compressed(stamp)); isGone(err) {
			err = f.dir.rename(base, f.dir.names.backup(stamp))
		} else if err == nil {
			err = unix.EEXIST
		}
		if !errors.Is(err, unix.EEXIST) {
			break
		}
		stamp++
	}
	if err != nil {
		return err
	}
	if err := f.openActive(); err != nil {
		if undo := f.dir.rename(f.dir.names.backup(stamp), base); undo != nil {
			f.keep(stamp) // lines go on into the backup: nothing is lost, and Run looks for the path again
			return errors.Join(err, undo)
		}
		return err
	}
	f.keep(stamp)
	f.count.rotations.Add(1)
	f.prune()
	f.poke()
	return nil
}

// keep notes a backup.
func (f *File) keep(stamp int64) {
	f.backups = append(f.backups, backup{stamp: stamp, plain: true})
	f.last, f.dirDirty = stamp, true
}

func (f *File) isActive(st unix.Stat_t) bool { return uint64(st.Dev) == f.dev && st.Ino == f.ino }

// poke tells Run that there is something to do.
func (f *File) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// retire closes a file soon. Without Run, or with too many, that is now.
func (f *File) retire(r retired) {
	f.retired = append(f.retired, r)
	for len(f.retired) > 0 && (!f.owned || len(f.retired) > mostRetired) {
		f.finish(f.retired[0])
		f.retired = f.retired[1:]
	}
	f.poke()
}

// finish syncs and closes a file.
func (f *File) finish(r retired) {
	if r.sync {
		if err := syncFile(r.f); err != nil {
			f.count.syncErrors.Add(1)
			f.faults.set(faultSync,
				fmt.Errorf("cannot sync %s, whose last lines may be lost with the power: %w", r.f.Name(), err))
		}
	}
	r.f.Close()
}

// prune applies number and age to the backups.
func (f *File) prune() {
	n := surplus(f.backups, f.opts.Limits, f.opts.Now())
	f.count.removed.Add(uint64(f.removeOldest(n, true)))
}

// removeOldest removes backups and returns how many are gone. Those that cannot be removed stay in
// the index.
func (f *File) removeOldest(n int, later bool) (gone int) {
	if n == 0 {
		return 0
	}
	var kept []backup
	for _, b := range f.backups[:n] {
		if b.plain && f.unlink(f.dir.names.backup(b.stamp), later) {
			b.plain = false
		}
		if b.gz && f.unlink(f.dir.names.compressed(b.stamp), later) {
			b.gz = false
		}
		if b.plain || b.gz {
			kept = append(kept, b)
		} else {
			gone++
		}
	}
	f.backups = append(kept, f.backups[n:]...)
	f.dirDirty = true
	return gone
}

// unlink removes a file. To free the blocks of a large file takes long; with later, Run does that:
// it holds the file open.
func (f *File) unlink(name string, later bool) bool {
	if later && f.owned {
		if file, _, err := f.dir.open(name, unix.O_RDONLY); err == nil {
			f.retire(retired{f: file})
		}
	}
	if err := f.dir.remove(name); err != nil && !isGone(err) {
		f.count.removeErrors.Add(1)
		return false
	}
	return true
}

// makeRoom removes what a full disk does not have to keep, and reports whether it found something.
func (f *File) makeRoom() bool {
	had := len(f.retired) > 0
	for _, r := range f.retired {
		f.finish(r)
	}
	f.retired = nil
	if n := surplus(f.backups, f.opts.Limits, f.opts.Now()); n > 0 {
		gone := f.removeOldest(n, false)
		f.count.removed.Add(uint64(gone))
		had = had || gone > 0
	}
	if !had && f.opts.PurgeWhenFull && len(f.backups) > 0 {
		gone := f.removeOldest(1, false)
		f.count.purged.Add(uint64(gone))
		had = gone > 0
	}
	return had
}
