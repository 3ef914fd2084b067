package fifo

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// queued is a batch of lines in memory, or the marker of dropped lines, which no counter includes.
type queued struct {
	lines  []byte
	marker bool
}

// gate decouples the reader of a FIFO from its destination. Write never fails: while the
// destination blocks, lines go to memory, and are dropped and counted above the limit. So the FIFO
// is always read.
type gate struct {
	count    accesslog.Counters // written and dropped lines; the reader counts received lines
	slow     time.Duration
	maxBytes int                              // limit of bytes in memory
	path     string                           // of the FIFO, for markers
	run      func(func(context.Context)) bool // starts a goroutine; false: Run is not active
	drained  func()                           // called when the queue is empty again

	mu       sync.Mutex
	to       accesslog.Destination
	changed  chan struct{} // closed when to is replaced
	queue    []queued      // oldest first
	loss     rotation.Loss // dropped lines after those in the queue
	bytes    int
	waiting  bool // the queue is in use: all new lines go there
	draining bool // a goroutine delivers the queue
	since    time.Time
	cause    error
	health   string // describes dropped lines, until the destination accepts lines again
	stopped  bool
}

func newGate(to accesslog.Destination, o *Options) *gate {
	return &gate{to: to, slow: o.Slow, maxBytes: o.MaxMemory, changed: make(chan struct{})}
}

// setDestination replaces the destination. Queued lines go to the new one.
func (g *gate) setDestination(to accesslog.Destination) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to == to {
		return
	}
	g.to = to
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) destination() accesslog.Destination {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.to
}

// Write accepts all lines. It waits for the destination at most for slow, and not at all while
// lines are queued.
func (g *gate) Write(from context.Context, batch []byte) (int, error) {
	g.mu.Lock()
	to, waiting := g.to, g.waiting
	g.mu.Unlock()
	n := 0
	var err error
	if !waiting {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(from), g.slow) // from holds the note of the FIFO
		n, err = g.deliver(ctx, to, batch)
		cancel()
		if n == len(batch) {
			return n, nil
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiting {
		g.waiting, g.since, g.cause = true, time.Now(), err
	}
	g.enqueue(batch[n:])
	g.startDraining()
	return len(batch), nil
}

// deliver writes to a destination and counts the lines.
func (g *gate) deliver(ctx context.Context, to accesslog.Destination, batch []byte) (int, error) {
	n, dropped, err := accesslog.Deliver(ctx, to, batch)
	if n > 0 {
		g.count.Delivered(accesslog.CountLines(batch[:n]), dropped)
	}
	if n <= 0 && err == nil {
		err = accesslog.ErrNothingDone
	}
	return max(n, 0), err
}

// enqueue appends lines to the queue and drops lines above the limit. g.mu is held.
func (g *gate) enqueue(batch []byte) {
	if len(batch) == 0 {
		return
	}
	if fits := g.maxBytes - g.bytes; fits > 0 {
		n := len(batch)
		if n > fits {
			n = bytes.LastIndexByte(batch[:fits], '\n') + 1
		}
		if n > 0 {
			g.mark()
			g.queue = append(g.queue, queued{lines: bytes.Clone(batch[:n])})
			g.bytes += n
			batch = batch[n:]
		}
	}
	if len(batch) == 0 {
		return
	}
	g.count.Drop(accesslog.CauseDiskFull, accesslog.CountLines(batch))
	g.loss.Add(batch, g.path, g.cause, time.Now())
	g.health = fmt.Sprintf("lines are dropped (%s): the destination has accepted none since %s (%v); "+
		"free disk space there", accesslog.CauseDiskFull, g.since.UTC().Format(time.RFC3339), g.cause)
}

// mark appends the marker of dropped lines to the queue, if there are any. g.mu is held.
func (g *gate) mark() {
	if g.loss.Lines > 0 {
		line := rotation.MarkerLine(g.loss)
		g.queue = append(g.queue, queued{line, true})
		g.bytes += len(line)
		g.loss = rotation.Loss{}
	}
}

// startDraining starts a goroutine that delivers the queue. g.mu is held.
func (g *gate) startDraining() {
	if !g.draining && !g.stopped && g.run != nil {
		g.draining = g.run(g.drain)
	}
}

// resume delivers lines queued before Run.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting {
		g.startDraining()
	}
}

const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = time.Second
)

// drain delivers the queue until it is empty or ctx ends.
func (g *gate) drain(ctx context.Context) {
	wait := firstRetry
	for {
		g.mu.Lock()
		if len(g.queue) == 0 {
			g.mark()
		}
		to, changed := g.to, g.changed
		if len(g.queue) == 0 {
			g.draining, g.waiting, g.health, g.cause = false, false, "", nil
			g.mu.Unlock()
			if g.drained != nil {
				g.drained()
			}
			return
		}
		next := g.queue[0]
		g.mu.Unlock()
		try, cancel := context.WithTimeout(ctx, maxRetry) // the destination may be replaced in the meantime
		n, err := g.deliverNext(try, to, next)
		cancel()
		g.mu.Lock()
		g.done(n)
		if err != nil {
			g.cause = err
		}
		if ctx.Err() != nil {
			g.draining = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if n > 0 {
			wait = firstRetry
		}
		if err == nil {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		wait = min(2*wait, maxRetry)
	}
}

// deliverNext delivers a batch of the queue.
func (g *gate) deliverNext(ctx context.Context, to accesslog.Destination, next queued) (int, error) {
	if !next.marker {
		return g.deliver(ctx, to, next.lines)
	}
	n, _, err := accesslog.Deliver(ctx, to, next.lines)
	if n <= 0 && err == nil {
		err = accesslog.ErrNothingDone
	}
	return max(n, 0), err
}

// done removes the first n bytes of the oldest batch. g.mu is held.
func (g *gate) done(n int) {
	switch {
	case n == 0:
		return
	case n == len(g.queue[0].lines):
		g.queue[0] = queued{}
		g.queue = g.queue[1:]
	default:
		g.queue[0].lines = g.queue[0].lines[n:]
	}
	g.bytes -= n
}

// idle reports whether the queue is empty.
func (g *gate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.waiting
}

// stop drops and counts the queue. Nothing may write or drain anymore.
func (g *gate) stop(why accesslog.Cause) (dropped uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return 0
	}
	for _, q := range g.queue {
		if !q.marker {
			dropped += accesslog.CountLines(q.lines)
		}
	}
	g.count.Drop(why, dropped)
	g.queue, g.bytes, g.stopped = nil, 0, true
	return dropped
}

// state adds the gate's counters and health to the counters of the reader.
func (g *gate) state(s accesslog.Stats) accesslog.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.count.Stats()
	s.Written, s.Dropped = own.Written, own.Dropped
	done := s.Written
	for _, n := range s.Dropped {
		done += n
	}
	s.InFlight = 0
	if s.In > done {
		s.InFlight = s.In - done
	}
	switch {
	case g.health != "":
		s.Health = g.health
	case g.waiting && time.Since(g.since) > g.slow:
		s.Health = fmt.Sprintf("the destination has accepted no lines since %s (%v); %d bytes wait in memory",
			g.since.UTC().Format(time.RFC3339), g.cause, g.bytes)
	}
	return s
}
