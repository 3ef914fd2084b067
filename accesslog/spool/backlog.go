package spool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// ErrClosed is returned for lines that arrive after the destination was closed.
var ErrClosed = errors.New("the destination is closed")

// Times of a backlog.
const (
	// diskPatience is how long a writer waits for a blocked disk.
	diskPatience = time.Second
	// spillDown and spillSlow are how long lines stay only in memory while the collector is
	// unavailable or available.
	spillDown = 100 * time.Millisecond
	spillSlow = time.Second
)

// recordCost is the memory overhead of a record in bytes.
const recordCost = 128

// Backlog holds the numbered lines for one collector in order of arrival: older lines in the spool,
// newer lines in memory.
//
//	done < taken but not acknowledged <= taken < waiting
//
// All lines in the spool precede those in memory. Lines stay until they are finished. They move
// from memory to the spool in order, whether taken or not.
//
// The sender takes, the spiller writes the spool, and one goroutine syncs. Put is safe for
// concurrent use.
type Backlog struct {
	opts     Options
	coalesce int // size up to which batches in memory are merged into one record
	Count    accesslog.Counters
	log      *slog.Logger
	Ready    chan struct{} // one slot: Take may return a record
	work     chan struct{} // one slot: lines may be due for spilling
	unsynced chan struct{} // one slot: data needs syncing

	dirChanges atomic.Uint64 // times the directory was opened again, or got its mode again

	mu          sync.Mutex // never held during disk access
	spool       *spool     // nil: memory only
	mem         []*Record
	memBytes    int
	next        uint64 // number of the next line
	done, taken uint64
	doneAt      time.Time // arrival of the last finished line
	spilling    *Record   // being written
	gone        []*segment
	retired     []*os.File    // to be synced and closed
	freed       chan struct{} // closed and replaced when memory may have been freed
	left        chan struct{} // closed and set to nil when Store may return; nil: it does not wait
	hurry       bool          // lines do not stay in memory
	waiting     int           // writers that wait for memory
	flushTo     uint64        // lines up to this number must leave memory
	down        bool          // the collector is unavailable
	full        bool          // the spool has reached its size limit
	stalled     bool          // the disk is blocked
	closed      bool
	diskErr     error
	moveErr     error     // of the last check of the directory, or of the last move of a segment
	retryAt     time.Time // no disk write before this time after diskErr
	retryWait   time.Duration
	readErr     error
	saved       uint64   // cursor on disk
	out         *os.File // current segment
	dirty       bool     // out has unsynced data
	dirDirty    bool
	loss        rotation.Loss // dropped lines that no marker has reported
	lossAt      uint64        // number of the first line after them
	sentLoss    rotation.Loss // of the last marker, until it is acknowledged
	json        bool          // lines are JSON objects
	discarded   bool          // unfinished lines are dropped at the end
}

