package fifo

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// run runs a function beside the loop, until Run ends; not at all while it does not run.
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

// start has somebody attend to a pipe, unless somebody does.
func (ps *Pipes) start(p *pipe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.ctx == nil || ps.ctx.Err() != nil || !p.busy.CompareAndSwap(false, true) {
		return
	}
	ctx := ps.ctx
	ps.tasks.Go(func() { p.attend(ctx) })
}

// Run reads the FIFOs until the context ends. It then hands on what was read for StopTimeout at
// most, and closes all. What is not read stays in the FIFOs, which the holder keeps. It is called
// once.
func (ps *Pipes) Run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	ps.mu.Lock()
	if ps.ran {
		ps.mu.Unlock()
		return errors.New("the FIFOs are being read already")
	}
	ps.ran, ps.ctx = true, reading
	pipes := slices.Collect(maps.Values(ps.pipes))
	ps.mu.Unlock()
	if ps.opts.Holder == NoHolder() {
		ps.opts.Log.Warn("nobody holds the FIFOs of access logs while the agent is away: lines are lost when it stops, " +
			"and an Envoy that starts then hangs")
	}
	for _, p := range pipes {
		p.gate.resume()
		ps.start(p)
	}
	ps.run(ps.watchPlaces)
	context.AfterFunc(reading, ps.poll.stop)
	err := ps.poll.wait(func(fd int) {
		ps.mu.Lock()
		p := ps.byFD[fd]
		ps.mu.Unlock()
		if p != nil && !p.busy.Load() && p.news() {
			ps.start(p)
		}
	})
	stop()
	ps.tasks.Wait()
	ps.finish()
	return err
}

// placesEach is how often it is looked whether FIFOs are in their places, which takes one system
// call for each.
const placesEach = time.Second

// watchPlaces repairs FIFOs until the context ends.
func (ps *Pipes) watchPlaces(ctx context.Context) {
	tick := time.NewTicker(placesEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ps.repair()
		}
	}
}

// finish hands on what is in memory and closes all.
func (ps *Pipes) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), ps.opts.StopTimeout)
	defer cancel()
	ps.mu.Lock()
	pipes := slices.Collect(maps.Values(ps.pipes))
	ps.ctx = nil
	ps.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range pipes {
		p.mu.Lock() // a NewWriter or Flush that has begun ends first
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
			ps.opts.Log.Error("lines were dropped: their destination has not taken them until the time to stop was over",
				"path", p.path, "lines", n)
		}
	}
	ps.close()
}

func (ps *Pipes) close() {
	if ps.poll != nil {
		ps.poll.file.Close()
	}
	if ps.copies != nil {
		ps.copies.close()
	}
	unix.Close(ps.dir)
}
