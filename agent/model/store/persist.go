package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// reserved is the number of revisions beyond those on disk that the mark allows.
const reserved = 100_000

// diskState is the state of the file. Changes require Store.commits, and also Store.mu if readers
// see them.
type diskState struct {
	err         error // why writes do not reach the disk
	setAside    string
	salvaged    bool
	quarantined []Quarantined
	lastPersist time.Time

	base      uint64    // mark on disk, as loaded or written; changes require both locks
	attempted uint64    // mark of the last commit, which may be on disk although it failed
	full      bool      // the file is new and lacks all content of the store
	moves     []move    // moves to the quarantine in the next commit
	marks     []Damaged // marks of damaged resources in the next commit

	beforeWrite, afterWrite func() error // fail commits in tests
}

// load opens the file and adopts its content, or continues without a file that does not exist.
func (s *Store) load() error {
	d, o, err := openDisk(s.opt.Path, s.now(), s.opt.AcceptDamage || s.opt.AcceptLoss)
	if err != nil && s.opt.AcceptLoss && !o.fresh && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrLocked) &&
		!isExposed(err) {
		if _, rerr := openReadOnly(s.opt.Path); rerr != nil { // else the disk is read-only
			d, o, err = openInPlaceOf(s.opt.Path, s.now(), err)
		}
	}
	s.noteOutcome(o)
	if err != nil {
		return s.loadReadOnly(o, err)
	}
	s.disk = d
	s.adopt(o.loaded)
	s.state.base = o.loaded.mark
	s.state.lastPersist = s.now()
	if o.loaded.first {
		s.keepFirstFormat()
	}
	if err := s.migrate(o.loaded.first || o.fresh); err != nil {
		return err
	}
	if o.aside != "" || o.empty || !o.loaded.markKnown || o.loaded.newer != nil {
		s.skipRevisions()
	}
	_ = s.flush() // Health has the error
	return nil
}

// loadReadOnly adopts the content of a file that cannot be opened for writing, for the reason err.
// It continues without one that does not exist or is new. A file that cannot be read is an error.
func (s *Store) loadReadOnly(o outcome, err error) error {
	if final(err) {
		return err
	}
	l, rerr := openReadOnly(s.opt.Path)
	switch {
	case final(rerr):
		return rerr
	case rerr == nil && l != nil:
		s.adopt(l)
		if merr := s.migrate(l.first); merr != nil {
			return merr
		}
		s.state.base = l.mark
		s.state.lastPersist = s.now()
	case rerr != nil && !o.fresh && !errors.Is(rerr, fs.ErrNotExist) && !errors.Is(rerr, syscall.ENOTDIR):
		return &UnusableError{Path: s.opt.Path, Reason: rerr}
	}
	s.degrade(err)
	return nil
}

// final reports whether reading the file again cannot help.
func final(err error) bool {
	var newer *FormatError
	var unusable *UnusableError
	return errors.Is(err, ErrLocked) || errors.As(err, &newer) || errors.As(err, &unusable) || isExposed(err)
}

func isExposed(err error) bool {
	var exposed *ExposedError
	return errors.As(err, &exposed)
}

// openInPlaceOf renames what cannot be opened, for the reason damage, and creates a new file.
func openInPlaceOf(path string, now time.Time, damage error) (*disk, outcome, error) {
	aside, err := setAside(path, now, os.Rename)
	if err != nil {
		return nil, outcome{}, fmt.Errorf("%w; renaming it failed too: %w", damage, err)
	}
	d, o, err := openDisk(path, now, false)
	o.aside, o.damage = aside, damage
	return d, o, err
}

