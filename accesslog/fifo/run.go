package fifo

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// run starts fn in a goroutine that Run waits for. It returns false if Run is not active.
func (ps *Pipes) run(fn func(context.Context)) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.ctx == nil || ps.ctx.Err() != nil {
		return false
	}
	ctx := ps.ctx
	ps.tasks.Go(func() { fn(ctx) })
	return true
}

// start starts a goroutine that reads a pipe, unless there is one.
func (ps *Pipes) start(p *pipe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.ctx == nil || ps.ctx.Err() != nil || !p.busy.CompareAndSwap(false, true) {
		return
	}
	ctx := ps.ctx
	ps.tasks.Go(func() { p.serve(ctx) })
}

// Run reads the FIFOs until ctx ends. Then it delivers buffered lines for at most StopTimeout and
// closes everything. Unread data stays in the FIFOs, which the holder keeps open. Run must be
// called only once.
func (ps *Pipes) Run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	ps.mu.Lock()
	if ps.ran {
		ps.mu.Unlock()
		return errors.New("Run was already called")
	}
	ps.ran, ps.ctx = true, reading
	pipes := slices.Collect(maps.Values(ps.pipes))
	ps.mu.Unlock()
	if ps.opts.Holder == (NoHolder{}) {
		ps.opts.Log.Warn("no process holds the access-log FIFOs while the agent is down: lines are lost when it stops, " +
			"and an Envoy that starts in that time hangs")
	}
	for _, p := range pipes {
		p.gate.resume()
		ps.start(p)
	}
	ps.run(ps.repairLoop)
	context.AfterFunc(reading, ps.poll.stop)
	err := ps.poll.wait(func(fd int) {
		ps.mu.Lock()
		p := ps.byFD[fd]
		ps.mu.Unlock()
		if p != nil && !p.busy.Load() && p.changed() {
			ps.start(p)
		}
	})
	stop()
	ps.tasks.Wait()
	ps.finish()
	return err
}

// repairInterval is the interval of checks that the FIFOs exist under their names. A check costs
// one system call per FIFO.
const repairInterval = time.Second

// repairLoop repairs FIFOs until ctx ends.
func (ps *Pipes) repairLoop(ctx context.Context) {
	tick := time.NewTimer(rotation.NextTick(repairInterval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ps.repair()
			tick.Reset(rotation.NextTick(repairInterval))
		}
	}
}

// finish delivers buffered lines and closes everything.
func (ps *Pipes) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), ps.opts.StopTimeout)
	defer cancel()
	ps.mu.Lock()
	pipes := slices.Collect(maps.Values(ps.pipes))
	ps.ctx = nil
	ps.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range pipes {
		p.mu.Lock() // wait for a running NewWriter or Flush
		idle := p.gate.idle()
		p.mu.Unlock()
		if !idle {
			all.Go(func() { p.gate.drain(ctx) })
		}
	}
	all.Wait()
	for _, p := range pipes {
		p.close()
		if n := p.gate.stop(accesslog.CauseStopped); n > 0 {
			ps.opts.Log.Error("lines dropped: the destination did not accept them within the stop timeout",
				"path", p.path, "lines", n)
		}
	}
	ps.close()
}

// Close releases everything, instead of Run.
func (ps *Pipes) Close() { ps.finish() }

func (ps *Pipes) close() {
	if ps.poll != nil {
		ps.poll.file.Close()
	}
	if ps.copies != nil {
		ps.copies.close()
	}
	ps.in.Close()
}
