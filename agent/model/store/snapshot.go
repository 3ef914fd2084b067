package store

import (
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Snapshot is the immutable content of a store at one time.
type Snapshot struct {
	revision uint64
	records  *table
	damaged  map[resource.Key]Damaged
	sorted   func() []Record
	set      func() *resource.Set
}

func newSnapshot(revision uint64, records *table, damaged map[resource.Key]Damaged) *Snapshot {
	s := &Snapshot{revision: revision, records: records, damaged: damaged}
	s.sorted = sync.OnceValue(s.sort)
	s.set = sync.OnceValue(s.buildSet)
	return s
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
	ps := slices.SortedFunc(s.records.all(), func(a, b *Record) int { return a.Key.Compare(b.Key) })
	out := make([]Record, len(ps))
	for i, p := range ps {
		out[i] = *p
	}
	return out
}

func (s *Snapshot) buildSet() *resource.Set {
	rs := make([]*resource.Resource, 0, s.records.count)
	for r := range s.records.all() {
		rs = append(rs, r.Resource)
	}
	return resource.NewSet(rs)
}
