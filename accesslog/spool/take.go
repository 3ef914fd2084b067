package spool

import (
	"sort"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// Take returns the next record for the collector, or nil. Only the sender calls it.
func (b *Backlog) Take() *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.marker(); r != nil {
		return r
	}
	for {
		seg := b.unread()
		if seg == nil {
			break
		}
		file, size, after := seg.file, seg.size, b.taken
		b.mu.Unlock()
		r, err := b.spool.read(seg, file, size, after)
		b.mu.Lock()
		switch {
		case seg.file != file: // moved in the meantime
		case err != nil && isTransient(err):
			b.readErr = err
			return nil
		case b.unread() != seg || b.taken != after: // dropped in the meantime
		case err != nil:
			b.damaged(seg, err)
		default:
			b.readErr = nil
			b.taken = r.Last()
			return r
		}
	}
	if i := sort.Search(len(b.mem), func(i int) bool { return b.mem[i].Last() > b.taken }); i < len(b.mem) {
		b.taken = b.mem[i].Last()
		return b.mem[i]
	}
	return nil
}

// unread returns the first segment with records that were not taken.
func (b *Backlog) unread() *segment {
	if b.spool == nil {
		return nil
	}
	segs := b.spool.segs
	if i := sort.Search(len(segs), func(i int) bool { return segs[i].last > b.taken }); i < len(segs) {
		return segs[i]
	}
	return nil
}

// damaged drops the lines after the damage in a segment.
func (b *Backlog) damaged(seg *segment, err error) {
	last := max(b.taken, seg.first-1)
	lost := seg.last - last
	b.Count.Spooled.Add(-lost)
	b.Count.Drop(accesslog.CauseSpoolBad, lost)
	b.lose(accesslog.CauseSpoolBad, lost, 0, seg.since, seg.until, seg.last+1)
	seg.last, seg.sealed, seg.bad = last, true, true
	b.log.Error("spool: a segment is damaged and lines are lost; the file is kept",
		"file", segmentName(seg.first, badSuffix), "lines", lost, "error", err)
	b.sweep()
}

// Ack records that the collector has all lines up to through, received at a time, and has rejected
// some. Only the sender calls it.
func (b *Backlog) Ack(through uint64, at time.Time, rejected uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sentLoss.Lines > 0 && through+1 >= b.lossAt {
		b.sentLoss = rotation.Loss{}
	}
	if through <= b.done {
		return // dropped in the meantime
	}
	b.doneAt = at
	var lines uint64
	if b.spool != nil {
		for _, seg := range b.spool.segs {
			if seg.first > through {
				break
			}
			if from, to := max(b.done, seg.first-1), min(through, seg.last); to > from {
				lines += to - from
			}
		}
		b.Count.Spooled.Add(-lines)
	}
	b.done, b.taken = through, max(b.taken, through)
	for len(b.mem) > 0 && b.mem[0].Last() <= through {
		lines += b.mem[0].Lines
		b.popMemory()
	}
	rejected = min(rejected, lines)
	b.Count.Written.Add(lines - rejected)
	b.Count.Drop(accesslog.CauseRejected, rejected)
	b.sweep()
}

// sweep removes finished segments, except one that is being written.
func (b *Backlog) sweep() {
	if b.spool == nil {
		return
	}
	for len(b.spool.segs) > 0 && b.spool.segs[0].last <= b.done && (len(b.spool.segs) > 1 || b.spilling == nil) {
		b.pop()
	}
	if b.saved != b.done && (len(b.spool.segs) > 0 || len(b.gone) > 0) {
		notify(b.unsynced)
	}
}

// pop removes the oldest segment from the list. dispose deletes its file.
func (b *Backlog) pop() {
	seg := b.spool.segs[0]
	seg.sealed = true
	b.spool.segs[0] = nil
	b.spool.segs = b.spool.segs[1:]
	b.spool.bytes -= seg.size
	b.gone = append(b.gone, seg)
	b.full = false
	notify(b.work)
}

// Rewind makes all unfinished records available to Take again. Only the sender calls it.
func (b *Backlog) Rewind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = b.done
	if l := b.sentLoss; l.Lines > 0 {
		b.sentLoss = rotation.Loss{}
		b.merge(l)
	}
	notify(b.Ready)
}

// ReadFailed reports whether the last read of the spool failed with a transient error.
func (b *Backlog) ReadFailed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readErr != nil
}

// pending reports whether there are unfinished lines.
func (b *Backlog) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mem) > 0 || b.loss.Lines > 0 || b.spool != nil && len(b.spool.segs) > 0 &&
		b.spool.segs[len(b.spool.segs)-1].last > b.done
}

// Spooled reports whether there are unfinished lines on disk.
func (b *Backlog) Spooled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spool != nil && len(b.spool.segs) > 0
}

// SetDown records whether the collector is unavailable.
func (b *Backlog) SetDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
	if down && len(b.mem) > 0 {
		notify(b.work)
	}
}
