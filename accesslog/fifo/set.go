package fifo

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Set creates, opens, and holds the FIFOs that an owner's process is about to open. It returns an
// error or nil for each. FIFOs that are no longer listed are still read, and removed when they have
// had no writer for a while.
func (ps *Pipes) Set(owner string, want []Pipe) []error {
	ps.change.Lock()
	defer ps.change.Unlock()
	ps.checkDirectory()
	errs := make([]error, len(want))
	named := map[string]bool{}
	reopen := false
	for i, w := range want {
		name, err := nameOf(ps.opts.Dir, w.Path)
		switch {
		case err != nil:
		case named[name]:
			err = fmt.Errorf("FIFO %s is listed twice", w.Path)
		case w.To == nil:
			err = fmt.Errorf("FIFO %s has no destination", w.Path)
		case len(named) >= ps.opts.MaxPerOwner:
			err = fmt.Errorf("%s has more than %d FIFOs; use fewer backends, or raise the limit", owner, ps.opts.MaxPerOwner)
		default:
			named[name] = true
			var replaced bool
			replaced, err = ps.ensure(owner, name, w)
			reopen = reopen || replaced
			if err == nil && w.Link != "" {
				err = ps.opts.Links.Link(w.Link, name, ps.dir)
			}
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

// ensure creates or opens one FIFO, and reports whether its process has to reopen its logs.
func (ps *Pipes) ensure(owner, name string, w Pipe) (reopen bool, err error) {
	ps.mu.Lock()
	p, count := ps.pipes[name], len(ps.pipes)
	same := p != nil && p.owner == owner && p.link == w.Link && maps.Equal(p.labels, w.Labels)
	ps.mu.Unlock()
	switch {
	case p == nil && count >= ps.opts.MaxPipes:
		return false, fmt.Errorf("the limit of %d FIFOs is reached; raise it", count)
	case p != nil && p.owner != owner && p.owner != "":
		return false, fmt.Errorf("it belongs to %q, and processes cannot share a FIFO", p.owner)
	}
	kind, err := ps.kind(name)
	if err != nil {
		return false, err
	}
	if kind != 0 && kind != unix.S_IFIFO && kind != unix.S_IFREG {
		return false, occupied(ps.opts.Dir, name, kind)
	}
	if !same || kind == 0 {
		if err := ps.writeRecord(name, pipeRecord{Owner: owner, Labels: w.Labels, Link: w.Link}); err != nil {
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
	p.owner, p.labels, p.wanted, p.want, p.link = owner, maps.Clone(w.Labels), true, w, w.Link
	ps.mu.Unlock()
	if isNew {
		return reopen, ps.register(p)
	}
	ps.start(p)
	return reopen, nil
}

// put ensures that the FIFO of a pipe exists under its name, and that it is owned and held.
func (ps *Pipes) put(p *pipe, kind uint32, w Pipe) (reopen bool, err error) {
	if kind == unix.S_IFIFO {
		if p.cur == nil {
			if err := ps.adopt(p); err != nil {
				return false, err
			}
		}
		if ps.isCurrent(p) {
			if p.holdErr != nil {
				p.holdErr = ps.hold(p, p.name)
			}
			return false, errors.Join(p.holdErr, ps.setOwner(p.cur.fd, w))
		}
		// This is not the FIFO that is read. No other process creates FIFOs here, so its lines had no
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

// isCurrent reports whether the name refers to the FIFO that is read.
func (ps *Pipes) isCurrent(p *pipe) bool {
	var st unix.Stat_t
	err := unix.Fstatat(ps.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && uint64(st.Dev) == p.cur.dev && st.Ino == p.cur.ino
}

// repair restores FIFOs that were removed or replaced. The next Set reports failures.
func (ps *Pipes) repair() {
	ps.change.Lock()
	defer ps.change.Unlock()
	ps.checkDirectory()
	type broken struct {
		owner, name string
		want        Pipe
	}
	var list []broken
	ps.mu.Lock()
	for name, p := range ps.pipes {
		if p.wanted && p.want.Path != "" && !ps.isCurrent(p) {
			list = append(list, broken{p.owner, name, p.want})
		}
	}
	ps.mu.Unlock()
	for _, b := range list {
		reopen, err := ps.ensure(b.owner, b.name, b.want)
		if err != nil {
			continue
		}
		if b.want.Link != "" {
			_ = ps.opts.Links.Link(b.want.Link, b.name, ps.dir) // the next Set reports errors
		}
		ps.opts.Log.Warn("restored a FIFO that another process had removed or replaced", "path", b.want.Path)
		if reopen && ps.opts.Reopen != nil {
			ps.opts.Reopen(b.owner)
		}
	}
}

func (ps *Pipes) unwant(owner string, named map[string]bool) {
	for _, p := range ps.ownedBy(owner) {
		if !named[p.name] {
			ps.mu.Lock()
			p.wanted = false
			ps.mu.Unlock()
			ps.start(p)
		}
	}
}

// ownedBy returns the pipes of an owner, sorted by name.
func (ps *Pipes) ownedBy(owner string) []*pipe {
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
