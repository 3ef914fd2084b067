package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/spool"
	"github.com/nearside-mesh/nearside/rotation"
)

// overflow writes the lines of a file. While the file cannot be written, lines go to a queue on
// disk, in order, and from there to the file. Without space in the queue, writers wait or lines are
// dropped. It is safe for concurrent use.
type overflow struct {
	file  *rotation.File
	opts  rotation.Options
	spool FileSpool
	dir   string // of the queue; "": none
	log   *slog.Logger
	count accesslog.Counters
	wake  chan struct{} // one slot: the queue has lines
	done  chan struct{} // closed by close
	ended chan struct{} // closed when run has ended; nil: run was not called; guarded by mu

	mu     sync.Mutex   // not held while lines are written
	queue  *spool.Queue // nil: not open
	queued bool         // new lines go behind those in the queue
	adding int          // calls that write to the queue
	loss   rotation.Loss
	fault  error // why the queue accepts no lines
	closed bool
}

// FileSpool configures the queues of files.
type FileSpool struct {
	Dir      string // directory of all spools; "": no queues
	MaxBytes int64  // of each queue
}

// Delays of retries. They are reduced randomly by up to half.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = 2 * time.Second
	// queueLinger is how long an empty queue stays open.
	queueLinger = 2 * time.Second
)

// fileSpoolPrefix begins the names of the directories of queues.
const fileSpoolPrefix = "file-"

func newOverflow(f *rotation.File, opts rotation.Options, s FileSpool, log *slog.Logger) *overflow {
	o := &overflow{file: f, opts: opts, spool: s, log: log.With("file", opts.Path), wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	if s.Dir != "" {
		o.dir = filepath.Join(s.Dir, queueName(opts.Path))
		o.load()
	}
	return o
}

// load opens the queue that an earlier agent has left.
func (o *overflow) load() {
	if _, err := os.Lstat(o.dir); err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.openQueue(); err != nil {
		o.log.Error("cannot read the spooled lines of a log file", "dir", o.dir, "error", err)
		return
	}
	if err := o.queue.Restore(o.file.Recover); err != nil {
		o.log.Warn("lines may be written to the file twice", "error", err)
	}
	lines, size, _ := o.queue.Lines(time.Now())
	o.count.In.Add(lines)
	o.count.Spooled.Add(lines)
	o.count.BytesIn.Add(uint64(max(size, 0))) // #nosec G115 -- not negative
	o.queued = true
	notify(o.wake)
}

// openQueue opens the queue. o.mu is held.
func (o *overflow) openQueue() error {
	if o.queue != nil {
		return nil
	}
	q, notes, err := spool.OpenQueue(spool.QueueOptions{File: o.opts.Path, Dir: o.dir,
		Roots: []string{filepath.Dir(o.spool.Dir)}, MaxBytes: o.spool.MaxBytes, Sync: o.opts.Sync})
	for _, note := range notes {
		o.log.Warn("damage found in the spool of a log file", "error", note)
	}
	if err == nil {
		o.queue = q
	}
	return err
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // already notified
	}
}

// append stores a batch of whole lines in the file or the queue, and returns how many bytes are
// stored or dropped, and how many lines of these are dropped. It waits while neither accepts lines,
// unless the file drops lines.
func (o *overflow) append(ctx context.Context, batch []byte) (done, dropped int, err error) {
	if len(batch) > 0 && batch[len(batch)-1] != '\n' {
		return 0, 0, rotation.ErrUnterminated
	}
	for wait := firstRetry; done < len(batch); wait = min(2*wait, maxRetry) {
		n, lost, err := o.add(rotation.NoteAfter(ctx, done), batch[done:])
		done += n
		dropped += lost
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || errors.Is(err, rotation.ErrClosed):
			return done, dropped, err
		case o.opts.OnFull == rotation.DropNewest:
			lost := o.drop(batch[done:], err)
			return len(batch), dropped + lost, nil
		}
		if !pause(ctx, o.done, wait) {
			return done, dropped, errors.Join(context.Cause(ctx), err)
		}
	}
	return done, dropped, nil
}

// pause waits, for a random part of d. It returns false if ctx or done ends first.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d - rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-done:
	}
	return false
}

// add stores the part of a batch for which there is space. It waits only if the lines must not go
// to the queue.
func (o *overflow) add(ctx context.Context, batch []byte) (done, dropped int, err error) {
	o.mu.Lock()
	queued, faulty := o.queued, o.fault != nil
	o.mu.Unlock()
	if !queued {
		if done, err = o.file.TryAppend(ctx, batch); err == nil || ctx.Err() != nil || !o.mayQueue(err) {
			o.countStored(batch[:done], 0)
			if err == nil && faulty {
				o.failed(nil)
			}
			if err == nil || ctx.Err() != nil || errors.Is(err, rotation.ErrClosed) {
				return done, 0, err
			}
			n, dropped, err := o.file.Append(rotation.NoteAfter(ctx, done), batch[done:])
			o.countStored(batch[done:done+n], dropped)
			return done + n, dropped, err
		}
		o.countStored(batch[:done], 0)
	}
	q, err := o.begin()
	if err != nil {
		return done, 0, err
	}
	defer o.finish()
	put := func(ctx context.Context, b []byte) (int, error) {
		n, err := q.Put(ctx, b)
		o.spooled(b[:n])
		return n, err
	}
	err = q.Fits(len(batch)-done+maxMarker, time.Now())
	if err == nil {
		err = o.mark(ctx, put)
	}
	n := 0
	if err == nil {
		n, err = put(rotation.NoteAfter(ctx, done), batch[done:])
	}
	o.failed(err)
	return done + n, 0, err
}

