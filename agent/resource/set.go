package resource

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Set is an immutable collection of resources, indexed by kind and key. It is what the pure half of the agent works
// on: the live set, the set with shadow policies counted, the set a diff would make.
type Set struct {
	byKind map[string][]*Resource // sorted by mesh, then name
	n      int
}

// NewSet builds a set. Of two resources with one key the later wins. It is fastest when rs is sorted by key.
func NewSet(rs []*Resource) *Set {
	s := &Set{byKind: map[string][]*Resource{}}
	counts := map[string]int{}
	for _, r := range rs {
		counts[r.Kind]++
	}
	for kind, n := range counts {
		s.byKind[kind] = make([]*Resource, 0, n)
	}
	for _, r := range rs {
		s.byKind[r.Kind] = append(s.byKind[r.Kind], r)
	}
	for kind, l := range s.byKind {
		if !slices.IsSortedFunc(l, byName) {
			slices.SortStableFunc(l, byName)
		}
		// Of equal keys, which stand in the order given, the last stays.
		kept := l[:0]
		for i, r := range l {
			if i+1 == len(l) || byName(r, l[i+1]) != 0 {
				kept = append(kept, r)
			}
		}
		s.byKind[kind] = kept
		s.n += len(kept)
	}
	return s
}

// byName orders resources of one kind.
func byName(a, b *Resource) int {
	return cmp.Or(strings.Compare(a.Mesh, b.Mesh), strings.Compare(a.Name, b.Name))
}

// Get returns the resource with that key, or nil.
func (s *Set) Get(k Key) *Resource {
	l := s.byKind[k.Kind]
	i, ok := slices.BinarySearchFunc(l, k, func(r *Resource, k Key) int {
		return cmp.Or(strings.Compare(r.Mesh, k.Mesh), strings.Compare(r.Name, k.Name))
	})
	if !ok {
		return nil
	}
	return l[i]
}

// Len is the number of resources.
func (s *Set) Len() int { return s.n }

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
	out := make([]*Resource, 0, s.n)
	for _, kind := range slices.Sorted(maps.Keys(s.byKind)) {
		out = append(out, s.byKind[kind]...)
	}
	return out
}

// Specs goes through the resources of a list whose spec has the type T.
func Specs[T Spec](list []*Resource) iter.Seq2[*Resource, T] {
	return func(yield func(*Resource, T) bool) {
		for _, r := range list {
			if spec, ok := r.Spec.(T); ok && !yield(r, spec) {
				return
			}
		}
	}
}
