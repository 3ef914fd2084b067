package spool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// ErrClosed is for lines that come once their destination has ended.
var ErrClosed = errors.New("the destination is closed")

// Times of a backlog.
const (
	// diskPatience is how long a writer waits for a disk that takes nothing.
	diskPatience = time.Second
	// spillDown and spillSlow are how long lines stay in memory alone, while the collector is away and
	// while it is there.
	spillDown = 100 * time.Millisecond
	spillSlow = time.Second
)

// recordCost is what a record takes in memory beside its bytes.
const recordCost = 128

// Backlog is what waits for one collector: lines in the order in which they came, numbered, the
// older ones in the spool and the newer ones in memory.
//
//	done < lines that were taken and not yet acknowledged <= taken < lines that wait
//
// The spool ends where the memory begins, so lines that come while something is in the spool are
// behind it. Lines stay where they are until they are done with; what goes from memory to the spool
// goes in order, whether it was taken or not.
//
// One goroutine, the sender, takes; one, the writer of the spool, spills; one syncs. Any may put.
type Backlog struct {
	opts     Options
	coalesce int // bytes up to which batches in memory become one record
	Count    accesslog.Counters
	log      *slog.Logger
	Ready    chan struct{} // one slot: there is something to take
	work     chan struct{} // one slot: there may be something to spill
	unsynced chan struct{} // one slot: there is something to sync

	mu          sync.Mutex // never held over a call to the disk
	spool       *spool     // nil for memory alone
	mem         []*Record
	memBytes    int
	next        uint64 // number of the next line
	done, taken uint64
	doneAt      time.Time // when the last line that is done with had come
	spilling    *Record   // is being written
	gone        []*segment
	retired     []*os.File    // to be synced and closed
	room        chan struct{} // closed and made anew when there may be room
	waiting     int           // writers that wait for room
	flushTo     uint64        // lines up to here are not to stay in memory
	down        bool          // the collector is not there
	full        bool          // the spool has reached its limit
	stalled     bool          // the disk takes nothing
	closed      bool
	diskErr     error
	retryAt     time.Time // no write to the disk before, after diskErr
	retryWait   time.Duration
	readErr     error
	saved       uint64   // the cursor on disk
	out         *os.File // the segment that is written to
	dirty       bool     // out
	dirDirty    bool
	discarded   bool // what waits at the end is dropped
}

// NewBacklog opens what was left behind.
func NewBacklog(opts Options, coalesce int, log *slog.Logger) (*Backlog, error) {
	if err := opts.Validate("spool."); err != nil {
		return nil, err
	}
	opts = opts.normalized()
	b := &Backlog{opts: opts, coalesce: coalesce, log: log, Ready: make(chan struct{}, 1), work: make(chan struct{}, 1),
		unsynced: make(chan struct{}, 1), room: make(chan struct{}), next: 1, down: true}
	if opts.Dir == "" {
		return b, nil
	}
	s, was, err := openSpool(opts)
	if err != nil {
		return nil, err
	}
	for _, note := range was.notes {
		log.Warn("spool: found damaged", "error", note)
	}
	b.spool, b.done, b.taken, b.saved, b.next = s, was.done, was.done, was.done, was.last+1
	b.Count.In.Store(was.lines)
	b.Count.Spooled.Store(was.lines)
	b.Count.BytesIn.Store(uint64(was.bytes)) // #nosec G115 -- sizes are not negative
	if was.lines > 0 {
		log.Info("spool: lines wait from before", "lines", was.lines, "bytes", was.bytes)
		notify(b.Ready)
	}
	return b, nil
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Put takes lines, as one record or as a part of one, or drops them by the policy. It waits for
// room only with SpoolBlock, or while the disk takes lines. It reports whether these lines wait
// now.
func (b *Backlog) Put(ctx context.Context, payload []byte, lines uint64) (taken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.closed {
			return false, ErrClosed
		}
		now := time.Now()
		if b.insert(payload, lines, now) {
			return true, nil
		}
		cause, wait := b.onFull(now)
		if !wait {
			if b.opts.OnFull == DropOldest && b.dropMemory(cause) {
				continue
			}
			b.received(payload, lines)
			b.Count.Drop(cause, lines)
			return false, nil
		}
		if err := b.awaitRoom(ctx); err != nil {
			return false, err
		}
	}
}

func (b *Backlog) received(payload []byte, lines uint64) {
	b.Count.In.Add(lines)
	b.Count.BytesIn.Add(uint64(len(payload)))
}

