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

// Key returns the key of the resource.
func (r Ref) Key() resource.Key { return resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name} }

// String returns Type/mesh/name, or Type/name for a global resource.
func (r Ref) String() string { return r.Key().String() }

// FlowPolicy is a resource that causes a step.
type FlowPolicy struct {
	Ref
	Field string `json:"field"` // the relevant field
	// Revision is that of the stored resource, or 0 if it is unknown.
	Revision uint64 `json:"revision,omitempty"`
}

// String returns the policy and the field.
func (p FlowPolicy) String() string { return p.Ref.String() + " " + p.Field }

// FlowLog is an access log that records the connection.
type FlowLog struct {
	Listener string `json:"listener"` // that writes it
	Pointer  string `json:"pointer"`  // JSON pointer into the listener
	Name     string `json:"name"`     // of the logger
	Sink     string `json:"sink"`     // the file or other destination
	// Conditional is true if a filter decides at the end whether to log.
	Conditional bool `json:"conditional"`
}
