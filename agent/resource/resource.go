// Package resource holds the typed resources of a mesh and their strict decoding.
//
// A resource is what an operator writes in the Kuma universal or Kubernetes format, or an Envoy brings in its node
// metadata. Decoding happens once, at the edge; everything behind it works on typed, validated, immutable values.
// The package is pure: no goroutine, clock, file or socket.
package resource

import "cmp"

// Labels and tags that carry meaning.
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
	LabelManagedBy   = "kuma.io/managed-by" // what made the resource

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
	// Validate reports every fault of the spec. It sees this resource alone: what depends on others is decided where
	// the mesh is known.
	Validate(v *Validator)
}

// Digest is the content hash of a resource: the first 16 bytes of SHA-256 over its canonical JSON.
type Digest [16]byte

// Resource is one decoded, validated resource. It is immutable once Decode has returned it.
type Resource struct {
	Key
	Labels map[string]string // nil when there are none
	Spec   Spec
	Digest Digest // over the canonical JSON, labels included
}

// Namespace returns the Kubernetes namespace, "" for universal resources.
func (r *Resource) Namespace() string { return r.Labels[LabelNamespace] }

// DisplayName returns the name without the namespace that a Kubernetes object carries in Key.Name.
func (r *Resource) DisplayName() string {
	if n := r.Labels[LabelDisplayName]; n != "" {
		return n
	}
	return r.Name
}

// Shadow reports whether the resource is a policy that must not touch real proxies.
func (r *Resource) Shadow() bool { return r.Labels[LabelEffect] == EffectShadow }