// maxMarker is the space for a marker in bytes: a path, and texts.
const maxMarker = 8 << 10

// spooled counts lines in the queue.
func (o *overflow) spooled(lines []byte) {
	n := accesslog.CountLines(lines)
	o.count.In.Add(n)
	o.count.BytesIn.Add(uint64(len(lines)))
	o.count.Spooled.Add(n)
	notify(o.wake)
}

// countStored counts lines that the file has processed.
func (o *overflow) countStored(stored []byte, dropped int) {
	lines := accesslog.CountLines(stored)
	o.count.In.Add(lines)
	o.count.BytesIn.Add(uint64(len(stored)))
	o.count.Delivered(lines, dropped)
}

// mayQueue reports whether lines that the file does not accept go to the queue: a full disk must
// not be that of the queue.
func (o *overflow) mayQueue(err error) bool {
	if o.dir == "" || errors.Is(err, rotation.ErrClosed) {
		return false
	}
	return !rotation.IsFull(err) || device(filepath.Dir(o.opts.Path)) != device(o.spool.Dir)
}

// device returns the device of a directory, or 0.
func device(dir string) uint64 {
	st, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(sys.Dev) // #nosec G115 -- an identifier
}

// begin returns the queue, and makes all new lines go to it until it is empty.
func (o *overflow) begin() (*spool.Queue, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, rotation.ErrClosed
	}
	if err := o.openQueue(); err != nil {
		o.fault = err
		return nil, err
	}
	if !o.queued {
		o.log.Warn("the log file does not accept lines; they are spooled", "error", o.file.Stats().Health)
	}
	o.queued = true
	o.adding++
	return o.queue, nil
}

func (o *overflow) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.adding--
}

// failed records the result of a write to the queue.
func (o *overflow) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = err
}

// drop counts lines that neither the file nor the queue accepts.
func (o *overflow) drop(lines []byte, cause error) int {
	n := accesslog.CountLines(lines)
	o.count.In.Add(n)
	o.count.BytesIn.Add(uint64(len(lines)))
	o.count.Drop(accesslog.CauseDiskFull, n)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loss.Add(lines, o.opts.Path, cause, time.Now())
	return bytes.Count(lines, []byte{'\n'})
}

// mark writes the marker of lines that drop has counted. A marker counts as a line.
func (o *overflow) mark(ctx context.Context, to func(context.Context, []byte) (int, error)) error {
	o.mu.Lock()
	loss := o.loss
	o.mu.Unlock()
	if loss.Lines == 0 {
		return nil
	}
	if _, err := to(rotation.WithNote(ctx, func(rotation.Extent) {}), rotation.MarkerLine(loss)); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loss = rotation.Loss{}
	return nil
}

// recover returns how much of the data being written when an earlier agent was killed is in the
// file or in the queue.
func (o *overflow) recover(p rotation.Extent, front []byte) int {
	if n := o.file.Recover(p, front); n > 0 {
		return n
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue == nil {
		return 0
	}
	return o.queue.Recover(p, front)
}

// stats returns the counters of all lines of the file, and its health.
func (o *overflow) stats() accesslog.Stats {
	s := o.count.Stats()
	st := o.file.Stats()
	s.Oversize, s.Full, s.DirChanges = st.Oversize, st.Full, st.Recovered
	o.mu.Lock()
	q, queued, fault := o.queue, o.queued, o.fault
	o.mu.Unlock()
	var health []string
	if st.Health != nil {
		health = append(health, st.Health.Error())
	}
	if q != nil && queued {
		lines, size, age := q.Lines(time.Now())
		s.SpoolBytes, s.SpoolOldest = uint64(max(size, 0)), age.Seconds() // #nosec G115 -- not negative
		if lines > 0 {
			health = append(health, fmt.Sprintf("%d lines wait in the spool %s", lines, o.dir))
		}
	}
	if fault != nil {
		health = append(health, fmt.Sprintf("the spool %s accepts no lines: %v; free disk space there, "+
			"or raise accessLog.spool.maxSize", o.dir, fault))
	}
	s.Health = strings.Join(health, "\n")
	return s
}

// close stops run and closes the queue. Lines in it stay for the next agent.
func (o *overflow) close() error {
	o.mu.Lock()
	o.closed = true
	close(o.done)
	ended := o.ended
	o.mu.Unlock()
	if ended != nil {
		<-ended
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue == nil {
		return nil
	}
	q := o.queue
	o.queue = nil
	if !o.queued {
		return q.Remove()
	}
	return q.Close()
}
