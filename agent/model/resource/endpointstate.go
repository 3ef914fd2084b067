package resource

import "slices"

// KindEndpointState is the kind of [EndpointState]. Agents write resources of this kind; users
// neither write nor list them.
const KindEndpointState = "EndpointState"

// States of an endpoint.
const (
	EndpointUnready  = "unready"  // its Envoy runs, but the inbounds are not ready
	EndpointDraining = "draining" // it leaves the mesh; existing connections continue
	EndpointEnded    = "ended"    // its Envoy has ended
)

// EndpointState says why inbounds of a Dataplane receive no traffic, as the node that owns the
// Dataplane has observed it. It has the name of the Dataplane. Without one, a Dataplane is ready.
type EndpointState struct {
	State    string   `json:"state"`              // one of the constants above
	Reason   string   `json:"reason,omitempty"`   // for users
	Inbounds []uint32 `json:"inbounds,omitempty"` // ports that do not receive traffic; empty: all
	Since    string   `json:"since,omitempty"`    // time of the observation (RFC 3339)
	Process  string   `json:"process,omitempty"`  // the Envoy, so that a later one is recognized
}

// Validate checks the state.
func (s *EndpointState) Validate(v *Validator) {
	v.Field("state").OneOf(s.State, EndpointUnready, EndpointDraining, EndpointEnded)
	for i, port := range s.Inbounds {
		v.Field("inbounds").Index(i).Port(port)
	}
}

// Excludes reports whether an inbound with this port receives no traffic. A nil state excludes
// nothing.
func (s *EndpointState) Excludes(port uint32) bool {
	return s != nil && (len(s.Inbounds) == 0 || slices.Contains(s.Inbounds, port))
}

// EndpointStateOf returns the key of the state of a Dataplane.
func EndpointStateOf(dataplane Key) Key {
	return Key{Kind: KindEndpointState, Mesh: dataplane.Mesh, Name: dataplane.Name}
}

// Internal reports whether only agents write and read resources of a kind.
func Internal(kind string) bool { return kind == KindEndpointState }

// WithInternal returns a registry that also knows the internal kinds, for the state on disk and the
// resources of other nodes.
func (r *Registry) WithInternal() *Registry {
	out := *r
	out.byName = make(map[string]int, len(r.byName)+1)
	for name, i := range r.byName {
		out.byName[name] = i
	}
	out.byName["endpointstate"] = len(r.list)
	out.list = append(slices.Clip(r.list), Descriptor{Kind: KindEndpointState, Plural: "endpointstates",
		New: func() Spec { return new(EndpointState) }})
	return &out
}
