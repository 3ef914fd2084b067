// Package resource defines the typed resources of a mesh and decodes them strictly.
//
// A resource comes from an operator, in the universal or Kubernetes format of Kuma, or from the
// node metadata of an Envoy. It is decoded once, at the edge. All other code works on typed,
// validated, immutable values. The package is pure: no goroutine, clock, file, or socket.
package resource

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Labels and tags with a meaning.
const (
	TagService             = "kuma.io/service"
	TagProtocol            = "kuma.io/protocol"
	TagZone                = "kuma.io/zone"
	TagExternalServiceName = "kuma.io/external-service-name"

	LabelMesh        = "kuma.io/mesh"
	LabelZone        = "kuma.io/zone"
	LabelOrigin      = "kuma.io/origin"
	LabelDisplayName = "kuma.io/display-name"
	LabelNamespace   = "k8s.kuma.io/namespace"
	LabelEffect      = "kuma.io/effect"
	LabelPolicyRole  = "kuma.io/policy-role"
	LabelEnv         = "kuma.io/env"        // universal or kubernetes
	LabelManagedBy   = "kuma.io/managed-by" // creator of the resource

	// LabelUnit and LabelCgroup hold the systemd unit and the cgroup of a proxy's Envoy. Their values
	// may have characters that other labels may not.
	LabelUnit   = "nearside.io/unit"
	LabelCgroup = "nearside.io/cgroup"

	// LabelLiveness holds the liveness of another node's dataplane: one of the two values below.
	LabelLiveness   = "nearside.io/liveness"
	LivenessDead    = "dead"       // the node does not respond
	LivenessNoAgent = "agent-lost" // the agent does not respond, but the dataplane does

	EffectShadow = "shadow"
	// DefaultMesh is the mesh of a document that names none.
	DefaultMesh = "default"
)

// Key identifies a resource. Mesh is empty for kinds of global scope.
type Key struct {
	Kind string // canonical kind, "MeshTimeout"
	Mesh string
	Name string // universal name; "name.namespace" for a namespaced Kubernetes object
}

// String returns Kind/mesh/name, or Kind/name for global kinds.
func (k Key) String() string {
	if k.Mesh == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Mesh + "/" + k.Name
}

// Compare orders keys by kind, mesh and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Mesh, o.Mesh), cmp.Compare(k.Name, o.Name))
}

// Spec is the typed body of one kind.
type Spec interface {
	// Validate reports every fault of the spec. It sees only this resource; faults that depend on
	// other resources are found where the mesh is known.
	Validate(v *Validator)
}

// Digest is the content hash of a resource: the first 16 bytes of SHA-256 over its canonical JSON.
type Digest [16]byte

// Resource is one decoded and validated resource. It is immutable after Decode has returned it.
type Resource struct {
	Key
	Labels map[string]string // nil if there are none
	Spec   Spec
	Digest Digest // of the canonical JSON, including labels
	// HasSecrets is true if Shown redacts a field.
	HasSecrets bool
}

// Format prints only the key for any verb, so that no secret gets into a log.
func (r *Resource) Format(f fmt.State, _ rune) {
	if r == nil {
		_, _ = io.WriteString(f, "<nil>")
		return
	}
	_, _ = io.WriteString(f, r.Key.String())
}

// Namespace returns the Kubernetes namespace, or "" for universal resources.
func (r *Resource) Namespace() string { return r.Labels[LabelNamespace] }

// DisplayName returns the name without the namespace that a Kubernetes object carries in Key.Name.
func (r *Resource) DisplayName() string {
	if n := r.Labels[LabelDisplayName]; n != "" {
		return n
	}
	return r.Name
}

// Shadow reports whether the resource is a policy that must not affect real proxies.
func (r *Resource) Shadow() bool { return r.Labels[LabelEffect] == EffectShadow }

// Set is an immutable collection of resources, indexed by kind and key. All pure parts of the agent
// work on sets: the live set, the set that includes shadow policies, or the set after a proposed
// change.
type Set struct {
	byKind map[string][]*Resource // sorted by mesh, then name
	n      int
}

// NewSet returns a set. If two resources have the same key, the later one wins. It is fastest if rs
// is sorted by key.
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
		// The sort is stable, so the last of several equal keys is the latest.
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

// Len returns the number of resources.
func (s *Set) Len() int { return s.n }

// Kind returns the resources of a kind in all meshes, sorted by mesh and name. Callers must not
// modify the slice.
func (s *Set) Kind(kind string) []*Resource { return s.byKind[kind] }

// InMesh returns the resources of a kind in one mesh, sorted by name. Callers must not modify the
// slice.
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

// All returns all resources, sorted by kind, mesh, and name.
func (s *Set) All() []*Resource {
	out := make([]*Resource, 0, s.n)
	for _, kind := range slices.Sorted(maps.Keys(s.byKind)) {
		out = append(out, s.byKind[kind]...)
	}
	return out
}

// Specs iterates over the resources of a list whose spec has type T.
func Specs[T Spec](list []*Resource) iter.Seq2[*Resource, T] {
	return func(yield func(*Resource, T) bool) {
		for _, r := range list {
			if spec, ok := r.Spec.(T); ok && !yield(r, spec) {
				return
			}
		}
	}
}
