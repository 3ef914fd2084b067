// Package store holds the resources of the agent, the only mutable state that its parts share.
//
// Every write is a Batch, whatever its source. A batch is applied atomically and gets increasing
// revisions that are never reused. A durable batch, such as an API write, is on disk (bbolt, one
// transaction with fsync) before Apply returns and before readers see it. Other batches, such as
// those of files and Envoys, are visible first, and Run writes them later: after a crash their
// content is read again from its origin. So that a restart does not reuse a revision that was
// visible, the file stores an upper bound of revisions, and a start after a crash continues above
// it. If the disk fails or its file is lost, revisions continue from the milliseconds since 1970.
//
// A reader takes a Snapshot, which is immutable and never waits for a writer. A watcher has a
// one-slot channel that signals a change but not its content.
//
// Each resource belongs to the source that created it until that source deletes it. It can move
// only between files. The last HistoryLimit revisions of each resource are stored, including
// deletions. For deleted resources, the latest TombstoneLimit histories of each kind of source are
// stored.
//
// A file that cannot be read is an error of Open. A damaged file is renamed, and its readable
// content is copied to a new file, if no resource can be lost without a trace. A value that is
// damaged or cannot be decoded is quarantined and reported, and no earlier revision replaces it.
// While the disk rejects writes, resources of files and Envoys stay in memory and are written
// later, and only API writes are rejected. Health reports all of this.
//
// The package starts no goroutine. Without Run, batches that are not durable are written with the
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
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// HistoryLimit is the number of stored revisions of each resource.
const HistoryLimit = 20

// TombstoneLimit is the number of deleted resources with a stored history, for each kind of
// deleting source.
const TombstoneLimit = 500

// Record is a stored resource.
type Record struct {
	*resource.Resource
	Revision uint64    // of its last change
	Created  time.Time // UTC
	Modified time.Time // UTC, of its last change
	Source   Source    // owner
	Author   string    // of its last change
	Signer   sign.ID   // key that signed its last change: of an operator or of a node; zero: none
}

// Op is one change. Exactly one of Put and Delete is set.
type Op struct {
	Put    *resource.Resource // sealed; an equal Digest means no change
	Delete resource.Key
	// Source overrides the source of the batch for this op if set, so that a batch can contain the
	// changes of several files.
	Source Source
	Author string // overrides the author of the batch if set
	// Signer is the key of the node that vouches for the content. The signer of a Version replaces it.
	Signer sign.ID
	// IfRevision, if set, is the revision that the resource must have; 0 if it must not exist.
	IfRevision *uint64
	// Version is a version of the pool; see [Store.Version]. Put is its decoded content. If this
	// version cannot be decoded, or its kind is [Reserved], Put and Delete are empty, and Reason says
	// why it cannot be decoded.
	Version *engine.Record
	Reason  string
	// Signed is set if an operator has made and signed Version for this node. It is stored only if it
	// follows the current version.
	Signed bool
	// Drop, with Delete, removes the pool's version and leaves no tombstone.
	Drop bool

	sealed bool // Version is of a write on this node, which must not be shadowed
}

// Batch is a list of changes that are applied atomically and in order.
type Batch struct {
	Source Source // required
	Author string // free text; may be empty
	Ops    []Op
	// Durable batches are on disk before readers see them. A batch is rejected if that fails. Other
	// batches are written later.
	Durable bool
	// On is the content that the batch was decided on. If the store has other content, Apply
	// returns ErrMoved. Nil accepts any content.
	On *Snapshot
}

