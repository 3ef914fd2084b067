package spool

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// Intervals of syncing. After a kill, lines acknowledged within the last cursorEach may be sent
// again.
const (
	cursorEach = 200 * time.Millisecond
	syncEach   = time.Second
)

// Run calls send, and in parallel moves lines to disk. When send returns, Run writes the remaining
// lines to disk and stops all goroutines.
func (b *Backlog) Run(ctx context.Context, send func(context.Context)) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var group sync.WaitGroup
	if b.spool != nil {
		group.Go(func() { b.spill(background) })
		group.Go(func() { b.sync(background) })
	}
	send(ctx)
	b.Close()
	cancel()
	group.Wait()
	return b.Finish()
}

// Close makes Put fail from now on.
func (b *Backlog) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signalFreed()
}

// Discard makes Finish drop unfinished lines.
func (b *Backlog) Discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.discarded = true
}

// sync saves the cursor and syncs written data until ctx ends.
func (b *Backlog) sync(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	var synced time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.unsynced:
		}
		timer.Reset(cursorEach)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := b.saveCursor(false)
		if now := time.Now(); now.Sub(synced) >= syncEach {
			synced = now
			err = errors.Join(err, b.syncFiles())
		} else {
			notify(b.unsynced)
		}
		if err != nil {
			b.log.Warn("spool: cannot sync", "error", err)
		}
	}
}

// saveCursor writes the number of the last finished line to disk.
func (b *Backlog) saveCursor(sync bool) error {
	b.mu.Lock()
	done := b.done
	due := done != b.saved
	b.mu.Unlock()
	if !due {
		return nil
	}
	dir := b.spool.directory()
	defer dir.Dir.Close()
	if err := dir.replace(cursorName, cursorTempName, appendCursor(nil, done), sync); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if dir == b.spool.dir { // the spiller holds the lock to replace it
		b.saved = done
	}
	return nil
}

// syncFiles syncs written data, and closes full segments.
func (b *Backlog) syncFiles() error {
	b.mu.Lock()
	retired, dirty, dirDirty, out := b.retired, b.dirty, b.dirDirty, b.out
	b.retired, b.dirty, b.dirDirty = nil, false, false
	b.mu.Unlock()
	var err error
	for _, f := range retired {
		err = errors.Join(err, rotation.SyncFile(f))
		f.Close()
	}
	if dirty && out != nil {
		if e := rotation.SyncFile(out); e != nil && !errors.Is(e, os.ErrClosed) { // closed: its lines are finished
			err = errors.Join(err, e)
		}
	}
	if dirDirty {
		dir := b.spool.directory()
		err = errors.Join(err, dir.File().Sync())
		dir.Dir.Close()
	}
	return err
}

// flush waits until no earlier line is only in memory, and then syncs.
func (b *Backlog) flush(ctx context.Context) error {
	b.mu.Lock()
	last := b.next - 1
	b.flushTo = max(b.flushTo, last)
	for len(b.mem) > 0 && b.mem[0].First <= last {
		if b.closed {
			b.mu.Unlock()
			return ErrClosed
		}
		if _, err := b.awaitChange(ctx, nil); err != nil {
			b.mu.Unlock()
			return err
		}
	}
	closed := b.closed
	b.mu.Unlock()
	if b.spool == nil || closed {
		return nil
	}
	return b.syncFiles()
}

// Finish writes the lines in memory to disk, or drops them, and closes everything. No other method
// may run at the same time.
func (b *Backlog) Finish() error {
	b.mu.Lock()
	cause := accesslog.CauseStopped
	if b.discarded {
		cause = accesslog.CauseRemoved
	}
	b.retryAt = time.Time{}
	b.mu.Unlock()
	if b.spool != nil && !b.discarded {
		b.checkDirectory()
		b.moveAll()
	}
	for b.spool != nil && !b.discarded && len(b.mem) > 0 && b.diskErr == nil && !b.full {
		b.spillOne()
	}
	b.mu.Lock()
	for len(b.mem) > 0 {
		r := b.mem[0]
		b.Count.Drop(cause, r.Lines)
		b.lose(cause, r.Lines, len(r.Payload()), r.At, r.At, r.Last()+1)
		b.popMemory()
	}
	if b.spool != nil && b.discarded {
		for len(b.spool.segs) > 0 {
			b.dropSegment(cause)
		}
	}
	b.mu.Unlock()
	if b.spool == nil {
		return nil
	}
	b.spool.endRead()
	b.dispose()
	b.spool.closeFiles()
	err := errors.Join(b.saveLoss(), b.saveCursor(true), b.syncFiles())
	if b.discarded {
		err = b.spool.dir.destroy()
	}
	if b.spool.out != nil {
		b.spool.out.Close()
	}
	if b.spool.before != nil {
		b.spool.before.close()
	}
	b.spool.dir.close()
	return err
}
