package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// reserved is how many revisions beyond those that are on disk the file allows for.
const reserved = 100_000

// diskState is what the store knows of its file. Store.commits is held for changes, and Store.mu
// too where readers are told of it.
type diskState struct {
	err         error // why writes do not reach the disk
	setAside    string
	salvaged    bool
	quarantined []Quarantined
	lastPersist time.Time

	base      uint64    // the mark on disk, as it was loaded or written; changed with both locks held
	attempted uint64    // the mark of the last commit, which may be on disk although it failed
	full      bool      // the file lacks everything: it is new, while the store has content
	moves     []move    // to the quarantine, with the next commit
	marks     []Damaged // of resources that cannot be read, with the next commit

	beforeWrite, afterWrite func() error // make a commit fail, in tests
}

// load opens the file and takes its content over, or goes on without.
func (s *Store) load() error {
	d, o, err := openDisk(s.opt.Path, s.now())
	s.noteOutcome(o)
	if err != nil {
		var newer *FormatError
		var exposed *ExposedError
		if errors.Is(err, ErrLocked) || errors.As(err, &newer) || errors.As(err, &exposed) {
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
	if o.aside != "" || o.empty || !o.loaded.markKnown || o.loaded.newer != nil {
		s.skipRevisions()
	}
	_ = s.flush() // what it says is in Health
	return nil
}

// openFile opens the file again after it could not be opened, broke or was moved. s.commits is
// held.
func (s *Store) openFile() error {
	if s.disk != nil && s.disk.moved() {
		s.opt.Log.Error("the state file was moved or deleted while it was open", "path", s.opt.Path)
		s.disk.abandon()
		s.setDisk(nil)
	}
	if s.disk != nil {
		return nil
	}
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
		return fmt.Errorf("%s holds revisions up to %d that this agent has not loaded (it knows %d): restart the agent to "+
			"load them", s.opt.Path, mark, s.state.base)
	}
	s.setDisk(d)
	return nil
}

func (s *Store) noteOutcome(o outcome) {
	switch {
	case o.aside != "":
		s.mu.Lock()
		s.state.setAside, s.state.salvaged = o.aside, o.saved != nil
		s.mu.Unlock()
		found := "nothing of it could be read"
		if o.saved != nil {
			found = fmt.Sprintf("all but %d pages of it are in the new one", o.saved.lost)
		}
		s.opt.Log.Error("the state file is damaged; it was renamed and a fresh one is used",
			"path", s.opt.Path, "renamed", o.aside, "damage", o.damage, "found", found)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk = d
	s.report()
}

// skipRevisions leaves a gap so that no revision that was shown without being on disk, or whose
// record on disk is lost, is handed out again. Revisions count changes; the milliseconds since 1970
// are beyond every count so far.
func (s *Store) skipRevisions() {
	s.revision = max(s.revision, uint64(s.now().UnixMilli()))
}

// degrade takes note of why the disk takes no writes. s.commits is held.
func (s *Store) degrade(err error) error {
	s.mu.Lock()
	first := s.state.err == nil
	if s.state.err = err; first {
		s.skipRevisions()
	}
	s.report()
	s.mu.Unlock()
	if first {
		s.opt.Log.Error("the state is not written to disk: changes of files and Envoys go on in memory, "+
			"API writes are refused", "path", s.opt.Path, "error", err)
	}
	return err
}

// encode makes the body of a change, once.
func (s *Store) encode(e *entry) (err error) {
	if e.Resource == nil || e.body != nil {
		return nil
	}
	if e.body, err = s.opt.Encode(e.Resource); err != nil {
		return fmt.Errorf("encode %s: %w", e.key, err)
	}
	if len(e.body) == 0 {
		return fmt.Errorf("encode %s: no bytes", e.key)
	}
	return nil
}

// flush writes what is pending, if anything. s.commits is held.
func (s *Store) flush() error {
	if s.opt.Path == "" {
		return nil
	}
	s.mu.Lock()
	due := s.state.err != nil || s.disk == nil || len(s.backlog) > 0 || len(s.state.moves)+len(s.state.marks) > 0 ||
		len(s.unwritten) > 0 || s.markOff()
	s.mu.Unlock()
	if !due {
		return nil
	}
	if err := s.openFile(); err != nil {
		return s.degrade(err)
	}
	s.mu.Lock()
	w, err := s.writeSet(nil)
	s.mu.Unlock()
	if err != nil {
		return s.degrade(err)
	}
	return s.commit(w)
}

// mark is what the file is to say of revisions: a closed store hands none out any more. s.mu is
// held.
func (s *Store) mark() uint64 {
	if s.closed {
		return s.revision
	}
	return s.revision + reserved
}

// markOff reports whether the mark on disk has to be written for its own sake. s.mu is held.
func (s *Store) markOff() bool {
	return s.closed && s.state.base != s.revision || s.state.base < s.revision+reserved/2
}

// commit makes one transaction. s.commits is held.
func (s *Store) commit(w writeSet) error {
	s.state.attempted = w.mark
	if err := s.write(w); err != nil {
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
		s.opt.Log.Info("the state is written to disk again", "path", s.opt.Path, "written", len(w.edits))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.err, s.state.base, s.state.full, s.state.moves, s.state.marks = nil, w.mark, false, nil, nil
	s.state.lastPersist = s.now()
	s.forget = slices.Clone(s.forget[len(w.forget):])
	// What came while it was written stays.
	maps.DeleteFunc(s.unwritten, func(k, v string) bool { written, ok := w.addresses[k]; return ok && written == v })
	for k, p := range s.backlog {
		p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return e.Revision.Revision <= w.through })
		if p.burned = nil; p.newest <= w.through {
			delete(s.backlog, k)
		}
	}
	s.since = time.Time{}
	s.report()
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

// writeSet gathers one transaction: what is pending, and the changes of p, which may be nil. Both
// locks are held.
func (s *Store) writeSet(p *plan) (writeSet, error) {
	w := writeSet{mark: s.mark(), through: s.revision, moves: s.state.moves, marks: s.marks(p), forget: s.forget,
		addresses: maps.Clone(s.unwritten)}
	next := s.Snapshot().records
	entries := make(map[resource.Key][]entry, len(s.backlog))
	for k, b := range s.backlog {
		entries[k] = b.entries
	}
	if p != nil {
		next = p.next
		for _, e := range p.changes {
			entries[e.key] = append(slices.Clip(entries[e.key]), e)
		}
	}
	if s.state.full {
		w.addresses = maps.Clone(s.addresses)
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
		list := entries[k]
		if r := next.get(k); r != nil {
			now := entryOf(r)
			if n := len(list); n > 0 && list[n-1].Resource == r.Resource {
				now.body = list[n-1].body
			}
			v, err := s.value(now, recordKey(k))
			if err != nil {
				return w, err
			}
			e.record = v
		}
		for _, en := range list[max(0, len(list)-HistoryLimit):] {
			key := historyKey(k, en.Revision.Revision)
			v, err := s.value(en, key)
			if err != nil {
				return w, err
			}
			e.history = append(e.history, rawValue{key, v})
		}
		w.edits = append(w.edits, e)
	}
	return w, nil
}

func (s *Store) value(e entry, key []byte) ([]byte, error) {
	if err := s.encode(&e); err != nil {
		return nil, err
	}
	return encodeEntry(e, key, e.body)
}