// openFile reopens the file after it could not be opened, broke, or was moved. The caller holds
// s.commits.
func (s *Store) openFile() error {
	if s.disk != nil && s.disk.moved() {
		s.opt.Log.Error("the state file was moved or deleted while it was open", "path", s.opt.Path)
		s.disk.abandon()
		s.setDisk(nil)
	}
	if s.disk != nil {
		return nil
	}
	d, o, err := openDisk(s.opt.Path, s.now(), true) // the store has the content
	s.noteOutcome(o)
	if err != nil {
		return err
	}
	if mark := o.loaded.mark; o.fresh {
		s.state.full = true
		s.state.moves = nil
	} else if mark != s.state.base && mark != s.state.attempted {
		_ = d.close()
		return fmt.Errorf("%s contains revisions up to %d, but this agent has loaded only those up to %d: restart the "+
			"agent to load them", s.opt.Path, mark, s.state.base)
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
		found := "none of it could be read"
		if o.saved != nil {
			found = fmt.Sprintf("the new one contains all but %d of its pages", o.saved.lost)
		}
		s.opt.Log.Error("the state file is damaged; it was renamed and replaced by a new one",
			"path", s.opt.Path, "renamed", o.aside, "damage", o.damage, "found", found)
	case o.empty:
		s.opt.Log.Warn("the state file is empty; it is used as a new one", "path", s.opt.Path)
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

// skipRevisions leaves a gap, so that no revision that was visible but not on disk, or whose record
// is lost, is assigned a second time. Revisions count changes; the milliseconds since 1970 exceed
// every count.
func (s *Store) skipRevisions() {
	s.revision = max(s.revision, uint64(s.now().UnixMilli()))
}

// degrade records why the disk accepts no writes. The caller holds s.commits.
func (s *Store) degrade(err error) error {
	s.mu.Lock()
	first := s.state.err == nil
	if s.state.err = err; first {
		s.skipRevisions()
	}
	s.report()
	s.mu.Unlock()
	if first {
		s.opt.Log.Error("cannot write the state to disk: changes from files and Envoys stay in memory, "+
			"and API writes are rejected", "path", s.opt.Path, "error", err)
	}
	return err
}

// encode encodes the body of a change, once.
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

// flush writes pending changes. The caller holds s.commits.
func (s *Store) flush() error {
	if s.opt.Path == "" {
		return nil
	}
	s.mu.Lock()
	due := s.state.err != nil || s.disk == nil || len(s.backlog) > 0 || len(s.state.moves)+len(s.state.marks) > 0 ||
		len(s.unwritten) > 0 || len(s.pool.unwritten)+s.pool.queue.len() > 0 || s.markOff()
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

// mark returns the mark to store. A closed store assigns no more revisions. The caller holds s.mu.
func (s *Store) mark() uint64 {
	if s.closed {
		return s.revision
	}
	return s.revision + reserved
}

// markOff reports whether the mark on disk must be rewritten. The caller holds s.mu.
func (s *Store) markOff() bool {
	return s.closed && s.state.base != s.revision || s.state.base < s.revision+reserved/2
}

// commit runs one transaction. The caller holds s.commits.
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
	s.pool.queue.drop(w.queued)
	// Changes that arrived during the write remain.
	maps.DeleteFunc(s.unwritten, func(k, v string) bool { value, ok := w.addresses[k]; return ok && value == v })
	s.pool.stored(w.versions)
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
	if s.state.err != nil {
		s.disk.unsynced = true
	}
	steps := []func() error{s.state.beforeWrite, s.disk.resync, func() error { return s.disk.write(w) },
		s.state.afterWrite}
	for _, step := range steps {
		if step == nil {
			continue
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeSet returns one transaction: pending changes, and the changes of p, which may be nil. The
// caller holds both locks.
func (s *Store) writeSet(p *plan) (writeSet, error) {
	w := writeSet{mark: s.mark(), through: s.revision, moves: s.state.moves, marks: s.marks(p), forget: s.forget,
		addresses: maps.Clone(s.unwritten)}
	next := s.Snapshot().records
	entries := make(map[resource.Key][]entry, len(s.backlog))
	for k, b := range s.backlog {
		entries[k] = b.entries
	}
	if p != nil && p.next != nil {
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
	if err := s.poolValues(&w, p, next, entries); err != nil {
		return w, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(entries), resource.Key.Compare) {
		e := edit{key: k}
		if b := s.backlog[k]; b != nil {
			e.burned = b.burned
		}
		list := entries[k]
		if r := next.get(k); r != nil && !s.versioned(p, r) {
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
