package api

import "github.com/nearside-mesh/nearside/agent/model/resource"

// Ref names a resource.
type Ref struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
}

// RefOf returns the reference to a resource.
func RefOf(k resource.Key) Ref { return Ref{Type: k.Kind, Mesh: k.Mesh, Name: k.Name} }

// Key is that of the resource.
func (r Ref) Key() resource.Key { return resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name} }

// String returns Type/mesh/name, Type/name of a resource that belongs to no mesh.
func (r Ref) String() string { return r.Key().String() }

// FlowPolicy is a resource that a step follows from.
type FlowPolicy struct {
	Ref
	Field string `json:"field"` // the part of it
	// Revision is that of the stored resource, 0 where it is not known.
	Revision uint64 `json:"revision,omitempty"`
}

// String names the policy and the part of it.
func (p FlowPolicy) String() string { return p.Ref.String() + " " + p.Field }

// FlowLog is an access log that is written.
type FlowLog struct {
	Listener string `json:"listener"` // that has it
	Pointer  string `json:"pointer"`  // where in it, as a JSON pointer
	Name     string `json:"name"`     // of the logger
	Sink     string `json:"sink"`     // the file, or what else takes it
	// Conditional is true where a filter decides, when all is over.
	Conditional bool `json:"conditional"`
}
