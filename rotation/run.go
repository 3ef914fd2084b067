package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Times of Run.
const (
	lookEach = 500 * time.Millisecond // at the path and what is unsynced, so that within a second both are noticed
	syncEach = time.Second
	scanEach = time.Minute // of the directory, and of the ages of backups
)

// ErrRunning is for a second Run of the same file.
var ErrRunning = errors.New("the file is run by another call; run it once at a time")

// Run does what needs a clock, until ctx ends or the file is closed: it removes backups for their
// age, compresses, syncs, and notices within a second that others have renamed, removed or
// truncated the active file. Writes work without it, but these things are not done then. It returns
// nil when it ends, with all that was written synced.
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
	f.own(true)
	defer f.own(false)
	clock := time.NewTicker(lookEach)
	defer clock.Stop()
	k := &keeper{f: f, synced: time.Now(), scanned: time.Now()}
	for {
		k.settle()
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

// own notes whether Run is there, and leaves nothing to it when it goes.
func (f *File) own(is bool) {
	f.mu.Lock()
	f.owned = is
	retired := f.retired
	if !is {
		f.retired = nil
	}
	f.mu.Unlock()
	if is {
		return
	}
	for _, r := range retired {
		f.finish(r)
	}
	if f.opts.Sync != SyncNever {
		f.sync()
	}
}

// keeper is what Run remembers.
type keeper struct {
	f               *File
	synced, scanned time.Time
}

func (k *keeper) tick() {
	now := time.Now()
	k.settle()
	k.f.lookAround()
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

// settle closes what was retired.
func (k *keeper) settle() {
	f := k.f
	f.mu.Lock()
	retired := f.retired
	f.retired = nil
	f.mu.Unlock()
	for _, r := range retired {
		f.finish(r)
	}
}

// lookAround compares the path with the active file, and forgets how much space there was.
func (f *File) lookAround() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return
	}
	f.room = 0
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
		err = fmt.Errorf("lines go to a file that is no longer at its path: %w", err)
	}
	f.faults.set(faultOutside, err)
}

// sync forces what was written to the disk, and the names in the directory, while writers go on.
func (f *File) sync() {
	f.mu.Lock()
	file, dirty, dirDirty := f.f, f.dirty, f.dirDirty
	f.dirty, f.dirDirty = false, false
	f.mu.Unlock()
	if file == nil {
		return
	}
	var err error
	if dirty {
		err = syncFile(file)
		f.mu.Lock()
		if f.f != file {
			err = nil // it was retired meanwhile, and synced for that
		}
		f.mu.Unlock()
	}
	if dirDirty {
		err = errors.Join(err, syncFile(f.dir.f))
	}
	f.noteSync(err, dirty, dirDirty)
}

// syncLocked is sync within a write.
func (f *File) syncLocked() {
	err := syncFile(f.f)
	if f.dirDirty {
		err = errors.Join(err, syncFile(f.dir.f))
	}
	if f.dirty, f.dirDirty = false, false; err != nil {
		f.count.syncErrors.Add(1)
		err = fmt.Errorf("cannot sync, so the last lines may be lost with the power: %w", err)
	}
	f.faults.set(faultSync, err)
}

// noteSync keeps what is to be synced again.
func (f *File) noteSync(err error, dirty, dirDirty bool) {
	if err == nil {
		if dirty {
			f.faults.set(faultSync, nil)
		}
		return
	}
	f.count.syncErrors.Add(1)
	f.faults.set(faultSync, fmt.Errorf("cannot sync, so the last lines may be lost with the power: %w", err))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty, f.dirDirty = f.dirty || dirty, f.dirDirty || dirDirty
}

// syncFile syncs a file that another goroutine may close meanwhile.
func syncFile(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = datasync(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return &os.PathError{Op: "sync", Path: file.Name(), Err: failed}
	}
	return nil
}

// rescan reads the directory again, since others may have removed backups or brought some, and
// prunes.
func (f *File) rescan() {
	f.mu.Lock()
	until := f.last
	f.mu.Unlock()
	found, _, err := f.dir.scan()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return
	}
	if err == nil {
		i := len(f.backups)
		for i > 0 && f.backups[i-1].stamp > until {
			i--
		}
		// Rotations of the meantime may have been found or not; the index has them.
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

// Close waits for a batch that is being written, ends writers that wait and Run, and syncs. The
// lines of those are not stored, as their Write says. A second call does nothing.
func (f *File) Close() error {
	var err error
	f.closing.Do(func() {
		close(f.done)
		<-f.turn // stays taken
		<-f.running
		f.mu.Lock()
		f.repair() // half of a write that failed is not left behind
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