// insert puts lines into memory, if there is room. What the sender or the writer of the spool has
// is not grown.
func (b *Backlog) insert(payload []byte, lines uint64, now time.Time) bool {
	if n := len(b.mem); n > 0 {
		tail := b.mem[n-1]
		if grown := len(tail.buf) + len(payload); grown-recordHeader <= b.coalesce && tail.Last() > b.taken &&
			tail != b.spilling {
			size := cap(tail.buf)
			if grown > size {
				size = min(max(2*size, grown), b.coalesce+recordHeader)
			}
			if !b.resize(b.memBytes-cap(tail.buf)+size, false) {
				return false
			}
			if size > cap(tail.buf) {
				tail.buf = append(make([]byte, 0, size), tail.buf...)
			}
			tail.buf = append(tail.buf, payload...)
			tail.Lines += lines
			b.inserted(payload, lines)
			return true
		}
	}
	if !b.resize(b.memBytes+recordHeader+len(payload)+recordCost, len(b.mem) == 0) {
		return false
	}
	r := newRecord(len(payload), now)
	r.buf = append(r.buf, payload...)
	r.First, r.Lines = b.next, lines
	b.mem = append(b.mem, r)
	b.inserted(payload, lines)
	return true
}

func (b *Backlog) inserted(payload []byte, lines uint64) {
	b.next += lines
	b.received(payload, lines)
	notify(b.Ready)
	if b.spool != nil && (len(b.mem) == 1 || b.memBytes >= b.opts.MaxMemory/2) {
		notify(b.work)
	}
}

// resize changes what the memory holds. The first record goes in whatever the limits are.
func (b *Backlog) resize(to int, always bool) bool {
	if to > b.memBytes && !always && to > b.opts.MaxMemory {
		return false
	}
	if !b.opts.Memory.resize(b.memBytes, to) && !always {
		return false
	}
	b.memBytes = to
	return true
}

// forget takes the oldest record out of memory.
func (b *Backlog) forget() {
	r := b.mem[0]
	b.mem[0] = nil
	b.mem = b.mem[1:]
	b.resize(b.memBytes-cap(r.buf)-recordCost, true)
	b.makeRoom()
}

func (b *Backlog) makeRoom() {
	if b.waiting > 0 {
		close(b.room)
		b.room = make(chan struct{})
	}
}

// onFull decides whether to wait for room, or why to drop.
func (b *Backlog) onFull(now time.Time) (why accesslog.Cause, wait bool) {
	switch {
	case b.opts.OnFull == Block:
		return "", true
	case b.spool == nil:
		return accesslog.CauseSpoolFull, false
	case b.full:
		return accesslog.CauseSpoolFull, false
	case b.diskErr != nil && now.Before(b.retryAt), b.stalled:
		return accesslog.CauseDiskFull, false
	}
	return "", true
}

// dropMemory drops the oldest record if that is in memory.
func (b *Backlog) dropMemory(cause accesslog.Cause) bool {
	if len(b.mem) == 0 || b.spool != nil && len(b.spool.segs) > 0 {
		return false
	}
	r := b.mem[0]
	b.Count.Drop(cause, r.Lines)
	b.done, b.taken = r.Last(), max(b.taken, r.Last())
	b.forget()
	return true
}

// awaitRoom waits with the lock released.
func (b *Backlog) awaitRoom(ctx context.Context) error {
	if b.opts.OnFull == Block {
		_, err := b.awaitChange(ctx, nil)
		return err
	}
	timer := time.NewTimer(diskPatience)
	defer timer.Stop()
	late, err := b.awaitChange(ctx, timer.C)
	b.stalled = b.stalled || late
	return err
}

// awaitChange waits, with the lock released, until something has left the memory or cannot leave
// it.
func (b *Backlog) awaitChange(ctx context.Context, patience <-chan time.Time) (late bool, err error) {
	b.waiting++
	room := b.room
	notify(b.work)
	b.mu.Unlock()
	select {
	case <-room:
	case <-patience:
		late = true
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	b.waiting--
	return late && room == b.room, err
}

// Stats are exact, since what is counted changes under the lock.
func (b *Backlog) Stats(now time.Time) accesslog.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.Count.Stats()
	if b.spool != nil {
		s.SpoolBytes = uint64(b.spool.bytes) // #nosec G115 -- sizes are not negative
		if len(b.spool.segs) > 0 {
			oldest := b.spool.segs[0].since
			if b.doneAt.After(oldest) {
				oldest = b.doneAt
			}
			s.SpoolOldest = max(0, now.Sub(oldest).Seconds())
		}
	}
	switch {
	case b.diskErr != nil:
		s.Health = "the spool cannot be written: " + b.diskErr.Error() + "; make space or repair the file system"
	case b.readErr != nil:
		s.Health = "the spool cannot be read: " + b.readErr.Error() + "; raise the limit that is named"
	case b.stalled:
		s.Health = "the disk of the spool does not answer and lines are dropped; look at the file system of " + b.opts.Dir
	case b.full:
		s.Health = "the spool is full; raise its limit or look after the collector"
	}
	return s
}
