package fifo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Pipes are the FIFOs of one directory. Its methods may be called at the same time.
type Pipes struct {
	opts   Options
	dir    int
	copies *scratch
	memory *accesslog.Buffers // that FIFOs are read into
	poll   *poller

	change sync.Mutex // held while FIFOs are made and removed; taken before mu

	mu    sync.Mutex // guards what follows, and the fields of pipe that say so
	pipes map[string]*pipe
	byFD  map[int]*pipe
	ctx   context.Context // of Run; nil while it does not run
	tasks sync.WaitGroup
	ran   bool
}

// Open makes or opens the directory, and opens and holds the FIFOs that an earlier process has
// left. Run reads them. An error names the path and what to do.
func Open(opts Options) (*Pipes, error) {
	opts, err := opts.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openPipeDir(opts.Dir)
	if err != nil {
		return nil, err
	}
	ps := &Pipes{opts: opts, dir: dir, memory: accesslog.NewBuffers(accesslog.DefaultMemory), pipes: map[string]*pipe{},
		byFD: map[int]*pipe{}}
	if ps.copies, err = newScratch(); err == nil {
		if ps.poll, err = newPoller(); err == nil {
			err = ps.find()
		}
	}
	if err != nil {
		ps.close()
		return nil, err
	}
	return ps, nil
}

// find opens what an earlier process has left.
func (ps *Pipes) find() error {
	names, err := ps.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if kind, err := ps.kind(name); name[0] == '.' || err != nil || kind != unix.S_IFIFO {
			continue
		}
		if len(ps.pipes) >= ps.opts.MaxPipes {
			return fmt.Errorf("%s has more than %d FIFOs; remove those that nobody uses, or raise the limit",
				ps.opts.Dir, ps.opts.MaxPipes)
		}
		r, err := ps.readRecord(name)
		if err != nil {
			ps.opts.Log.Warn("a FIFO has no record that can be read; its lines wait until its proxy is known",
				"path", ps.path(name), "error", err)
		}
		var to accesslog.Destination
		if ps.opts.Found != nil {
			to = ps.opts.Found(ps.path(name), maps.Clone(r.Labels))
		}
		p := ps.newPipe(name, r.Owner, r.Labels, to)
		if err := ps.adopt(p); err != nil {
			ps.opts.Log.Error("a FIFO cannot be read", "path", p.path, "error", err)
			continue
		}
		ps.addLeftovers(p, ps.leftovers(names, name))
		if err := ps.register(p); err != nil {
			return err
		}
	}
	return nil
}

func (ps *Pipes) path(name string) string { return ps.opts.Dir + "/" + name }

