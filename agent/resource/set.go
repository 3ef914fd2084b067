package resource

import (
	"slices"
)

// Set is an immutable collection of resources, indexed by kind and key. It is what the pure half of the agent works
// on: the live set, the set with shadow policies counted, the set a diff would make.
type Set struct {
	byKey  map[Key]*Resource
	byKind map[string][]*Resource // sorted by mesh, then name
}

// NewSet builds a set. Of two resources with one key the later wins. It is fastest when rs is sorted by key.
func NewSet(rs []*Resource) *Set {
	s := &Set{byKey: make(map[Key]*Resource, len(rs)), byKind: map[string][]*Resource{}}
	counts := map[string]int{}
	for _, r := range rs {
		if s.byKey[r.Key] == nil {
			counts[r.Kind]++
		}
		s.byKey[r.Key] = r
	}
	for kind, n := range counts {
		s.byKind[kind] = make([]*Resource, 0, n)
	}
	for _, r := range rs {
		if s.byKey[r.Key] == r {
			s.byKind[r.Kind] = append(s.byKind[r.Kind], r)
		}
	}
	byKey := func(a, b *Resource) int { return a.Key.Compare(b.Key) }
	for _, l := range s.byKind {
		if !slices.IsSortedFunc(l, byKey) {
			slices.SortFunc(l, byKey)
		}
	}
	return s
}

// Get returns the resource with that key, or nil.
func (s *Set) Get(k Key) *Resource { return s.byKey[k] }

// Len is the number of resources.
func (s *Set) Len() int { return len(s.byKey) }

// Kind returns the resources of a kind in all meshes, sorted by mesh and name. The slice must not be changed.
func (s *Set) Kind(kind string) []*Resource { return s.byKind[kind] }

// InMesh returns the resources of a kind in one mesh, sorted by name. The slice must not be changed.
func (s *Set) InMesh(kind, mesh string) []*Resource {
	l := s.byKind[kind]
	from, _ := slices.BinarySearchFunc(l, mesh, func(r *Resource, m string) int {
		if r.Mesh < m {
			return -1
		}
		return 1
	})
	to := from
	for to < len(l) && l[to].Mesh == mesh {
		to++
	}
	return l[from:to]
}

// All returns every resource, sorted by kind, mesh and name.
func (s *Set) All() []*Resource {
	out := make([]*Resource, 0, len(s.byKey))
	for _, r := range s.byKey {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Resource) int { return a.Key.Compare(b.Key) })
	return out
}
