package spool

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Minimum and maximum delay before the spiller retries after a disk error. The delay is reduced
// randomly by up to half.
const (
	firstDiskWait = 50 * time.Millisecond
	maxDiskWait   = 2 * time.Second
)

// spill is the spiller: until ctx ends, it moves lines from memory to disk when they are due and
// removes finished and expired segments.
func (b *Backlog) spill(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	check := time.NewTicker(checkEach)
	defer check.Stop()
	for {
		wait, ever := b.spillDue()
		timer.Stop()
		if ever {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-b.work:
		case <-timer.C:
		case <-check.C:
			b.checkDirectory()
		}
	}
}

// spillDue does all work that is due, and returns when more will be.
func (b *Backlog) spillDue() (wait time.Duration, ever bool) {
	for {
		b.dispose()
		b.moveOne()
		now := time.Now()
		b.mu.Lock()
		expiry, expires := b.expire(now)
		wait, ever = b.due(now)
		b.mu.Unlock()
		if ever && wait <= 0 {
			b.spillOne()
			continue
		}
		if expires && (!ever || expiry < wait) {
			return expiry, true
		}
		return wait, ever
	}
}

// due returns when the oldest lines in memory go to disk.
func (b *Backlog) due(now time.Time) (wait time.Duration, ever bool) {
	switch {
	case len(b.mem) == 0:
		b.diskErr, b.stalled = nil, false // nothing needs the disk
		return 0, false
	case b.diskErr != nil && now.Before(b.retryAt):
		return b.retryAt.Sub(now), true
	case b.full:
		return 0, false // until a segment is finished
	case b.hurry, b.waiting > 0, b.memBytes >= b.opts.MaxMemory/2, b.mem[0].First <= b.flushTo:
		return 0, true
	case b.down:
		return spillDown - now.Sub(b.mem[0].At), true
	}
	return spillSlow - now.Sub(b.mem[0].At), true
}

// expire drops expired segments, and returns when the next one expires.
func (b *Backlog) expire(now time.Time) (wait time.Duration, ever bool) {
	if b.opts.MaxAge == 0 {
		return 0, false
	}
	for len(b.spool.segs) > 0 {
		if age := now.Sub(b.spool.segs[0].until); age <= b.opts.MaxAge {
			return max(b.opts.MaxAge-age, 0) + 1, true
		}
		b.dropSegment(accesslog.CauseSpoolAge)
	}
	return 0, false
}

// dropSegment drops the oldest segment.
func (b *Backlog) dropSegment(why accesslog.Cause) {
	seg := b.spool.segs[0]
	if from := max(b.done, seg.first-1); seg.last > from {
		lines := seg.last - from
		b.Count.Spooled.Add(-lines)
		b.Count.Drop(why, lines)
		b.lose(why, lines, int(seg.size), seg.since, seg.until, seg.last+1)
		b.log.Warn("spool: oldest lines dropped", "cause", why, "lines", lines)
	}
	b.done, b.taken = max(b.done, seg.last), max(b.taken, seg.last)
	b.pop()
}

// dispose removes the files of segments that are no longer listed.
func (b *Backlog) dispose() {
	b.mu.Lock()
	gone := b.gone
	b.gone = nil
	b.mu.Unlock()
	for _, seg := range gone {
		if seg == b.spool.outSeg {
			b.mu.Lock()
			b.out = nil
			b.mu.Unlock()
			b.spool.out.Close()
			b.spool.out, b.spool.outSeg = nil, nil
		}
		if err := b.spool.dispose(seg); err != nil {
			b.log.Warn("spool: cannot remove a file", "error", err)
		}
	}
}

// spillOne moves the oldest record in memory to disk, or handles the failure.
func (b *Backlog) spillOne() {
	b.mu.Lock()
	r, at, ok := b.beginSpill()
	b.mu.Unlock()
	if !ok {
		return
	}
	b.dispose()
	seg, usable := b.spool.outSeg, true
	var err error
	if at < 0 {
		var before *os.File
		if seg, before, err = b.spool.create(r); errors.Is(err, fs.ErrNotExist) {
			b.checkDirectory()
			seg, before, err = b.spool.create(r)
		}
		if err == nil {
			b.mu.Lock()
			if before != nil {
				b.retired = append(b.retired, before)
			}
			b.spool.segs = append(b.spool.segs, seg)
			b.out, b.dirDirty = b.spool.out, true
			b.mu.Unlock()
			at = 0
		}
	}
	if err == nil {
		usable, err = b.spool.append(r, at)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spilling = nil
	if !usable {
		seg.sealed = true
	}
	if err != nil {
		b.spillFailed(err, time.Now())
		return
	}
	b.stalled, b.diskErr, b.retryWait = false, nil, 0
	if seg.sealed { // found damaged in the meantime
		return
	}
	seg.size, seg.last, seg.until = seg.size+int64(len(r.buf)), r.Last(), r.At
	b.spool.bytes += int64(len(r.buf))
	b.dirty = true
	if len(b.mem) > 0 && b.mem[0] == r {
		b.Count.Spooled.Add(r.Lines)
		b.popMemory()
	}
	b.sweep()
	notify(b.unsynced)
}

// beginSpill selects the record, and its offset in the current segment; -1 means a new segment.
func (b *Backlog) beginSpill() (r *Record, at int64, ok bool) {
	if len(b.mem) == 0 {
		return nil, 0, false
	}
	r = b.mem[0]
	s := b.spool
	for s.bytes+int64(len(r.buf)) > b.opts.MaxBytes && len(s.segs) > 0 {
		if b.opts.OnFull != DropOldest {
			b.full = true
			b.signalFreed()
			b.signalLeft()
			return nil, 0, false
		}
		b.dropSegment(accesslog.CauseSpoolFull)
	}
	b.spilling = r
	if n := len(s.segs); n > 0 && s.segs[n-1] == s.outSeg && s.accepts(s.outSeg, r) {
		return r, s.outSeg.size, true
	}
	if n := len(s.segs); n > 0 {
		s.segs[n-1].sealed = true
	}
	return r, -1, true
}

// spillFailed frees space on a full disk if the policy allows it, or schedules a retry.
func (b *Backlog) spillFailed(err error, now time.Time) {
	if isDiskFull(err) && b.opts.OnFull == DropOldest {
		for len(b.spool.segs) > 0 {
			size := b.spool.segs[0].size
			b.dropSegment(accesslog.CauseDiskFull)
			if size > 0 {
				return
			}
		}
	}
	if b.diskErr == nil {
		b.log.Error("spool: cannot write", "error", err)
	}
	b.diskErr = err
	b.retryWait = min(max(2*b.retryWait, firstDiskWait), maxDiskWait)
	b.retryAt = now.Add(b.retryWait - rand.N(b.retryWait/2))
	b.signalFreed()
	b.signalLeft()
}
