package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// maxKey limits the total length of kind, mesh, and name in bytes. A key of bbolt may have 32 KiB.
const maxKey = 16 << 10

func (b Batch) validate() error {
	if b.Source.Kind == "" {
		return errors.New("batch.Source.Kind is empty")
	}
	for i, op := range b.Ops {
		unset := op.Version != nil && (op.Reason != "" || Reserved(op.Version.Key.Kind))
		if !unset && (op.Put != nil) == (op.Delete != resource.Key{}) {
			return fmt.Errorf("batch.Ops[%d]: exactly one of Put and Delete must be set", i)
		}
		if op.Version == nil && op.Source != (Source{}) && op.Source.Kind != b.Source.Kind &&
			(op.Source.Kind != SourceNode || b.Source.Kind != SourceEnvoy) {
			return fmt.Errorf("batch.Ops[%d].Source: a batch of kind %q cannot contain an op of kind %q",
				i, b.Source.Kind, op.Source.Kind)
		}
		k := op.key()
		if k.Kind == "" || k.Name == "" {
			return fmt.Errorf("batch.Ops[%d]: the key %q lacks a kind or a name", i, k)
		}
		if strings.ContainsRune(k.Kind+k.Mesh+k.Name, 0) {
			return fmt.Errorf("batch.Ops[%d]: the key %q contains a NUL", i, k)
		}
		if n := len(k.Kind) + len(k.Mesh) + len(k.Name); n > maxKey {
			return fmt.Errorf("batch.Ops[%d]: the key has %d bytes, at most %d are allowed", i, n, maxKey)
		}
		if op.Put != nil && op.Put.Digest == (resource.Digest{}) {
			return fmt.Errorf("batch.Ops[%d]: %s has no digest: seal it first", i, k)
		}
	}
	return nil
}

func (o Op) key() resource.Key {
	switch {
	case o.Put != nil:
		return o.Put.Key
	case o.Version != nil:
		return resource.Key(o.Version.Key)
	}
	return o.Delete
}

// entry is one revision with the additional fields of a record.
type entry struct {
	Revision
	key     resource.Key
	created time.Time
	body    []byte // encoded resource; nil before encoding and for a deletion
	op      int    // index of the op in the batch
	direct  bool   // the batch contains the content, in contrast to a version that comes into force
	version *engine.Record
}

// record returns the record of the entry; nil for a deletion.
func (e entry) record() *Record {
	if e.Deleted {
		return nil
	}
	return &Record{Resource: e.Resource, Revision: e.Revision.Revision, Created: e.created, Modified: e.Time,
		Source: e.Source, Author: e.Author, Signer: e.Signer}
}

// entryOf returns the entry of a record's last change.
func entryOf(r *Record) entry {
	return entry{key: r.Key, created: r.Created, Revision: Revision{Revision: r.Revision, Time: r.Modified,
		Source: r.Source, Author: r.Author, Signer: r.Signer, Resource: r.Resource}}
}

// plan is the result of a batch.
type plan struct {
	records  []Record // one per op
	changes  []entry  // in order; empty if the batch changes nothing
	next     *table   // content after the batch; nil if it changes nothing
	revision uint64   // highest revision after the batch
	pool     map[resource.Key]poolChange
	signed   []*engine.Record // versions of the batch that operators have signed
}

// empty reports whether a plan changes nothing.
func (p *plan) empty() bool { return len(p.changes)+len(p.pool)+len(p.signed) == 0 }

// seen returns the changes in the form that watchers get.
func (p *plan) seen() []Change {
	out := make([]Change, len(p.changes))
	for i, e := range p.changes {
		out[i] = Change{Revision: e.Revision, Key: e.key, Created: !e.Deleted && e.created.Equal(e.Time)}
	}
	return out
}

