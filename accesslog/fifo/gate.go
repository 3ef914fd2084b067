package fifo

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// gate stands between the reader of a FIFO and its destination. It always takes what it is given:
// while the destination waits, lines go to memory, then they are dropped and counted, so that the
// FIFO is read on.
type gate struct {
	count   accesslog.Counters // written and dropped; what came in is counted by the reader
	slow    time.Duration
	most    int                              // bytes in memory
	run     func(func(context.Context)) bool // false: not now
	drained func()                           // called when a destination has taken all that waited

	mu       sync.Mutex
	to       accesslog.Destination
	changed  chan struct{} // closed when to is replaced
	queue    [][]byte      // oldest first
	bytes    int
	waiting  bool // lines wait: all new ones go behind them
	draining bool // a goroutine hands them on
	since    time.Time
	cause    error
	health   string // of a loss, until the destination takes lines again
	stopped  bool
}

func newGate(to accesslog.Destination, o *Options) *gate {
	return &gate{to: to, slow: o.Slow, most: o.MaxMemory, changed: make(chan struct{})}
}

// setDestination replaces the destination. What waits for the old one goes to the new one.
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

// Write takes all of the lines. It waits for the destination no longer than slow, and not at all
// while others wait.
func (g *gate) Write(from context.Context, batch []byte) (int, error) {
	g.mu.Lock()
	to, waiting := g.to, g.waiting
	g.mu.Unlock()
	n := 0
	var err error
	if !waiting {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(from), g.slow) // which has the note of the FIFO
		n, err = g.handOn(ctx, to, batch)
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
	g.keep(batch[n:])
	g.startDraining()
	return len(batch), nil
}

// handOn writes to a destination, and counts.
func (g *gate) handOn(ctx context.Context, to accesslog.Destination, batch []byte) (int, error) {
	n, dropped, err := accesslog.Deliver(ctx, to, batch)
	if n > 0 {
		done := accesslog.CountLines(batch[:n])
		lost := min(uint64(max(dropped, 0)), done)
		g.count.Written.Add(done - lost)
		if lost > 0 {
			g.count.Drop(accesslog.CauseDiskFull, lost)
		}
	}
	if n <= 0 && err == nil {
		err = accesslog.ErrNothingDone
	}
	return max(n, 0), err
}

// keep puts lines behind those that wait. g.mu is held.
func (g *gate) keep(batch []byte) {
	if len(batch) == 0 {
		return
	}
	if fits := g.most - g.bytes; fits > 0 {
		n := len(batch)
		if n > fits {
			n = bytes.LastIndexByte(batch[:fits], '\n') + 1
		}
		if n > 0 {
			g.queue = append(g.queue, bytes.Clone(batch[:n]))
			g.bytes += n
			batch = batch[n:]
		}
	}
	if len(batch) == 0 {
		return
	}
	g.count.Drop(accesslog.CauseDiskFull, accesslog.CountLines(batch))
	g.health = fmt.Sprintf("lines are dropped (%s): their destination has taken none since %s (%v); free space there",
		accesslog.CauseDiskFull, g.since.UTC().Format(time.RFC3339), g.cause)
}

// startDraining starts what hands on the lines that wait. g.mu is held.
func (g *gate) startDraining() {
	if !g.draining && !g.stopped && g.run != nil {
		g.draining = g.run(g.drain)
	}
}

// resume hands on what waits since before Run.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting {
		g.startDraining()
	}
}

const (
	firstRetry = 50 * time.Millisecond
	mostRetry  = time.Second
)

// drain hands on what waits until nothing does or the context ends.
func (g *gate) drain(ctx context.Context) {
	wait := firstRetry
	for {
		g.mu.Lock()
		batch := g.oldest()
		to, changed := g.to, g.changed
		if batch == nil {
			g.draining, g.waiting, g.health, g.cause = false, false, "", nil
			g.mu.Unlock()
			if g.drained != nil {
				g.drained()
			}
			return
		}
		g.mu.Unlock()
		try, cancel := context.WithTimeout(ctx, mostRetry) // the destination may be replaced meanwhile
		n, err := g.handOn(try, to, batch)
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
		wait = min(2*wait, mostRetry)
	}
}

// oldest returns what has waited longest, nil where nothing waits. g.mu is held.
func (g *gate) oldest() []byte {
	if len(g.queue) == 0 {
		return nil
	}
	return g.queue[0]
}

// done removes the first n bytes of the oldest. g.mu is held.
func (g *gate) done(n int) {
	switch {
	case n == 0:
		return
	case n == len(g.queue[0]):
		g.queue[0] = nil
		g.queue = g.queue[1:]
	default:
		g.queue[0] = g.queue[0][n:]
	}
	g.bytes -= n
}

// idle reports whether nothing waits.
func (g *gate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.waiting
}

// stop ends the gate once nothing writes and nothing drains: what is in memory is dropped and
// counted.
func (g *gate) stop(why accesslog.Cause) (dropped uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return 0
	}
	for _, b := range g.queue {
		dropped += accesslog.CountLines(b)
	}
	g.count.Drop(why, dropped)
	g.queue, g.bytes, g.stopped = nil, 0, true
	return dropped
}

// state adds what the gate knows to the counts of the reader.
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
		s.Health = fmt.Sprintf("the destination has taken no lines since %s (%v); %d bytes wait in memory",
			g.since.UTC().Format(time.RFC3339), g.cause, g.bytes)
	}
	return s
}
