package receive

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

// watched is a destination that records the memory of its receiver with each batch, and blocks
// while shut is open.
type watched struct {
	of    atomic.Pointer[Receiver]
	least atomic.Int64  // minimum remaining memory
	large atomic.Uint64 // batches larger than a small buffer
	shut  chan struct{} // nil: it never blocks
	waits atomic.Int64  // blocked writers
}

func (w *watched) Write(ctx context.Context, batch []byte) (int, error) {
	if r := w.of.Load(); r != nil {
		left := r.memory.Left()
		for least := w.least.Load(); left < least && !w.least.CompareAndSwap(least, left); least = w.least.Load() {
		}
	}
	if len(batch) > accesslog.BaseBuffer {
		w.large.Add(1)
	}
	if w.shut != nil && len(batch) > accesslog.BaseBuffer {
		w.waits.Add(1)
		select {
		case <-w.shut:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return len(batch), nil
}

// TestFloodsShareBuffers checks that only a few of many flooding connections have a large buffer at
// a time.
func TestFloodsShareBuffers(t *testing.T) {
	to := &watched{}
	to.least.Store(accesslog.DefaultMemory)
	r := receive(t, Options{To: to})
	to.of.Store(r.Receiver)
	conns, each := 32, 20_000
	if testing.Short() {
		each = 4_000
	}
	var wg sync.WaitGroup
	for id := range conns {
		c := r.dial()
		wg.Go(func() { flood(t, c, id, each) })
	}
	wg.Wait()
	if s := r.Stats(); s.Written != uint64(conns*each) {
		t.Errorf("%+v", s)
	}
	if to.large.Load() == 0 {
		t.Error("no connection had a large buffer")
	}
	if used := accesslog.DefaultMemory - to.least.Load(); used > maxTurns*(accesslog.FlowBuffer-accesslog.BaseBuffer) {
		t.Errorf("%d bytes were used beyond a small buffer for each connection", used)
	}
	if left := r.memory.Left(); left != accesslog.DefaultMemory {
		t.Errorf("%d bytes are still used", accesslog.DefaultMemory-left)
	}
}

// TestStopWhileOthersHaveTheTurns stops the receiver while the destination blocks and some
// connections wait for a turn. Run ends within the drain time, and lost data is counted as lines or
// as unread bytes.
func TestStopWhileOthersHaveTheTurns(t *testing.T) {
	to := &watched{shut: make(chan struct{})}
	r := receive(t, Options{To: to, Drain: 100 * time.Millisecond})
	const conns = 3 * maxTurns
	var sent atomic.Uint64
	var wg sync.WaitGroup
	for range conns {
		c := r.dial()
		wg.Go(func() {
			for {
				n, err := c.Write(benchLines)
				sent.Add(uint64(n))
				if err != nil {
					return
				}
			}
		})
	}
	accesslogtest.Eventually(t, "all turns are taken", func() bool { return to.waits.Load() == maxTurns })
	if waits := to.waits.Load(); waits > maxTurns {
		t.Errorf("%d have a turn", waits)
	}
	r.end()
	wg.Wait()
	s := r.Stats()
	if r.balance(); s.Dropped[accesslog.CauseStopped] == 0 || s.Abandoned == 0 || s.BytesIn+s.Abandoned > sent.Load() ||
		s.Connections != 0 {
		t.Errorf("%d bytes were sent: %+v", sent.Load(), s)
	}
	if len(r.turns) != 0 {
		t.Errorf("%d turns are still taken", len(r.turns))
	}
}

// TestQuietBesideFlood checks that the line of a quiet connection waits only for a few batches, not
// for one of each flooding connection. BenchmarkQuietBesideFlood measures the time.
func TestQuietBesideFlood(t *testing.T) {
	f := accesslogtest.OpenFile(t,
		rotation.Options{Path: t.TempDir() + "/logs/access.log", Limits: rotation.Limits{MaxFileSize: 1, MaxFiles: 1}})
	to := &overtaken{File: f}
	r := receive(t, Options{To: to})
	stop := r.flood(63)
	quiet := r.dial()
	accesslogtest.Eventually(t, "the others flood", func() bool { return to.batches.Load() > 300 })
	for n := range int64(20) {
		send(t, quiet, quietLine)
		accesslogtest.Eventually(t, "the line is stored", func() bool { return to.quiet.Load() > n })
	}
	stop()
	quiet.Close()
	r.end()
	// Use the median, because a scheduling delay between a count and a write is counted too.
	slices.Sort(to.waited)
	if got := to.waited[len(to.waited)/2]; got > 2*maxTurns {
		t.Errorf("%d large batches were stored while a line waited, want about %d", got, maxTurns)
	}
	r.balance()
}

// overtaken counts the large batches stored during each write of the quiet line.
type overtaken struct {
	*rotation.File
	batches, quiet, large atomic.Int64
	waited                []int64 // used only by the quiet connection until the receiver has ended
}

func (o *overtaken) Append(ctx context.Context, batch []byte) (int, int, error) {
	before := o.large.Load()
	n, dropped, err := o.File.Append(ctx, batch)
	o.batches.Add(1)
	if len(batch) > accesslog.BaseBuffer {
		o.large.Add(1)
	}
	if len(batch) == len(quietLine) {
		o.waited = append(o.waited, o.large.Load()-before)
		o.quiet.Add(1)
	}
	return n, dropped, err
}

// flood makes conns connections send as fast as possible until stop is called.
func (r *receiver) flood(conns int) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range conns {
		c := r.dial()
		wg.Go(func() {
			defer c.Close()
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := c.Write(benchLines); err != nil {
					return
				}
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}