// NewBacklog opens a backlog and its spool.
func NewBacklog(opts Options, coalesce int, log *slog.Logger) (*Backlog, error) {
	if err := opts.Validate("spool."); err != nil {
		return nil, err
	}
	opts = opts.normalized()
	b := &Backlog{opts: opts, coalesce: coalesce, log: log, Ready: make(chan struct{}, 1), work: make(chan struct{}, 1),
		unsynced: make(chan struct{}, 1), freed: make(chan struct{}), next: 1, down: true}
	if opts.Dir == "" {
		return b, nil
	}
	s, was, err := openSpool(opts)
	if err != nil {
		return nil, err
	}
	for _, note := range was.notes {
		log.Warn("spool: damage found", "error", note)
	}
	b.spool, b.done, b.taken, b.saved, b.next = s, was.done, was.done, was.done, was.last+1
	if err := b.loadLoss(); err != nil {
		log.Warn("spool: cannot read how many lines were dropped", "error", err)
	}
	b.Count.In.Store(was.lines)
	b.Count.Spooled.Store(was.lines)
	b.Count.BytesIn.Store(uint64(was.bytes)) // #nosec G115 -- sizes are not negative
	if was.lines > 0 {
		log.Info("spool: found unsent lines", "lines", was.lines, "bytes", was.bytes)
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

// Put adds lines as a record or appends them to one, or drops them according to the policy. It
// waits for memory only with Block, or while the disk accepts lines. It returns whether the lines
// were stored.
func (b *Backlog) Put(ctx context.Context, payload []byte, lines uint64) (taken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(ctx, payload, lines)
}

func (b *Backlog) put(ctx context.Context, payload []byte, lines uint64) (taken bool, err error) {
	for {
		if b.closed {
			return false, ErrClosed
		}
		now := time.Now()
		b.json = len(payload) > 0 && payload[0] == '{'
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
			b.lose(cause, lines, len(payload), now, now, b.next)
			return false, nil
		}
		if err := b.awaitSpace(ctx); err != nil {
			return false, err
		}
	}
}

func (b *Backlog) received(payload []byte, lines uint64) {
	b.Count.In.Add(lines)
	b.Count.BytesIn.Add(uint64(len(payload)))
}

// insert adds lines to memory if there is space. It does not extend a record that was taken or is
// being spilled.
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
	if b.spool != nil && (b.hurry || len(b.mem) == 1 || b.memBytes >= b.opts.MaxMemory/2) {
		notify(b.work)
	}
}

// resize changes the memory of the backlog. With always, limits are ignored, so the first record
// always fits.
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

// popMemory removes the oldest record from memory.
func (b *Backlog) popMemory() {
	r := b.mem[0]
	b.mem[0] = nil
	b.mem = b.mem[1:]
	b.resize(b.memBytes-cap(r.buf)-recordCost, true)
	b.signalFreed()
	b.signalLeft()
}

func (b *Backlog) signalFreed() {
	if b.waiting > 0 {
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

// onFull returns whether to wait for space, or the cause for dropping lines.
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

// dropMemory drops the oldest record if it is in memory.
func (b *Backlog) dropMemory(cause accesslog.Cause) bool {
	if len(b.mem) == 0 || b.spool != nil && len(b.spool.segs) > 0 {
		return false
	}
	r := b.mem[0]
	b.Count.Drop(cause, r.Lines)
	b.lose(cause, r.Lines, len(r.Payload()), r.At, r.At, r.Last()+1)
	b.done, b.taken = r.Last(), max(b.taken, r.Last())
	b.popMemory()
	return true
}

// awaitSpace waits with the lock released.
func (b *Backlog) awaitSpace(ctx context.Context) error {
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

// awaitChange waits with the lock released until lines have left memory or a change of state
// prevents it. It reports whether patience fired first.
func (b *Backlog) awaitChange(ctx context.Context, patience <-chan time.Time) (late bool, err error) {
	b.waiting++
	freed := b.freed
	notify(b.work)
	b.mu.Unlock()
	select {
	case <-freed:
	case <-patience:
		late = true
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	b.waiting--
	return late && freed == b.freed, err
}

// Stats returns exact counts: all counters change under the lock.
func (b *Backlog) Stats(now time.Time) accesslog.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.Count.Stats()
	s.DirChanges = b.dirChanges.Load()
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
		s.Full = isDiskFull(b.diskErr)
		s.Health = "cannot write the spool: " + b.diskErr.Error() + "; free disk space or repair the file system"
	case b.moveErr != nil:
		s.Health = "cannot use the directory of the spool: " + b.moveErr.Error() +
			"; its lines are kept in open files, which end with the agent"
	case b.readErr != nil:
		s.Health = "cannot read the spool: " + b.readErr.Error() + "; raise this limit"
	case b.stalled:
		s.Health = "the disk of the spool is blocked and lines are dropped; check the file system of " + b.opts.Dir
	case b.full:
		s.Health = "the spool is full; raise its limit or check the collector"
	}
	return s
}
