// Package store holds the resources of the agent: the only mutable state that its parts share.
//
// Every write, whatever its source, is a Batch; it is applied whole or not at all, and gets
// revisions that grow and are never used twice. A durable batch, such as a write over the API, is
// on disk (bbolt, one transaction with fsync) before Apply returns and before any reader sees it.
// Other batches, such as those of files and Envoys, are seen first and written behind, by Run:
// after a crash their content is read again from where it came. So that a
// revision that was shown is not handed out again then, the file says up to which one the store may
// go, and a start after a crash goes on behind that. Where the disk fails or its file is lost,
// revisions go on from the milliseconds since 1970.
//
// A reader takes a Snapshot, which is immutable and never waits for a writer. A watcher has a
// one-slot channel that says that something changed, not what.
//
// Each resource belongs to the source that created it, until that source deletes it; only from file
// to file can it move. The last HistoryLimit revisions of each resource are kept, deletions
// included; of deleted resources the histories of the latest TombstoneLimit within each kind of
// source.
//
// Faults of the disk do not stop the agent. A damaged file is renamed, and what can be read of it
// is put into a fresh one; a value that is damaged or cannot be decoded is put aside and named, and
// no earlier revision takes its place; while the disk takes no writes, resources of files and
// Envoys go on in memory and are written when it takes them again, and only API writes are refused.
// Health tells about all of it.
//
// The package starts no goroutine. Where nobody runs Run, what is not durable is written with the
// next durable batch, by Flush, and by Close.
package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// HistoryLimit is the number of revisions kept of each resource.
const HistoryLimit = 20

// TombstoneLimit is the number of deleted resources, by kind of the source that deleted them, whose
// history is kept.
const TombstoneLimit = 500

// Record is a resource as it is stored.
type Record struct {
	*resource.Resource
	Revision uint64    // of its last change
	Created  time.Time // UTC
	Modified time.Time // UTC, of its last change
	Source   Source    // its owner
	Author   string    // of its last change
}

// Op is one change. Exactly one of Put and Delete is set.
type Op struct {
	Put    *resource.Resource // sealed: its Digest decides whether it is a change
	Delete resource.Key
	// Source of this op alone, when set: a batch can carry the changes of several files.
	Source Source
	Author string // of this op alone, when set
	// IfRevision, when set, is the revision that the caller changes from: 0 where the resource must
	// not exist yet.
	IfRevision *uint64
}

// Batch is a list of changes that are applied in order, all or none.
type Batch struct {
	Source Source // required
	Author string // who asked for it; free text, may be empty
	Ops    []Op
	// Durable batches are on disk, and shared where the store is (see [Options].Share), before they
	// are seen. A batch for which that fails is refused. The others are written behind.
	Durable bool
	// On is the content that the batch was decided on: where the store has other content, Apply
	// returns ErrMoved. Nil: whatever there is.
	On *Snapshot
}

// Options of a store. The zero value is a store in memory.
type Options struct {
	// Path of the state file, "" for a store that keeps everything in memory. Its directory must
	// exist. The file is created with mode 0600.
	Path string
	// Encode and Decode are the codec of resources on disk; both are required with a Path. Decode must
	// give back a sealed resource with the same key, and may get any bytes.
	Encode func(*resource.Resource) ([]byte, error)
	Decode func([]byte) (*resource.Resource, error)
	Log    *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
	// Sync is called at the end of each transaction, which fails with its error, in tests of slow
	// disks. Nil: not called.
	Sync func() error
	// Share is given the changes of a durable batch before they are on disk, and stores them where
	// other nodes have them too: its error refuses the batch. Nil: they are for this node alone.
	Share func([]Change) error
	// Changed is told of all changes in their order, while no other one can be made: it must not
	// block. Nil: not called.
	Changed func([]Change)
}

// Change is a change of one resource that readers see.
type Change struct {
	Revision
	Key     resource.Key
	Created bool // it was not there before
}

// Validate reports what is missing.
func (o Options) Validate() error {
	if o.Path != "" && (o.Encode == nil || o.Decode == nil) {
		return errors.New("store options: Encode and Decode are required when Path is set")
	}
	return nil
}

// Store is safe for use by many goroutines.
type Store struct {
	opt   Options
	dirty chan struct{} // one slot: something is pending

	commits sync.Mutex // one transaction at a time; taken before mu, and held over the disk

	mu       sync.Mutex // never held over the disk
	closed   bool       // mu
	revision uint64     // mu; the highest handed out
	// mu; revisions after the first and up to the second are of a write over the API that is not on
	// disk yet
	unseen  [2]uint64
	tombs   map[resource.Key]tomb     // mu; deleted resources that have a history
	forget  []resource.Key            // mu; histories to drop with the next commit
	backlog map[resource.Key]*pending // mu; what memory knows and the disk does not
	since   time.Time                 // mu; when the oldest of it came, or later; zero without any
	disk    *disk                     // mu and commits for changes; nil while no file is open for writing
	state   diskState
	snap    atomic.Pointer[Snapshot]
	health  atomic.Pointer[Health]

	addresses map[string]string // mu
	unwritten map[string]string // mu; changes of addresses that are not on disk; "": deleted

	watchMu  sync.Mutex
	watchers map[chan struct{}]struct{} // watchMu
}