func (ps *Pipes) names() ([]string, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", ps.dir))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", ps.opts.Dir, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

func (ps *Pipes) newPipe(name, owner string, labels map[string]string, to accesslog.Destination) *pipe {
	p := &pipe{ps: ps, name: name, path: ps.path(name), owner: owner, labels: labels, wanted: true,
		gate: newGate(to, &ps.opts)}
	p.gate.run, p.gate.drained = ps.run, func() { ps.start(p) }
	return p
}

// adopt opens and holds the FIFO that is in its place.
func (ps *Pipes) adopt(p *pipe) error {
	f, err := ps.open(p, p.name)
	if err != nil {
		return err
	}
	ps.openNote(p, f)
	err = ps.hold(p, p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cur, p.holdErr = f, err
	p.err = f.recover(p.gate.destination())
	return nil
}

// openNote gives a FIFO its note. Without one it is read all the same.
func (ps *Pipes) openNote(p *pipe, f *fifo) {
	n, err := openNote(ps.dir, p.name, f)
	if err != nil {
		ps.opts.Log.Warn("lines that are being written when the agent is killed will be there twice",
			"path", p.path, "error", err)
		return
	}
	f.note = n
}

// hold has a FIFO held.
func (ps *Pipes) hold(p *pipe, name string) error {
	f, err := ps.openHold(name)
	if err != nil {
		return err
	}
	return errors.Join(ps.opts.Holder.Hold(p.path, f), f.Close())
}

func (ps *Pipes) addLeftovers(p *pipe, names []string) {
	for _, n := range names {
		r, err := openLeftover(ps.dir, n, p.gate, &p.count, ps.opts.MaxLine, func() bool { return p.cur.written() })
		if err != nil {
			ps.opts.Log.Error("lines in a file that was in the place of a FIFO cannot be read", "path", p.path, "error", err)
			continue
		}
		p.mu.Lock()
		p.rest = append(p.rest, r)
		p.mu.Unlock()
	}
}

// register makes the loop look at a pipe.
func (ps *Pipes) register(p *pipe) error {
	if err := ps.poll.add(p.cur.fd); err != nil {
		return fmt.Errorf("wait for %s: %w", p.path, err)
	}
	ps.mu.Lock()
	ps.pipes[p.name] = p
	ps.byFD[p.cur.fd] = p
	ps.mu.Unlock()
	ps.start(p)
	return nil
}

// NewWriter says that a new process of the owner is about to open its FIFOs. What a dead one has
// left is handed on, and a half line gets its LF. Where a process has the FIFO open, as in a hot
// restart, nothing changes.
func (ps *Pipes) NewWriter(owner string) {
	for _, p := range ps.of(owner) {
		p.mu.Lock()
		written := p.removed || p.cur.written()
		p.mu.Unlock()
		if !written {
			p.turn(context.Background(), 2*pipeSize)
		}
	}
}

// Gone says that the owner has left. Its FIFOs are removed once no process has them open.
func (ps *Pipes) Gone(owner string) {
	ps.change.Lock()
	defer ps.change.Unlock()
	ps.unwant(owner, nil)
}

// Flush waits until what is in the FIFOs of an owner now has been handed on, but for begun lines.
func (ps *Pipes) Flush(ctx context.Context, owner string) error {
	for _, p := range ps.of(owner) {
		if p.gate.destination() == nil {
			return fmt.Errorf("the FIFO %s has no destination yet", p.path)
		}
		p.turn(ctx, pipeSize)
		for wait := time.Millisecond; !p.gate.idle(); wait = min(2*wait, 50*time.Millisecond) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("the lines of %s are not handed on yet: %w", p.path, context.Cause(ctx))
			case <-time.After(wait):
			}
		}
	}
	return nil
}

// remove removes a pipe that nobody wants and nobody writes, and reports whether it has.
func (ps *Pipes) remove(p *pipe) bool {
	ps.change.Lock()
	defer ps.change.Unlock()
	if !p.removable() {
		return false
	}
	away := hidden(p.name, tempSuffix)
	if ps.inPlace(p) {
		if err := unix.Renameat(ps.dir, p.name, ps.dir, away); err != nil {
			ps.opts.Log.Error("a FIFO that nobody uses cannot be removed", "path", p.path, "error", err)
			return false
		}
		if !p.removable() { // somebody has opened it in between
			_ = unix.Renameat2(ps.dir, away, ps.dir, p.name, unix.RENAME_NOREPLACE)
			return false
		}
		_ = unix.Unlinkat(ps.dir, away, 0)
	}
	_ = unix.Unlinkat(ps.dir, hidden(p.name, recordSuffix), 0)
	_ = unix.Unlinkat(ps.dir, hidden(p.name, noteSuffix), 0)
	if err := ps.opts.Holder.Release(p.path); err != nil {
		ps.opts.Log.Warn("the holder has not released a FIFO that is gone", "path", p.path, "error", err)
	}
	ps.mu.Lock()
	delete(ps.pipes, p.name)
	delete(ps.byFD, p.cur.fd)
	ps.mu.Unlock()
	p.close()
	p.gate.stop(accesslog.CauseRemoved)
	return true
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed || p.cur == nil {
		return
	}
	p.removed = true
	for _, f := range append(p.old, p.cur) {
		p.ps.poll.remove(f.fd)
		f.close()
	}
	for _, r := range p.rest {
		r.close()
	}
}

// Stats returns the counts and the state of each FIFO by its path.
func (ps *Pipes) Stats() map[string]Status {
	type one struct {
		p *pipe
		s Status
	}
	var all []one
	ps.mu.Lock()
	for _, p := range ps.pipes {
		all = append(all, one{p,
			Status{Owner: p.owner, Labels: maps.Clone(p.labels), Wanted: p.wanted, Holder: ps.opts.Holder.By(p.path)}})
	}
	ps.mu.Unlock()
	out := map[string]Status{}
	for _, o := range all {
		out[o.p.path] = o.p.stats(o.s)
	}
	return out
}
