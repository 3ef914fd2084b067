package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Operators' resources are records of the pool. The store keeps one version of each, including
// deleted ones, whether or not other agents exist. A resource of this node, such as one from a
// file, shadows the record with its key until it is deleted.
//
// The version with the greater [engine.Version] wins, on every node. The table of the store has the
// content of the version if the agent can decode it and no resource of this node shadows it.

// Pool seals changes for all nodes. Its methods must be safe for concurrent use.
type Pool interface {
	// Seal returns the versions of changes, or an error if the pool refuses them. The store calls
	// committed when the versions are on disk and visible. It calls it for none or all of them, and
	// calls Seal again only afterwards.
	Seal(changes []engine.Put) (versions []*engine.Record, committed func(), err error)
	// Drafts returns what the writer of signed versions needs to know about keys.
	Drafts(keys []engine.Key) ([]draft.Draft, error)
}

// pool is the part of the store with the versions of operators' resources.
type pool struct {
	sealer Pool                          // mu; nil: the store seals
	origin atomic.Pointer[engine.Origin] // nil: Options.Origin
	key    atomic.Pointer[sign.ID]       // of this node; zero: none

	versions map[resource.Key]*engine.Record // mu; the current versions
	// mu; versions that are not on disk; nil means that the disk has a dropped one
	unwritten map[resource.Key]*engine.Record
	merges    int                     // mu; number of merges
	waiting   map[resource.Key]string // mu; why versions are not in force
	state     []engine.Op             // mu; other state of the pool as loaded; nil once taken
	queue     stateQueue              // other state of the pool that is not on disk
}

func (p *pool) open() {
	p.versions, p.unwritten = map[resource.Key]*engine.Record{}, map[resource.Key]*engine.Record{}
	p.waiting = map[resource.Key]string{}
}

// self returns the key of this node, or zero.
func (p *pool) self() sign.ID {
	if id := p.key.Load(); id != nil {
		return *id
	}
	return sign.ID{}
}

// signs notes the key of this node.
func (p *pool) signs(s sign.Signer) {
	var id sign.ID
	if s != nil {
		id = sign.Fingerprint(s.Public())
	}
	p.key.Store(&id)
}

// stored forgets the versions that a transaction has written. Later ones remain.
func (p *pool) stored(versions map[resource.Key]*engine.Record) {
	maps.DeleteFunc(p.unwritten, func(k resource.Key, v *engine.Record) bool {
		version, ok := versions[k]
		return ok && version == v
	})
}

// merge adopts the versions of a plan.
func (p *pool) merge(next map[resource.Key]poolChange) {
	if len(next) > 0 {
		p.merges++
	}
	for k, c := range next {
		p.unwritten[k] = c.version
		if c.version == nil {
			delete(p.versions, k)
		} else {
			p.versions[k] = c.version
		}
		if c.waiting == "" {
			delete(p.waiting, k)
		} else {
			p.waiting[k] = c.waiting
		}
	}
}

// poolChange is the change of a version in a plan.
type poolChange struct {
	version *engine.Record // nil: dropped
	waiting string         // why it is not in force
}

// Connect lets a pool seal all further changes of operators.
func (s *Store) Connect(p Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool.sealer = p
}

// SetOrigin changes the author of further versions: this node has taken another ID.
func (s *Store) SetOrigin(o engine.Origin) {
	s.pool.origin.Store(&o)
	s.pool.signs(o.Signer)
}

// origin returns the author of further versions.
func (s *Store) origin() engine.Origin {
	if o := s.pool.origin.Load(); o != nil {
		return *o
	}
	return s.opt.Origin
}

// Version returns the current version of an operators' resource, which may be a tombstone, or nil.
func (s *Store) Version(k resource.Key) *engine.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool.versions[k]
}

// Versions returns the current versions of all operators' resources, including tombstones, sorted
// by key.
func (s *Store) Versions() []*engine.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*engine.Record, 0, len(s.pool.versions))
	for _, k := range slices.SortedFunc(maps.Keys(s.pool.versions), resource.Key.Compare) {
		out = append(out, s.pool.versions[k])
	}
	return out
}

// Differing returns the keys whose versions in the store differ from those in a list, which has one
// version per key, or are missing in one of the two.
func (s *Store) Differing(list []*engine.Record) (out []resource.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	both := 0
	for _, v := range list {
		have := s.pool.versions[resource.Key(v.Key)]
		if have != nil {
			both++
		}
		if have == nil || have.Version() != v.Version() {
			out = append(out, resource.Key(v.Key))
		}
	}
	if both == len(s.pool.versions) {
		return out
	}
	known := map[resource.Key]bool{}
	for _, v := range list {
		known[resource.Key(v.Key)] = true
	}
	for k := range s.pool.versions {
		if !known[k] {
			out = append(out, k)
		}
	}
	return out
}

// PoolMerges returns a number that grows with each change of versions.
func (s *Store) PoolMerges() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool.merges
}

// Waiting returns the reasons why versions of the pool are not in force on this node.
func (s *Store) Waiting() map[resource.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pool.waiting)
}

// TakePoolState returns the state of the pool besides versions, as it was on disk, once.
func (s *Store) TakePoolState() []engine.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.pool.state
	s.pool.state = nil
	return out
}

