package accesslog

import (
	"sort"
	"time"
)

// take returns the next record for the collector, nil for none at present. It is the sender's.
func (b *backlog) take() *record {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		seg := b.unread()
		if seg == nil {
			break
		}
		size, after := seg.size, b.taken
		b.mu.Unlock()
		r, err := b.spool.read(seg, size, after)
		b.mu.Lock()
		switch {
		case err != nil && isPassing(err):
			b.readErr = err
			return nil
		case b.unread() != seg || b.taken != after: // dropped meanwhile
		case err != nil:
			b.damaged(seg, err)
		default:
			b.readErr = nil
			b.taken = r.last()
			return r
		}
	}
	if i := sort.Search(len(b.mem), func(i int) bool { return b.mem[i].last() > b.taken }); i < len(b.mem) {
		b.taken = b.mem[i].last()
		return b.mem[i]
	}
	return nil
}

// unread returns the first segment with lines that were not taken.
func (b *backlog) unread() *segment {
	if b.spool == nil {
		return nil
	}
	segs := b.spool.segs
	if i := sort.Search(len(segs), func(i int) bool { return segs[i].last > b.taken }); i < len(segs) {
		return segs[i]
	}
	return nil
}

// damaged gives up what is behind the damage in a segment.
func (b *backlog) damaged(seg *segment, err error) {
	last := max(b.taken, seg.first-1)
	lost := seg.last - last
	b.count.spooled.Add(-lost)
	b.count.drop(CauseSpoolBad, lost)
	seg.last, seg.sealed, seg.bad = last, true, true
	b.log.Error("spool: segment is damaged; lines are lost, the file is kept", "file", segmentName(seg.first, badSuffix),
		"lines", lost, "error", err)
	b.sweep()
}

// ack notes that the collector has all lines up to one, which had come at a time, and has rejected
// some. It is the sender's.
func (b *backlog) ack(through uint64, at time.Time, rejected uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if through <= b.done {
		return // dropped meanwhile
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
		b.count.spooled.Add(-lines)
	}
	b.done, b.taken = through, max(b.taken, through)
	for len(b.mem) > 0 && b.mem[0].last() <= through {
		lines += b.mem[0].lines
		b.forget()
	}
	rejected = min(rejected, lines)
	b.count.written.Add(lines - rejected)
	b.count.drop(CauseRejected, rejected)
	b.sweep()
}

// sweep lets segments go that are done with, but for one that is being written to.
func (b *backlog) sweep() {
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

// pop takes the oldest segment off the list; its file is removed by dispose.
func (b *backlog) pop() {
	seg := b.spool.segs[0]
	seg.sealed = true
	b.spool.segs[0] = nil
	b.spool.segs = b.spool.segs[1:]
	b.spool.bytes -= seg.size
	b.gone = append(b.gone, seg)
	b.full = false
	notify(b.work)
}

// rewind lets everything be taken again that is not done with. It is the sender's.
func (b *backlog) rewind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = b.done
	notify(b.ready)
}

// readFailed reports whether the spool could not be read for a reason that passes.
func (b *backlog) readFailed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readErr != nil
}

// pending reports whether anything is not done with.
func (b *backlog) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mem) > 0 || b.spool != nil && len(b.spool.segs) > 0 && b.spool.segs[len(b.spool.segs)-1].last > b.done
}

// spooled reports whether lines wait on the disk.
func (b *backlog) spooled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spool != nil && len(b.spool.segs) > 0
}

// setDown says whether the collector is there.
func (b *backlog) setDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
	if down && len(b.mem) > 0 {
		notify(b.work)
	}
}
