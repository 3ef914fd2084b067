package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// diskState is what the store knows of its file. All of it is guarded by Store.mu.
type diskState struct {
	err         error // why writes do not reach the disk
	setAside    string
	quarantined []Quarantined
	lastPersist time.Time

	base      uint64 // the mark on disk, as it was loaded or written
	attempted uint64 // the mark of the last commit, which may be on disk although it failed
	full      bool   // the file lacks everything: it is new, while the store has content
	moves     []move // to the quarantine, with the next commit

	beforeWrite, afterWrite func() error // make a commit fail, in tests
}

// load opens the file and takes its content over, or goes on without.
func (s *Store) load() error {
	d, o, err := openDisk(s.opt.Path, s.now())
	s.noteOutcome(o)
	if err != nil {
		var newer *FormatError
		if errors.Is(err, ErrLocked) || errors.As(err, &newer) {
			return err
		}
		l, rerr := openReadOnly(s.opt.Path)
		switch {
		case rerr == nil && l != nil:
			s.adopt(l)
			s.state.base = l.mark
			s.state.lastPersist = s.now()
		case rerr != nil && !errors.Is(rerr, fs.ErrNotExist):
			err = fmt.Errorf("%w; it cannot be read either: %w", err, rerr)
		}
		s.degrade(err)
		return nil
	}
	s.disk = d
	s.adopt(o.loaded)
	s.state.base = o.loaded.mark
	s.state.lastPersist = s.now()
	if o.aside != "" || o.empty || !o.loaded.markKnown {
		s.skipRevisions()
		_ = s.commit(nil, nil) // what it says is in Health
	}
	_ = s.flush()
	return nil
}

// attach opens the file again after it could not be opened or broke.
func (s *Store) attach() error {
	d, o, err := openDisk(s.opt.Path, s.now())
	s.noteOutcome(o)
	if err != nil {
		return err
	}
	if mark := o.loaded.mark; o.fresh {
		s.state.full = true
		s.state.moves = nil
	} else if mark != s.state.base && mark != s.state.attempted {
		_ = d.close()
		return fmt.Errorf("%s holds revisions up to %d that this agent has not loaded (it knows %d): restart the agent to load them",
			s.opt.Path, mark, s.state.base)
	}
	s.setDisk(d)
	return nil
}

func (s *Store) noteOutcome(o outcome) {
	switch {
	case o.aside != "":
		s.state.setAside = o.aside
		s.opt.Log.Error("the state file is damaged; it was renamed and a fresh one is used",
			"path", s.opt.Path, "renamed", o.aside, "damage", o.damage)
	case o.empty:
		s.opt.Log.Warn("the state file has no content; it is used as a fresh one", "path", s.opt.Path)
	}
}

// detach closes the file.
func (s *Store) detach() error {
	d := s.disk
	s.setDisk(nil)
	if d == nil {
		return nil
	}
	if err := d.close(); err != nil {
		return fmt.Errorf("close %s: %w", s.opt.Path, err)
	}
	return nil
}

func (s *Store) setDisk(d *disk) {
	s.histMu.Lock()
	defer s.histMu.Unlock()
	s.disk = d
}

// skipRevisions leaves a gap so that no revision that was shown without being on disk, or whose record on disk is
// lost, is handed out again. Revisions count changes; the milliseconds since 1970 are beyond every count so far.
func (s *Store) skipRevisions() {
	s.revision = max(s.revision, uint64(s.now().UnixMilli()))
}

// degrade takes note of why the disk takes no writes.
func (s *Store) degrade(err error) error {
	if s.state.err == nil {
		s.skipRevisions()
		s.opt.Log.Error("the state is not written to disk: changes of files and Envoys go on in memory, API writes are refused",
			"path", s.opt.Path, "error", err)
	}
	s.state.err = err
	return err
}

// encode makes the bodies of changes, by resource.
func (s *Store) encode(changes []entry) (map[*resource.Resource][]byte, error) {
	bodies := make(map[*resource.Resource][]byte, len(changes))
	if s.opt.Path == "" {
		return bodies, nil
	}
	for _, e := range changes {
		if _, err := s.body(bodies, e.Resource); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func (s *Store) body(known map[*resource.Resource][]byte, r *resource.Resource) ([]byte, error) {
	if b, ok := known[r]; ok || r == nil {
		return b, nil
	}
	b, err := s.opt.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.Key, err)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("encode %s: no bytes", r.Key)
	}
	known[r] = b
	return b, nil
}

