package fifo

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Set makes, opens and holds the FIFOs that an owner's process is about to open, and says for each
// why it could not be. One that is no longer named is read on, and removed once no process has
// written it for a while.
func (ps *Pipes) Set(owner string, want []Pipe) []error {
	ps.change.Lock()
	defer ps.change.Unlock()
	errs := make([]error, len(want))
	named := map[string]bool{}
	reopen := false
	for i, w := range want {
		name, err := nameOf(ps.opts.Dir, w.Path)
		switch {
		case err != nil:
		case named[name]:
			err = fmt.Errorf("the FIFO %s is named twice", w.Path)
		case w.To == nil:
			err = fmt.Errorf("the FIFO %s has no destination", w.Path)
		case len(named) >= ps.opts.MaxPerOwner:
			err = fmt.Errorf("%s has more than %d FIFOs; use fewer backends, or raise the limit", owner, ps.opts.MaxPerOwner)
		default:
			named[name] = true
			var again bool
			again, err = ps.ensure(owner, name, w)
			reopen = reopen || again
			if err != nil {
				err = fmt.Errorf("FIFO %s: %w", w.Path, err)
			}
		}
		errs[i] = err
	}
	ps.unwant(owner, named)
	if reopen && ps.opts.Reopen != nil {
		ps.opts.Reopen(owner)
	}
	return errs
}

// ensure makes one FIFO be there, and reports whether its process has to open its logs anew.
func (ps *Pipes) ensure(owner, name string, w Pipe) (reopen bool, err error) {
	ps.mu.Lock()
	p, count := ps.pipes[name], len(ps.pipes)
	same := p != nil && p.owner == owner && sameLabels(p.labels, w.Labels)
	ps.mu.Unlock()
	switch {
	case p == nil && count >= ps.opts.MaxPipes:
		return false, fmt.Errorf("there are %d FIFOs, which is the limit; raise it", count)
	case p != nil && p.owner != owner && p.owner != "":
		return false, fmt.Errorf("it belongs to %q; two processes must not share one", p.owner)
	}
	kind, err := ps.kind(name)
	if err != nil {
		return false, err
	}
	if kind != 0 && kind != unix.S_IFIFO && kind != unix.S_IFREG {
		return false, inPlace(ps.opts.Dir, name, kind)
	}
	if !same {
		if err := ps.writeRecord(name, pipeRecord{Owner: owner, Labels: w.Labels}); err != nil {
			return false, err
		}
	}
	isNew := p == nil
	if isNew {
		p = ps.newPipe(name, owner, maps.Clone(w.Labels), w.To)
	}
	reopen, err = ps.put(p, kind, w)
	if err != nil {
		return false, err
	}
	p.gate.setDestination(w.To)
	ps.mu.Lock()
	p.owner, p.labels, p.wanted, p.want = owner, maps.Clone(w.Labels), true, w
	ps.mu.Unlock()
	if isNew {
		return reopen, ps.register(p)
	}
	ps.start(p)
	return reopen, nil
}

// put makes the FIFO of a pipe be in its place, owned and held.
func (ps *Pipes) put(p *pipe, kind uint32, w Pipe) (reopen bool, err error) {
	if kind == unix.S_IFIFO {
		if p.cur == nil {
			if err := ps.adopt(p); err != nil {
				return false, err
			}
		}
		if ps.inPlace(p) {
			if p.holdErr != nil {
				p.holdErr = ps.hold(p, p.name)
			}
			return false, errors.Join(p.holdErr, ps.own(p.cur.fd, w))
		}
		// Another FIFO than the one that is read: nobody else makes any here, so what is in it came to no
		// reader.
		if err := unix.Unlinkat(ps.dir, p.name, 0); err != nil {
			return false, err
		}
	}
	before := p.cur
	left, err := ps.make(p, w)
	if err != nil {
		return false, err
	}
	if before != nil {
		if err := ps.poll.add(p.cur.fd); err != nil {
			return false, err
		}
		ps.mu.Lock()
		ps.byFD[p.cur.fd] = p
		ps.mu.Unlock()
	}
	if left != "" {
		ps.addLeftovers(p, []string{left})
	}
	return left != "" || before != nil, nil
}

// inPlace reports whether the FIFO that is read is the one of the name.
func (ps *Pipes) inPlace(p *pipe) bool {
	var st unix.Stat_t
	err := unix.Fstatat(ps.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && uint64(st.Dev) == p.cur.dev && st.Ino == p.cur.ino
}

// repair puts FIFOs back that are not in their places any more, or that others have put something
// in the place of. What cannot be repaired is told by the next Set.
func (ps *Pipes) repair() {
	ps.change.Lock()
	defer ps.change.Unlock()
	type broken struct {
		owner, name string
		want        Pipe
	}
	var list []broken
	ps.mu.Lock()
	for name, p := range ps.pipes {
		if p.wanted && p.want.Path != "" && !ps.inPlace(p) {
			list = append(list, broken{p.owner, name, p.want})
		}
	}
	ps.mu.Unlock()
	for _, b := range list {
		reopen, err := ps.ensure(b.owner, b.name, b.want)
		if err != nil {
			continue
		}
		ps.opts.Log.Warn("a FIFO was removed or replaced from outside, and is there again", "path", b.want.Path)
		if reopen && ps.opts.Reopen != nil {
			ps.opts.Reopen(b.owner)
		}
	}
}

func (ps *Pipes) unwant(owner string, named map[string]bool) {
	for _, p := range ps.of(owner) {
		if !named[p.name] {
			ps.mu.Lock()
			p.wanted = false
			ps.mu.Unlock()
			ps.start(p)
		}
	}
}

// of returns the pipes of an owner, by name.
func (ps *Pipes) of(owner string) []*pipe {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var out []*pipe
	for _, name := range slices.Sorted(maps.Keys(ps.pipes)) {
		if p := ps.pipes[name]; p.owner == owner {
			out = append(out, p)
		}
	}
	return out
}