// plan computes the result of a batch without applying it. The result is never nil. The caller
// holds s.mu.
func (s *Store) plan(b Batch) (*plan, error) {
	switch {
	case s.closed:
		return &plan{}, ErrClosed
	case b.On != nil && b.On != s.Snapshot():
		return &plan{}, ErrMoved
	}
	now := s.now()
	current := s.Snapshot().records
	p := &plan{revision: s.revision, records: make([]Record, 0, len(b.Ops))}
	var conflicts []Conflict
	var first error // of the other errors
	for i, op := range b.Ops {
		key := op.key()
		old := current.get(key)
		src, author := cmp.Or(op.Source, b.Source), cmp.Or(op.Author, b.Author)
		put, direct, signer := op.Put, op.Version == nil && !op.Drop, s.signer(op, src)
		if (op.sealed || op.Signed) && old != nil && !old.Source.YieldsTo(src) {
			conflicts = append(conflicts, Conflict{Key: key, Owner: old.Source, Wanted: src})
			continue
		}
		if op.Version != nil || op.Drop {
			if !s.mergeVersion(p, op, old) || put != nil && old != nil && old.Digest == put.Digest &&
				old.Author == author && old.Signer == signer &&
				(old.Source == src || op.Version.Origin == "" && old.Source.Kind == src.Kind) {
				p.records = append(p.records, recordOrNone(old, key))
				continue
			}
		} else {
			if old != nil && !old.Source.YieldsTo(src) {
				conflicts = append(conflicts, Conflict{Key: key, Owner: old.Source, Wanted: src})
				continue
			}
			if err := op.check(old); err != nil && !(op.Put == nil && s.damagedUntil(p, key)) {
				if first == nil {
					first = err
				}
				continue
			}
			if put != nil && old != nil && old.Digest == put.Digest && old.Source == src &&
				(op.Signer == (sign.ID{}) || op.Signer == old.Signer) {
				p.records = append(p.records, *old)
				continue
			}
			switch version := s.current(p, key); {
			case src.Operators() || version == nil || version.Deleted:
			case put != nil:
				p.version(key, poolChange{version, shadowed(src)})
			default:
				if r, of := s.unshadowed(p, key); r != nil {
					put, src, author, direct, signer = r, of, version.Author, false, version.Signer()
				}
			}
		}
		if p.next == nil {
			p.next = current.copy()
			current = p.next
		}
		p.revision++
		e := entry{key: key, created: now, op: i, direct: direct, version: op.Version, Revision: Revision{
			Revision: p.revision, Time: now, Source: src, Author: author, Signer: signer, Resource: put, Deleted: put == nil}}
		if old != nil {
			e.created = old.Created
		}
		p.changes = append(p.changes, e)
		r := e.record()
		p.next.put(key, r)
		if r != nil {
			p.records = append(p.records, *r)
			continue
		}
		gone := Record{Resource: &resource.Resource{Key: key}, Source: src} // all that is known of a damaged resource
		if old != nil {
			gone = *old
		}
		gone.Revision, gone.Modified, gone.Author, gone.Signer = p.revision, now, author, signer
		p.records = append(p.records, gone)
	}
	if len(conflicts) > 0 {
		return &plan{}, &ConflictError{Conflicts: conflicts}
	}
	if first != nil {
		return &plan{}, first
	}
	return p, nil
}

// recordOrNone returns a record, or one with only a key.
func recordOrNone(r *Record, k resource.Key) Record {
	if r == nil {
		return Record{Resource: &resource.Resource{Key: k}}
	}
	return *r
}

// damagedUntil reports whether a resource is damaged and the plan does not change it.
func (s *Store) damagedUntil(p *plan, k resource.Key) bool {
	_, damaged := s.Snapshot().damaged[k]
	return damaged && !slices.ContainsFunc(p.changes, func(e entry) bool { return e.key == k })
}

// check compares an op with the record that it changes; old may be nil.
func (o Op) check(old *Record) error {
	if old == nil && o.Put == nil {
		return &NotFoundError{Key: o.Delete}
	}
	if o.IfRevision == nil {
		return nil
	}
	var have uint64
	if old != nil {
		have = old.Revision
	}
	if have != *o.IfRevision {
		return &RevisionError{Key: o.key(), Have: have, Want: *o.IfRevision}
	}
	return nil
}
