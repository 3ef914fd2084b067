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
	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// Pipes manages the FIFOs of one directory. Its methods are safe for concurrent use.
type Pipes struct {
	opts   Options
	in     *dirs.Dir // guarded by change
	dir    int       // descriptor of in
	copies *scratch
	memory *accesslog.Buffers // read buffers
	poll   *poller

	change sync.Mutex // held while FIFOs are created and removed; taken before mu

	mu     sync.Mutex // guards the fields below, and the fields of pipe marked so
	pipes  map[string]*pipe
	byFD   map[int]*pipe
	ctx    context.Context // context of Run; nil while Run is not active
	tasks  sync.WaitGroup
	ran    bool
	dirErr error // of the last check of the directory
	// dirChanges counts how often the directory was opened again, or got its mode again.
	dirChanges uint64
}

// Open opens or creates the directory, and opens and holds the FIFOs of an earlier process. Run
// reads them. Errors contain the path and a remedy.
func Open(opts Options) (*Pipes, error) {
	opts, err := opts.normalized()
	if err != nil {
		return nil, err
	}
	dir, err := openPipeDir(&opts)
	if err != nil {
		return nil, err
	}
	ps := &Pipes{opts: opts, in: dir, dir: dir.FD(), memory: accesslog.NewBuffers(accesslog.DefaultMemory),
		pipes: map[string]*pipe{},
		byFD:  map[int]*pipe{}}
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

// find opens the FIFOs of an earlier process.
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
			return fmt.Errorf("%s has more than %d FIFOs; remove unused ones, or raise the limit",
				ps.opts.Dir, ps.opts.MaxPipes)
		}
		r, err := ps.readRecord(name)
		if err != nil {
			ps.opts.Log.Warn("cannot read the record of a FIFO; its lines wait until its proxy is known",
				"path", ps.path(name), "error", err)
		}
		var to accesslog.Destination
		if ps.opts.Found != nil {
			to = ps.opts.Found(ps.path(name), maps.Clone(r.Labels))
		}
		p := ps.newPipe(name, r.Owner, r.Labels, to)
		p.link = r.Link
		if err := ps.adopt(p); err != nil {
			ps.opts.Log.Error("cannot read a FIFO", "path", p.path, "error", err)
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
		dirChanges: ps.dirChanges,
		gate:       newGate(to, &ps.opts)}
	p.gate.run, p.gate.drained, p.gate.path = ps.run, func() { ps.start(p) }, p.path
	return p
}

// adopt opens and holds the existing FIFO of a name.
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

// openNote opens the note of a FIFO. Without a note the FIFO is still read.
func (ps *Pipes) openNote(p *pipe, f *fifo) {
	n, err := openNote(ps.dir, p.name, f)
	if err != nil {
		ps.opts.Log.Warn("cannot open the note of a FIFO; lines may be duplicated if the agent is killed",
			"path", p.path, "error", err)
		return
	}
	f.note = n
}

// hold passes a FIFO to the holder.
func (ps *Pipes) hold(p *pipe, name string) error {
	f, err := ps.openHold(name)
	if err != nil {
		return err
	}
	return errors.Join(ps.opts.Holder.Hold(p.path, f), f.Close())
}

func (ps *Pipes) addLeftovers(p *pipe, names []string) {
	for _, n := range names {
		r, err := openLeftover(ps.dir, n, p.gate, &p.count, ps.opts.MaxLine, func() bool { return p.cur.hasWriter() })
		if err != nil {
			ps.opts.Log.Error("cannot read a file that was found in place of a FIFO", "path", p.path, "error", err)
			continue
		}
		p.mu.Lock()
		p.leftovers = append(p.leftovers, r)
		p.mu.Unlock()
	}
}

// register adds a pipe to the event loop.
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

// NewWriter must be called before a new process of the owner opens its FIFOs. Data of a dead
// process is delivered, and a partial line gets an LF. If a process has the FIFO open, as in a hot
// restart, nothing changes.
func (ps *Pipes) NewWriter(owner string) {
	for _, p := range ps.ownedBy(owner) {
		p.mu.Lock()
		hasWriter := p.removed || p.cur.hasWriter()
		p.mu.Unlock()
		if !hasWriter {
			p.turn(context.Background(), 2*pipeSize)
		}
	}
}

// Gone marks all FIFOs of an owner as unwanted. They are removed when no process has them open.
func (ps *Pipes) Gone(owner string) {
	ps.change.Lock()
	defer ps.change.Unlock()
	ps.unwant(owner, nil)
}

// Flush waits until the current data in an owner's FIFOs is delivered, except for partial lines.
func (ps *Pipes) Flush(ctx context.Context, owner string) error {
	for _, p := range ps.ownedBy(owner) {
		if p.gate.destination() == nil {
			return fmt.Errorf("FIFO %s has no destination yet", p.path)
		}
		p.turn(ctx, pipeSize)
		for wait := time.Millisecond; !p.gate.idle(); wait = min(2*wait, 50*time.Millisecond) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("lines of %s are not delivered yet: %w", p.path, context.Cause(ctx))
			case <-time.After(wait):
			}
		}
	}
	return nil
}

// remove removes an unwanted pipe without a writer, and reports whether it did.
func (ps *Pipes) remove(p *pipe) bool {
	ps.change.Lock()
	defer ps.change.Unlock()
	if !p.removable() {
		return false
	}
	ps.mu.Lock()
	link := p.link
	ps.mu.Unlock()
	if link != "" && ps.opts.Links != nil {
		if err := ps.opts.Links.Unlink(link, p.name); err != nil {
			ps.opts.Log.Error("cannot remove the name of an unused FIFO", "path", p.path, "error", err)
			return false
		}
	}
	away := hidden(p.name, tempSuffix)
	if ps.isCurrent(p) {
		if err := unix.Renameat(ps.dir, p.name, ps.dir, away); err != nil {
			ps.opts.Log.Error("cannot remove an unused FIFO", "path", p.path, "error", err)
			return false
		}
		if !p.removable() { // a process has opened it in the meantime
			_ = unix.Renameat2(ps.dir, away, ps.dir, p.name, unix.RENAME_NOREPLACE)
			return false
		}
		_ = unix.Unlinkat(ps.dir, away, 0)
	}
	_ = unix.Unlinkat(ps.dir, hidden(p.name, recordSuffix), 0)
	_ = unix.Unlinkat(ps.dir, hidden(p.name, noteSuffix), 0)
	if err := ps.opts.Holder.Release(p.path); err != nil {
		ps.opts.Log.Warn("the holder did not release a removed FIFO", "path", p.path, "error", err)
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
	for _, r := range p.leftovers {
		r.close()
	}
}

// Stats returns the counters and the state of each FIFO by path.
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
	broken, changes := ps.dirErr, ps.dirChanges
	ps.mu.Unlock()
	out := map[string]Status{}
	for _, o := range all {
		s := o.p.stats(o.s)
		s.DirChanges = changes - o.p.dirChanges
		if broken != nil && s.Health == "" {
			s.Health = "its directory cannot be used: " + broken.Error()
		}
		out[o.p.path] = s
	}
	return out
}