// Open returns a store with everything loaded that is on disk.
//
// It fails when another process has the file open, when the file is of a newer format and when
// others than its owner can read or write it. A damaged file, a full or read-only disk or an
// unreadable directory is no failure: see Health.
func Open(opt Options) (*Store, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Store{
		opt:      opt,
		dirty:    make(chan struct{}, 1),
		tombs:    map[resource.Key]tomb{},
		backlog:  map[resource.Key]*pending{},
		watchers: map[chan struct{}]struct{}{},

		addresses: map[string]string{},
		unwritten: map[string]string{},
	}
	s.snap.Store(newSnapshot(0, &table{}, nil))
	s.health.Store(&Health{})
	s.state.afterWrite = opt.Sync
	if opt.Path != "" {
		if err := s.load(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report()
	return s, nil
}

// Apply makes the changes of b in order, all or none, and returns one record per op: the resource
// as it is now, or as it was before its deletion with the revision, time and author of the
// deletion.
//
// A put of the content that is there already changes nothing: no revision, no write. The revision
// of a later op of the same batch counts from the ops before it.
//
// Errors: *ConflictError, *NotFoundError, *RevisionError, ErrMoved, *DurabilityError and
// *ShareError (of durable batches), ErrClosed, and plain ones for a batch that is not well-formed
// or cannot be encoded.
func (s *Store) Apply(b Batch) ([]Record, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if b.Durable && s.opt.Path != "" {
		p, err := s.plan(b)
		s.mu.Unlock()
		if err != nil || len(p.changes) == 0 {
			return p.records, err // whatever the disk is at
		}
		return s.applyDurably(b)
	}
	defer s.mu.Unlock()
	p, err := s.prepare(b)
	if err != nil || len(p.changes) == 0 {
		return p.records, err
	}
	s.appendHistory(p.changes)
	s.swap(p)
	return p.records, nil
}

// prepare plans a batch and encodes its changes. s.mu is held. The plan is never nil.
func (s *Store) prepare(b Batch) (*plan, error) {
	p, err := s.plan(b)
	if err != nil || s.opt.Path == "" {
		return p, err
	}
	if mark := s.state.base; s.revision <= mark && p.revision > mark {
		s.skipRevisions() // the file does not allow for these revisions
		if p, err = s.plan(b); err != nil {
			return p, err
		}
	}
	for i := range p.changes {
		if err := s.encode(&p.changes[i]); err != nil {
			return &plan{}, err
		}
	}
	return p, nil
}

// applyDurably applies a batch that is not seen before it is on disk. Meanwhile s.mu is free: what
// files and Envoys change is seen at once.
func (s *Store) applyDurably(b Batch) ([]Record, error) {
	s.commits.Lock()
	defer s.commits.Unlock()
	refuse := func(err error) ([]Record, error) { return nil, &DurabilityError{Path: s.opt.Path, Err: err} }
	if s.state.err != nil {
		// Only the transition to a disk that takes no writes leaves a commit behind of which nobody knows
		// whether it is on disk.
		if err := s.flush(); err != nil {
			return refuse(err)
		}
	}
	if err := s.openFile(); err != nil {
		return refuse(s.degrade(err))
	}
	s.mu.Lock()
	from := s.Snapshot()
	p, err := s.prepare(b)
	if err != nil || len(p.changes) == 0 {
		s.mu.Unlock()
		return p.records, err
	}
	s.unseen = [2]uint64{s.revision, p.revision}
	s.revision = p.revision
	w, err := s.writeSet(p)
	s.mu.Unlock()
	if err == nil && s.opt.Share != nil {
		if err := s.opt.Share(p.seen()); err != nil {
			s.mu.Lock()
			s.unseen = [2]uint64{}
			s.burn(p.changes)
			s.mu.Unlock()
			return nil, &ShareError{Err: err}
		}
	}
	if err == nil {
		err = s.commit(w)
	} else {
		err = s.degrade(err)
	}

	s.mu.Lock()
	s.unseen = [2]uint64{}
	overtaken := s.Snapshot() != from
	if err != nil || overtaken {
		s.burn(p.changes)
	}
	switch {
	case err != nil:
		s.report()
		s.mu.Unlock()
		return refuse(err)
	case overtaken:
		// What came in between was seen with later revisions. The batch gets revisions behind these; its
		// content is on disk, so from here on it can be seen.
		b.On = nil
		if p, err = s.prepare(b); err == nil {
			s.appendHistory(p.changes)
		}
	}
	if err == nil {
		s.swap(p)
	}
	s.mu.Unlock()
	if overtaken {
		_ = s.flush() // what it says is in Health
	}
	return p.records, err
}

// swap makes a plan what readers see. s.mu is held.
func (s *Store) swap(p *plan) {
	if len(p.changes) == 0 {
		return
	}
	s.revision = p.revision
	s.bury(p.changes)
	s.snap.Store(newSnapshot(p.revision, p.next, healed(s.Snapshot().damaged, p.changes)))
	if s.opt.Changed != nil {
		s.opt.Changed(p.seen())
	}
	s.notify()
	s.report()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// retryEvery is how often a disk that takes no writes is tried again.
const retryEvery = 5 * time.Second

// Run writes behind what changes, all that has come meanwhile in one transaction, until ctx ends.
func (s *Store) Run(ctx context.Context) {
	t := time.NewTicker(retryEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		case <-t.C:
			// Nothing may be pending on a disk that takes no writes; that it takes them again is found out
			// all the same.
			if h := s.Health(); h.Pending == 0 && h.Err == nil {
				continue
			}
		}
		if err := s.Flush(); err != nil && !errors.Is(err, ErrClosed) {
			s.opt.Log.Debug("the state is not written to disk", "path", s.opt.Path, "error", err)
		}
	}
}

// Close writes what is pending, if it can, and ends the store. Snapshots stay valid; Apply and
// Flush return ErrClosed.
func (s *Store) Close() error {
	s.commits.Lock()
	defer s.commits.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(s.flush(), s.detach())
}

// now is the time of a change: UTC, without the monotonic part, as it will read from disk.
func (s *Store) now() time.Time { return s.opt.Now().Round(0).UTC() }
