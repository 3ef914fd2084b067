package rotation

import (
	"context"
	"fmt"
	"time"
)

// TryAppend is like [File.Append], but neither waits for a disk that is full or fails, nor drops
// lines. It returns the number of stored bytes, which ends at a line, and the error that prevents
// the rest. It waits only for other writers.
func (f *File) TryAppend(ctx context.Context, batch []byte) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	if batch[len(batch)-1] != '\n' {
		return 0, ErrUnterminated
	}
	if err := f.acquire(ctx); err != nil {
		return 0, err
	}
	defer f.release()
	f.setNote(noteOf(ctx), 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, ErrClosed
	}
	return f.storeNow(batch, f.opts.Now())
}

// storeNow writes the marker of dropped lines, and then as much of a batch as it can.
func (f *File) storeNow(batch []byte, now time.Time) (int, error) {
	stored := 0
	err := f.mark(now)
	if err == nil {
		f.noting = f.note != nil
		stored, err = f.append(batch)
		f.noting = false
	}
	if err != nil && f.checkDirectory() { // the path leads to another directory now
		f.noting = f.note != nil
		n, repeated := f.append(batch[stored:])
		stored, err, f.noting = stored+n, repeated, false
	}
	if err == nil && f.opts.Sync == SyncEachBatch {
		f.syncLocked()
	}
	if err == nil {
		f.faults.set(faultWrite, nil)
		return stored, nil
	}
	f.count.retries.Add(1)
	if f.away {
		f.faults.set(faultWrite, nil) // the fault of the directory is the reason
		return stored, err
	}
	f.faults.set(faultWrite, fmt.Errorf("cannot write: %w; %s", err, remedy(err)))
	return stored, err
}

// IsFull reports whether an error of a write means that the disk or a quota is full, or that less
// than minFree is free.
func IsFull(err error) bool { return isFull(err) }
