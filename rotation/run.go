package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Intervals of Run.
const (
	checkEach = 500 * time.Millisecond // of checks of the path and of unsynced data, so both are handled within a second
	syncEach  = time.Second
	scanEach  = time.Minute // of scans of the directory and checks of the ages of backups
)

// NextTick returns the time until the clock reaches the next multiple of an interval. Loops that
// wait for the same multiples wake an idle process once, not once each.
func NextTick(interval time.Duration) time.Duration {
	now := time.Now().Round(0)
	return now.Truncate(interval).Add(interval).Sub(now)
}

// ErrRunning means that Run is already active.
var ErrRunning = errors.New("Run is already active")

// Run performs background work until ctx ends or the file is closed: it removes old backups,
// compresses, syncs, and detects within a second that another process has renamed, removed, or
// truncated the active file. Writes also work without Run. When it returns nil, all written data is
// synced.
func (f *File) Run(ctx context.Context) error {
	select {
	case <-f.done:
		return ErrClosed
	default:
	}
	select {
	case <-f.running:
	default:
		return ErrRunning
	}
	defer func() { f.running <- struct{}{} }()
	f.setOwned(true)
	defer f.setOwned(false)
	clock := time.NewTimer(NextTick(checkEach))
	defer clock.Stop()
	k := &maintenance{f: f, clock: clock, synced: time.Now(), scanned: time.Now()}
	for {
		k.closeRetired()
		k.compress(ctx, clock.C)
		select {
		case <-ctx.Done():
			return nil
		case <-f.done:
			return nil
		case <-f.wake:
		case <-clock.C:
			k.tick()
		}
	}
}

// setOwned records whether Run is active. When Run ends, it finishes the pending work.
func (f *File) setOwned(owned bool) {
	f.mu.Lock()
	f.owned = owned
	retired := f.retired
	if !owned {
		f.retired = nil
	}
	f.mu.Unlock()
	if owned {
		return
	}
	for _, r := range retired {
		f.finish(r)
	}
	if f.opts.Sync != SyncNever {
		f.sync()
	}
}

// maintenance is the state of Run.
type maintenance struct {
	f               *File
	clock           *time.Timer
	synced, scanned time.Time
}

func (k *maintenance) tick() {
	k.clock.Reset(NextTick(checkEach))
	now := time.Now()
	k.closeRetired()
	k.f.checkPath()
	if now.Sub(k.synced) >= syncEach {
		k.synced = now
		if k.f.opts.Sync != SyncNever {
			k.f.sync()
		}
	}
	if now.Sub(k.scanned) >= scanEach {
		k.scanned = now
		k.f.rescan()
	}
}

// closeRetired closes the retired files.
func (k *maintenance) closeRetired() {
	f := k.f
	f.mu.Lock()
	retired := f.retired
	f.retired = nil
	f.mu.Unlock()
	for _, r := range retired {
		f.finish(r)
	}
}

// checkPath compares the path with the active file, and resets the space budget.
func (f *File) checkPath() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return
	}
	f.spaceBudget = 0
	f.checkDirectory()
	st, err := f.dir.stat(f.dir.names.base)
	if err == nil && f.isActive(st) {
		if st.Size != f.size {
			f.repair()
		}
		f.faults.set(faultOutside, nil)
		f.noteLoss()
		return
	}
	if err == nil || isGone(err) {
		f.count.outside.Add(1)
		err = f.openActive()
	}
	if err != nil {
		err = fmt.Errorf("lines go to a file that was moved from its path: %w", err)
	}
	f.faults.set(faultOutside, err)
}

// sync syncs the active file and the directory. Writers can continue in the meantime.
func (f *File) sync() {
	f.mu.Lock()
	file, dirty, dirDirty := f.f, f.dirty, f.dirDirty
	f.dirty, f.dirDirty = false, false
	if file == nil {
		f.mu.Unlock()
		return
	}
	dir := f.dir
	dir.Retain()
	f.mu.Unlock()
	defer dir.Dir.Close()
	var err error
	if dirty {
		err = SyncFile(file)
		f.mu.Lock()
		if f.f != file {
			err = nil // it was retired in the meantime, which includes a sync
		}
		f.mu.Unlock()
	}
	if dirDirty {
		err = errors.Join(err, SyncFile(dir.File()))
	}
	f.noteSync(err, dirty, dirDirty)
}

// syncLocked is like sync, but called within a write.
func (f *File) syncLocked() {
	err := SyncFile(f.f)
	if f.dirDirty {
		err = errors.Join(err, SyncFile(f.dir.File()))
	}
	if f.dirty, f.dirDirty = false, false; err != nil {
		f.count.syncErrors.Add(1)
		err = fmt.Errorf("cannot sync, so the last lines may be lost on a power failure: %w", err)
	}
	f.faults.set(faultSync, err)
}

// noteSync records the result of a sync, and what must be synced again.
func (f *File) noteSync(err error, dirty, dirDirty bool) {
	if err == nil {
		if dirty {
			f.faults.set(faultSync, nil)
		}
		return
	}
	f.count.syncErrors.Add(1)
	f.faults.set(faultSync, fmt.Errorf("cannot sync, so the last lines may be lost on a power failure: %w", err))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty, f.dirDirty = f.dirty || dirty, f.dirDirty || dirDirty
}

// SyncFile flushes the data and size of a file to disk, but not its times. Another goroutine may
// close the file at the same time.
func SyncFile(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fdatasync(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return &os.PathError{Op: "sync", Path: file.Name(), Err: failed}
	}
	return nil
}

// rescan reads the directory again and prunes, because other processes may have added or removed
// backups.
func (f *File) rescan() {
	f.mu.Lock()
	until, dir := f.last, f.dir
	dir.Retain()
	f.mu.Unlock()
	found, _, err := dir.scan()
	dir.Dir.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil || f.dir != dir {
		return
	}
	if err == nil {
		i := len(f.backups)
		for i > 0 && f.backups[i-1].stamp > until {
			i--
		}
		// The listing may lack recent rotations; the index has all of them.
		j := len(found)
		for j > 0 && i < len(f.backups) && found[j-1].stamp >= f.backups[i].stamp {
			j--
		}
		f.backups = append(found[:j:j], f.backups[i:]...)
		if n := len(f.backups); n > 0 {
			f.last = max(f.last, f.backups[n-1].stamp)
		}
	} else {
		f.count.removeErrors.Add(1)
	}
	f.prune()
}

// Close waits for the current write, ends waiting writers and Run, and syncs. Writers that waited
// get ErrClosed with the number of stored bytes. A second call does nothing.
func (f *File) Close() error {
	var err error
	f.closing.Do(func() {
		close(f.done)
		<-f.turn // never released
		<-f.running
		f.mu.Lock()
		if f.torn {
			_ = f.repair() // removes the rest of a failed write
		}
		f.mu.Unlock()
		if f.opts.Sync != SyncNever {
			f.sync()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.retired {
			f.finish(r)
		}
		f.retired = nil
		err = f.f.Close()
		f.f = nil
		f.dir.close()
	})
	return err
}