// Options configures a store. The zero value is a store in memory.
type Options struct {
	// Path is the state file; "" selects a store in memory. Its directory must exist. The file is
	// created with mode 0600.
	Path string
	// Encode and Decode are the codec of resources on disk. Both are required with a Path. Decode
	// must return a sealed resource with the same key, and must accept any bytes.
	Encode func(*resource.Resource) ([]byte, error)
	Decode func([]byte) (*resource.Resource, error)
	Log    *slog.Logger     // nil disables logging
	Now    func() time.Time // nil: time.Now
	// AcceptDamage replaces a damaged file, after renaming it, even if resources may be lost without a
	// trace. It is for files that may be new, which a power loss leaves incomplete. AcceptLoss also
	// replaces a file that cannot be opened, or has another format. Without them, that is an error.
	AcceptDamage, AcceptLoss bool
	// Sync is called at the end of each transaction, which fails with its error. It simulates slow
	// disks in tests; may be nil.
	Sync func() error
	// Shared reports whether operators' resources of a kind are records of the pool, each with a
	// version. Nil: no kind is.
	Shared func(kind string) bool
	// Idle reports whether resources of a kind never affect a proxy, so that a damaged one does not
	// matter to them. Nil: no kind is.
	Idle func(kind string) bool
	// Origin is this node, the author of versions.
	Origin engine.Origin
	// Import returns the pool's state from the file of earlier releases. It is called once, for a new
	// file or one of an earlier format. Nil: there is none.
	Import func() ([]engine.Op, error)
	// Changed gets all changes in order, under a lock: it must not block. May be nil.
	Changed func([]Change)
}

// Change is a visible change of one resource.
type Change struct {
	Revision
	Key     resource.Key
	Created bool // the resource did not exist before
}

// Validate returns an error about missing options.
func (o Options) Validate() error {
	if o.Path != "" && (o.Encode == nil || o.Decode == nil) {
		return errors.New("store options: Encode and Decode are required when Path is set")
	}
	return nil
}

// Store is safe for concurrent use.
type Store struct {
	opt   Options
	dirty chan struct{} // one slot: changes are pending

	sealing sync.Mutex // from the seal of a batch until the pool knows its commit; locked before commits
	commits sync.Mutex // one transaction at a time; locked before mu, and held during disk writes

	mu       sync.Mutex // never held during disk writes
	closed   bool       // mu
	revision uint64     // mu; highest assigned revision
	// mu; revisions above the first and up to the second belong to an API write that is not on disk
	// yet
	unseen  [2]uint64
	tombs   map[resource.Key]tomb     // mu; deleted resources with a history
	forget  []resource.Key            // mu; histories to drop in the next commit
	backlog map[resource.Key]*pending // mu; changes that are not on disk
	since   time.Time                 // mu; lower bound of their age; zero if there are none
	disk    *disk                     // changes require mu and commits; nil while no file is open for writing
	state   diskState
	pool    pool
	snap    atomic.Pointer[Snapshot]
	built   atomic.Pointer[builtSet] // the set that was built last
	health  atomic.Pointer[Health]

	addresses map[string]string // mu
	unwritten map[string]string // mu; changes of addresses that are not on disk; "" deletes one

	watchMu  sync.Mutex
	watchers map[chan struct{}]struct{} // watchMu
}

// Open returns a store with the content on disk.
//
// It fails if another process has the file open, if the file has a newer format, if users other
// than its owner can read or write it, or with an [UnusableError] if it cannot be read. Damage that
// leaves the names of all resources readable, and a full or read-only disk, are not errors: see
// Health.
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
	s.pool.open()
	s.pool.signs(opt.Origin.Signer)
	s.snap.Store(s.newSnapshot(0, &table{}, nil))
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

// swap publishes a plan to readers. The caller holds s.mu.
func (s *Store) swap(p *plan) {
	s.pool.merge(p.pool)
	if len(p.changes) == 0 {
		if len(p.pool) > 0 {
			s.wake()
		}
		return
	}
	s.revision = p.revision
	s.bury(p.changes)
	s.snap.Store(s.newSnapshot(p.revision, p.next, healed(s.Snapshot().damaged, p.changes)))
	if s.opt.Changed != nil {
		s.opt.Changed(p.seen())
	}
	s.notify()
	s.report()
	s.wake()
}

// wake starts a write of pending changes.
func (s *Store) wake() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// retryEvery is the interval for retrying a disk that rejects writes.
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
			// Without pending changes, this still detects a disk that accepts writes again.
			if h := s.Health(); h.Pending == 0 && h.Err == nil {
				continue
			}
		}
		if err := s.Flush(); err != nil && !errors.Is(err, ErrClosed) {
			s.opt.Log.Debug("the state is not written to disk", "path", s.opt.Path, "error", err)
		}
	}
}

// Close writes pending changes if possible and closes the store. Snapshots remain valid. Apply and
// Flush then return ErrClosed.
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

// now returns the time of a change in UTC without the monotonic clock, like times read from disk.
func (s *Store) now() time.Time { return s.opt.Now().Round(0).UTC() }
