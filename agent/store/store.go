// Package store holds the resources of the agent: the only mutable state that its parts share.
//
// A write is a Batch of one kind of source; it is applied whole or not at all, gets revisions that grow and are never
// used twice, and is on disk (bbolt, one transaction with fsync) before Apply returns and before any reader sees it.
// Where the disk fails or its file is lost, revisions go on from the milliseconds since 1970, so that none that was
// shown without being on disk is handed out once more.
// A reader takes a Snapshot, which is immutable and never waits for a writer. A watcher has a one-slot channel that
// says that something changed, not what.
//
// Each resource belongs to the source that created it, until that source deletes it; only from file to file can it
// move. The last HistoryLimit revisions of each resource are kept, deletions included; of deleted resources the
// histories of the latest TombstoneLimit within each kind of source.
//
// Faults of the disk do not stop the agent. A damaged file is renamed and a fresh one started; a value that is damaged
// or cannot be decoded is put aside and named; while the disk takes no writes, resources of files and Envoys go on in
// memory and are written when it takes them again, and only API writes are refused. Health tells about all of it.
//
// The package starts no goroutine.
package store

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// HistoryLimit is the number of revisions kept of each resource.
const HistoryLimit = 20

// TombstoneLimit is the number of deleted resources, by kind of the source that deleted them, whose history is kept.
const TombstoneLimit = 500

// Kinds of sources.
const (
	SourceFile  = "file"  // Detail: path of the file
	SourceAPI   = "api"   // Detail: ""
	SourceEnvoy = "envoy" // Detail: node id
)

// Source is where a resource comes from. Two sources are the same when both fields are.
type Source struct {
	Kind   string `json:"kind"`             // SourceFile, SourceAPI or SourceEnvoy
	Detail string `json:"detail,omitempty"` // path of the file, "", node id
}

// String returns "file:/etc/nearside/resources/a.yaml", "api", "envoy:default.web".
func (s Source) String() string {
	if s.Detail == "" {
		return s.Kind
	}
	return s.Kind + ":" + s.Detail
}

// yieldsTo reports whether what s owns may be changed by another source. All files have one reader, who decides between
// them, so a resource can move from one file to another without being deleted in between.
func (s Source) yieldsTo(o Source) bool {
	return s == o || s.Kind == SourceFile && o.Kind == SourceFile
}

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
	// IfRevision, when set, is the revision that the caller changes from: 0 where the resource must not exist yet.
	IfRevision *uint64
}

// Batch is a list of changes that are applied in order, all or none.
type Batch struct {
	Source Source // required
	Author string // who asked for it; free text, may be empty
	Ops    []Op
}

// Options of a store. The zero value is a store in memory.
type Options struct {
	// Path of the state file, "" for a store that keeps everything in memory. Its directory must exist. The file is
	// created with mode 0600.
	Path string
	// Encode and Decode are the codec of resources on disk; both are required with a Path. Decode must give back a
	// sealed resource with the same key, and may get any bytes.
	Encode func(*resource.Resource) ([]byte, error)
	Decode func([]byte) (*resource.Resource, error)
	Log    *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
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
	opt Options

	mu       sync.Mutex            // serializes Apply, Flush and Close; held during fsync
	closed   bool                  // mu
	revision uint64                // mu; the highest handed out
	tombs    map[resource.Key]tomb // mu; deleted resources that have a history
	forget   []resource.Key        // mu; histories to drop with the next commit
	disk     *disk                 // mu for changes, histMu too; nil while no file is open for writing
	state    diskState             // mu
	snap     atomic.Pointer[Snapshot]
	health   atomic.Pointer[Health]

	histMu  sync.RWMutex              // never held during a write to disk
	backlog map[resource.Key]*pending // mu for changes, histMu too: what memory knows and the disk does not

	addresses map[string]string // mu
	unwritten map[string]string // mu; changes of addresses that are not on disk; "": deleted

	watchMu  sync.Mutex
	watchers map[chan struct{}]struct{} // watchMu
}

// Open returns a store with everything loaded that is on disk.
//
// It fails when another process has the file open and when the file is of a newer format. A damaged file, a full or
// read-only disk or an unreadable directory is no failure: see Health.
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
		tombs:    map[resource.Key]tomb{},
		backlog:  map[resource.Key]*pending{},
		watchers: map[chan struct{}]struct{}{},

		addresses: map[string]string{},
		unwritten: map[string]string{},
	}
	s.snap.Store(newSnapshot(0, &table{}))
	s.health.Store(&Health{})
	if opt.Path != "" {
		if err := s.load(); err != nil {
			return nil, err
		}
	}
	s.report()
	return s, nil
}

// Apply makes the changes of b in order, all or none, and returns one record per op: the resource as it is now, or as
// it was before its deletion with the revision, time and author of the deletion.
//
// A put of the content that is there already changes nothing: no revision, no write. The revision of a later op of
// the same batch counts from the ops before it.
//
// Errors: *ConflictError, *NotFoundError, *RevisionError, *DurabilityError (API writes alone), ErrClosed, and plain
// ones for a batch that is not well-formed or cannot be encoded.
func (s *Store) Apply(b Batch) ([]Record, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	p, err := s.plan(b)
	if err != nil {
		return nil, err
	}
	defer s.report()
	if len(p.changes) == 0 {
		_ = s.flush() // what it says is in Health
		return p.records, nil
	}
	values, err := s.encode(p.changes)
	if err != nil {
		return nil, err
	}
	if err := s.persist(p, values); err != nil {
		if b.Source.Kind == SourceAPI {
			return nil, &DurabilityError{Path: s.opt.Path, Err: err}
		}
		// The failed commit may be on disk all the same. Its revisions are burned: these changes get others.
		if p, err = s.plan(b); err != nil {
			return nil, err
		}
		s.keep(p.changes)
	}
	s.revision = p.revision
	s.bury(p.changes)
	s.snap.Store(newSnapshot(p.revision, p.next))
	s.notify()
	return p.records, nil
}

// Close writes what is pending, if it can, and ends the store. Snapshots stay valid; Apply and Flush return ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.report()
	return errors.Join(s.flush(), s.detach())
}

// now is the time of a change: UTC, without the monotonic part, as it will read from disk.
func (s *Store) now() time.Time { return s.opt.Now().Round(0).UTC() }
