package store

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Snapshot is the immutable content of a store at one time.
type Snapshot struct {
	revision uint64
	records  *table
	damaged  map[resource.Key]Damaged
	sorted   func() []Record
	set      func() *resource.Set
	last     *atomic.Pointer[builtSet] // of the store
}

// builtSet is a snapshot whose set was built.
type builtSet struct {
	snapshot *Snapshot
	set      *resource.Set
}

func (s *Store) newSnapshot(revision uint64, records *table, damaged map[resource.Key]Damaged) *Snapshot {
	out := &Snapshot{revision: revision, records: records, damaged: damaged, last: &s.built}
	out.sorted = sync.OnceValue(out.sort)
	out.set = sync.OnceValue(out.buildSet)
	return out
}

// Snapshot returns the current content. It costs one atomic load.
func (s *Store) Snapshot() *Snapshot { return s.snap.Load() }

// Revision returns the revision of the last change; 0 if there was none.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Len returns the number of records.
func (s *Snapshot) Len() int { return s.records.count }

// Get returns the record with that key.
func (s *Snapshot) Get(k resource.Key) (Record, bool) {
	r := s.records.get(k)
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

// Set returns the resources. It is built at the first call and shared by all callers.
func (s *Snapshot) Set() *resource.Set { return s.set() }

// Records returns all records, sorted by kind, mesh, and name. Callers must not modify the slice.
func (s *Snapshot) Records() []Record { return s.sorted() }

// Diff returns the keys whose records differ from those of an earlier snapshot of the same store,
// in no particular order. Nil is the empty snapshot. The cost depends on the number of changes:
// tables share the shards that did not change.
func (s *Snapshot) Diff(earlier *Snapshot) (out []resource.Key) {
	old := &table{}
	if earlier != nil {
		old = earlier.records
	}
	for i := range shards {
		if s.records.gen[i] == old.gen[i] {
			continue
		}
		for k, r := range s.records.parts[i] {
			if o := old.parts[i][k]; o != r {
				out = append(out, k)
			}
		}
		for k := range old.parts[i] {
			if s.records.parts[i][k] == nil {
				out = append(out, k)
			}
		}
	}
	return out
}

// BySource returns the records of one kind of source, sorted by kind, mesh, and name.
func (s *Snapshot) BySource(kind string) []Record {
	var out []Record
	for _, r := range s.sorted() {
		if r.Source.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

func (s *Snapshot) sort() []Record {
	all := s.Set().All() // sorted
	out := make([]Record, len(all))
	for i, r := range all {
		out[i] = *s.records.get(r.Key)
	}
	return out
}

// maxPatched is the number of changes up to which a set is derived from the one built last.
const maxPatched = 256

func (s *Snapshot) buildSet() *resource.Set {
	set := resource.NewSet(s.resources())
	s.last.Store(&builtSet{s, set})
	return set
}

// resources returns all resources. They are sorted if few have changed since a set was built.
func (s *Snapshot) resources() []*resource.Resource {
	if last := s.last.Load(); last != nil {
		if changed := s.Diff(last.snapshot); len(changed) <= maxPatched {
			return s.patch(last.set.All(), changed)
		}
	}
	rs := make([]*resource.Resource, 0, s.records.count)
	for r := range s.records.all() {
		rs = append(rs, r.Resource)
	}
	return rs
}

// patch replaces the resources of some keys in a list that is sorted by key.
func (s *Snapshot) patch(list []*resource.Resource, changed []resource.Key) []*resource.Resource {
	for _, k := range changed {
		i, found := slices.BinarySearchFunc(list, k, func(r *resource.Resource, k resource.Key) int {
			return r.Key.Compare(k)
		})
		switch r := s.records.get(k); {
		case r != nil && found:
			list[i] = r.Resource
		case r != nil:
			list = slices.Insert(list, i, r.Resource)
		case found:
			list = slices.Delete(list, i, i+1)
		}
	}
	return list
}
