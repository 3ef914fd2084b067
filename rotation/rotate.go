package rotation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxRetired limits the files that wait for Run to close them.
const maxRetired = 16

// Rotate renames the active file to a backup and creates a new one. It does nothing if the file is
// empty.
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

// Reopen closes the active file and opens its path again. Call it after another program has moved
// the file.
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

// tryRotate rotates, unless a rotation failed within rotateWait.
func (f *File) tryRotate() bool {
	if time.Now().Before(f.rotateAfter) {
		return false
	}
	return f.rotate() == nil
}

// rotate renames the active file to a backup name and creates a new one. On failure it undoes the
// rename, so the file stays active.
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
		f.count.outside.Add(1) // another process has renamed the file
		return f.openActive()
	case err != nil:
		return err
	}
	stamp := max(f.opts.Now().UnixMilli(), f.last+1, 0)
	for {
		if stamp > lastStamp {
			return fmt.Errorf("backup names in %s are used up to the year 8999; remove backups with future dates",
				f.dir.Path())
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
			f.addBackup(stamp) // writes continue in the backup until Run opens the path again
			return errors.Join(err, undo)
		}
		return err
	}
	f.addBackup(stamp)
	f.count.rotations.Add(1)
	f.prune()
	f.poke()
	return nil
}

// addBackup adds a backup to the index.
func (f *File) addBackup(stamp int64) {
	b := backup{stamp: stamp, modified: f.opts.Now().UnixMilli(), plain: true}
	if n := len(f.backups); n > 0 { // never older than the previous one, also if the clock has moved back
		b.modified = max(b.modified, f.backups[n-1].modified)
	}
	f.backups = append(f.backups, b)
	f.last, f.dirDirty = stamp, true
}

func (f *File) isActive(st unix.Stat_t) bool { return uint64(st.Dev) == f.dev && st.Ino == f.ino }

// poke wakes Run.
func (f *File) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// retire hands a file to Run to be closed. Without Run, or with too many files, it closes the
// oldest at once.
func (f *File) retire(r retired) {
	f.retired = append(f.retired, r)
	for len(f.retired) > 0 && (!f.owned || len(f.retired) > maxRetired) {
		f.finish(f.retired[0])
		f.retired = f.retired[1:]
	}
	f.poke()
}

// finish syncs a file if requested, and closes it.
func (f *File) finish(r retired) {
	if r.sync {
		if err := SyncFile(r.f); err != nil {
			f.count.syncErrors.Add(1)
			f.faults.set(faultSync,
				fmt.Errorf("cannot sync %s, so its last lines may be lost on a power failure: %w", r.f.Name(), err))
		}
	}
	r.f.Close()
}

// prune removes backups above the maximum number or age.
func (f *File) prune() {
	now := f.opts.Now()
	f.count.removed.Add(uint64(f.removeBackups(surplus(f.backups, f.limits(), now), true)))
	f.count.future.Store(int64(futures(f.backups, now)))
}

// removeBackups removes some of the backups, and returns how many it removed. Backups that cannot
// be removed stay in the index.
func (f *File) removeBackups(list []backup, later bool) (gone int) {
	for _, b := range slices.Clone(list) {
		if b.plain && f.unlink(f.dir.names.backup(b.stamp), later) {
			b.plain = false
		}
		if b.gz && f.unlink(f.dir.names.compressed(b.stamp), later) {
			b.gz = false
		}
		i, _ := slices.BinarySearchFunc(f.backups, b, byStamp)
		if f.backups[i] = b; !b.plain && !b.gz {
			gone++
		}
		f.dirDirty = true
	}
	if gone > 0 {
		f.backups = slices.DeleteFunc(f.backups, func(b backup) bool { return !b.plain && !b.gz })
	}
	return gone
}

// unlink removes a file. Freeing the blocks of a large file takes long, so with later, unlink keeps
// the file open until Run closes it.
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

// freeSpace frees disk space by removing files that the limits allow to remove, and reports whether
// it found any.
func (f *File) freeSpace() bool {
	freed := len(f.retired) > 0
	for _, r := range f.retired {
		f.finish(r)
	}
	f.retired = nil
	if list := surplus(f.backups, f.limits(), f.opts.Now()); len(list) > 0 {
		gone := f.removeBackups(list, false)
		f.count.removed.Add(uint64(gone))
		freed = freed || gone > 0
	}
	if !freed && f.opts.PurgeWhenFull && len(f.backups) > 0 {
		gone := f.removeBackups(f.backups[:1], false)
		f.count.purged.Add(uint64(gone))
		freed = gone > 0
	}
	return freed
}