// persist makes the changes of a plan durable. What was pending goes first, so that only the transition to a disk that
// takes no writes leaves a commit behind of which nobody knows whether it is on disk.
func (s *Store) persist(p *plan, bodies map[*resource.Resource][]byte) error {
	if s.opt.Path == "" {
		s.keep(p.changes)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.commit(p, bodies); err != nil {
		s.burn(p.changes)
		s.revision = max(s.revision, p.revision)
		return err
	}
	return nil
}

// flush writes what is pending, if anything.
func (s *Store) flush() error {
	if s.opt.Path == "" || s.state.err == nil && s.disk != nil && len(s.backlog) == 0 && len(s.state.moves) == 0 && len(s.unwritten) == 0 {
		return nil
	}
	return s.commit(nil, nil)
}

// commit writes what is pending and the changes of p, which may be nil, in one transaction.
func (s *Store) commit(p *plan, bodies map[*resource.Resource][]byte) error {
	if s.disk != nil && s.disk.moved() {
		s.opt.Log.Error("the state file was moved or deleted while it was open", "path", s.opt.Path)
		s.disk.abandon()
		s.setDisk(nil)
	}
	if s.disk == nil {
		if err := s.attach(); err != nil {
			return s.degrade(err)
		}
	}
	w, err := s.writeSet(p, bodies)
	if err != nil {
		return s.degrade(err)
	}
	s.state.attempted = w.mark
	if err = s.write(w); err != nil {
		var broken *brokenError
		if errors.As(err, &broken) {
			s.disk.abandon()
			s.setDisk(nil)
		}
		if p := (*fs.PathError)(nil); !errors.As(err, &p) {
			err = fmt.Errorf("write %s: %w", s.opt.Path, err)
		}
		return s.degrade(err)
	}
	if s.state.err != nil {
		s.opt.Log.Info("the state is written to disk again", "path", s.opt.Path, "pending", len(s.backlog))
	}
	s.state.err, s.state.base, s.state.full, s.state.moves = nil, w.mark, false, nil
	s.state.lastPersist = s.now()
	s.forget = nil
	clear(s.unwritten)
	s.histMu.Lock()
	defer s.histMu.Unlock()
	clear(s.backlog)
	return nil
}

func (s *Store) write(w writeSet) error {
	for _, step := range []func() error{s.state.beforeWrite, func() error { return s.disk.write(w) }, s.state.afterWrite} {
		if step == nil {
			continue
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeSet gathers one transaction.
func (s *Store) writeSet(p *plan, bodies map[*resource.Resource][]byte) (writeSet, error) {
	if bodies == nil {
		bodies = map[*resource.Resource][]byte{}
	}
	w := writeSet{mark: s.revision, moves: s.state.moves, forget: s.forget, addresses: s.unwritten}
	next := s.Snapshot().records
	entries := make(map[resource.Key][]entry, len(s.backlog))
	for k, b := range s.backlog {
		entries[k] = b.entries
	}
	if p != nil {
		w.mark, next = p.revision, p.next
		for _, e := range p.changes {
			entries[e.key] = append(slices.Clip(entries[e.key]), e)
		}
	}
	if s.state.full {
		w.addresses = s.addresses
		for r := range next.all() {
			if len(entries[r.Key]) == 0 {
				entries[r.Key] = []entry{entryOf(r)}
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(entries), resource.Key.Compare) {
		e := edit{key: k}
		if b := s.backlog[k]; b != nil {
			e.burned = b.burned
		}
		if r := next.get(k); r != nil {
			v, err := s.value(entryOf(r), recordKey(k), bodies)
			if err != nil {
				return w, err
			}
			e.record = v
		}
		list := entries[k]
		for _, en := range list[max(0, len(list)-HistoryLimit):] {
			key := historyKey(k, en.Revision.Revision)
			v, err := s.value(en, key, bodies)
			if err != nil {
				return w, err
			}
			e.history = append(e.history, rawValue{key, v})
		}
		w.edits = append(w.edits, e)
	}
	return w, nil
}

func (s *Store) value(e entry, key []byte, bodies map[*resource.Resource][]byte) ([]byte, error) {
	body, err := s.body(bodies, e.Resource)
	if err != nil {
		return nil, err
	}
	return encodeEntry(e, key, body)
}