// WritePoolState writes state of the pool besides versions, with all pending changes, in one
// transaction. It is on disk when WritePoolState returns nil.
func (s *Store) WritePoolState(ops []engine.Op) error {
	s.commits.Lock()
	defer s.commits.Unlock()
	if s.opt.Path == "" {
		return nil
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if err := s.openFile(); err != nil {
		return s.degrade(err)
	}
	s.mu.Lock()
	w, err := s.writeSet(nil)
	w.state = append(w.state, ops...)
	s.mu.Unlock()
	if err != nil {
		return s.degrade(err)
	}
	return s.commit(w)
}

// Shared reports whether operators' resources of a kind are records of the pool.
func (s *Store) Shared(kind string) bool { return s.opt.Shared != nil && s.opt.Shared(kind) }

// shared reports whether an operators' resource of this kind is a record of the pool.
func (s *Store) shared(src Source, kind string) bool {
	return src.Operators() && s.Shared(kind)
}

// sourceOf returns the source of a version.
func (s *Store) sourceOf(v *engine.Record) Source {
	if id := s.origin().Node; v.Writer == engine.Writer(id[:8]) {
		return Source{Kind: SourceAPI}
	}
	return Source{Kind: SourceGossip, Detail: cmp.Or(v.Origin, fmt.Sprintf("%x", v.Writer))}
}

// version changes the version of a key in a plan.
func (p *plan) version(k resource.Key, c poolChange) {
	if p.pool == nil {
		p.pool = map[resource.Key]poolChange{}
	}
	p.pool[k] = c
}

// current returns the version of a key after the changes of a plan so far. The caller holds s.mu.
func (s *Store) current(p *plan, k resource.Key) *engine.Record {
	if c, ok := p.pool[k]; ok {
		return c.version
	}
	return s.pool.versions[k]
}

// mergeVersion plans an op with a version, and reports whether the visible content of its key
// changes too. The caller holds s.mu.
func (s *Store) mergeVersion(p *plan, op Op, old *Record) (visible bool) {
	k := op.key()
	have := s.current(p, k)
	if op.Signed {
		p.signed = append(p.signed, op.Version)
	}
	if op.Drop {
		if have != nil {
			p.version(k, poolChange{})
		}
		return have != nil && !have.Deleted && old != nil && old.Source.Operators()
	}
	if have != nil && !have.Version().Less(op.Version.Version()) {
		return false
	}
	c := poolChange{version: op.Version}
	_, damaged := s.Snapshot().damaged[k]
	switch {
	case old != nil && old.Source.shadows():
		if !op.Version.Deleted {
			c.waiting = shadowed(old.Source)
		}
	case op.Version.Deleted:
		visible = old != nil || damaged
	case op.Put == nil:
		c.waiting = op.Reason
	default:
		visible = true
	}
	p.version(k, c)
	return visible
}

func shadowed(by Source) string {
	return fmt.Sprintf("this node has it from %s, which takes precedence here", by)
}

// unshadowed returns the put of the version that comes into force when a resource of this node is
// deleted, or nil. The caller holds s.mu.
func (s *Store) unshadowed(p *plan, k resource.Key) (put *resource.Resource, src Source) {
	v := s.current(p, k)
	if v == nil || v.Deleted || s.opt.Decode == nil {
		return nil, src
	}
	r, err := s.opt.Decode(v.Body)
	if err == nil && r.Key != k {
		err = fmt.Errorf("it contains %s", r.Key)
	}
	if err != nil {
		p.version(k, poolChange{v, undecodable(err)})
		return nil, src
	}
	p.version(k, poolChange{version: v})
	return r, s.sourceOf(v)
}

func undecodable(err error) string {
	return fmt.Sprintf("this agent version cannot decode it: %v", err)
}

// Merge returns the op that merges a version into the store.
func (s *Store) Merge(v *engine.Record) Op {
	k := resource.Key(v.Key)
	op := Op{Version: v, Source: s.sourceOf(v), Author: v.Author}
	switch {
	case Reserved(k.Kind):
		return op
	case v.Deleted:
		op.Delete = k
		return op
	}
	switch r, err := s.opt.Decode(v.Body); {
	case s.opt.Shared == nil || !s.opt.Shared(k.Kind):
		op.Reason = "resources of this kind belong to a node"
	case err != nil:
		op.Reason = undecodable(err)
	case r.Key != k:
		op.Reason = fmt.Sprintf("it contains %s", r.Key)
	default:
		op.Put = r
	}
	return op
}

// restoredVersion returns a version for an operators' resource whose version is lost. Every other
// version of the resource is greater.
func (s *Store) restoredVersion(e entry) (*engine.Record, error) {
	at, of := time.UnixMilli(1), engine.Origin{Name: e.Source.Detail}
	if e.Source.Kind == SourceAPI {
		at, of = e.Time.Add(-time.Millisecond), s.origin()
	}
	if err := s.encode(&e); err != nil {
		return nil, err
	}
	return engine.Successor(at, nil, engine.Put{Key: engine.Key(e.key), MediaType: MediaType, Body: e.body,
		Author: clip(e.Author)}, of)
}
