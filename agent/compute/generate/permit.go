package generate

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// permits determines which services outside the mesh a proxy may use.
type permits struct {
	m      *Mesh
	names  []string // in its certificate
	denied map[*mesh.Service]*mesh.Service
}

func (m *Mesh) permits(dataplane *resource.Resource) *permits {
	return &permits{m: m, names: m.CertificateNames(dataplane), denied: map[*mesh.Service]*mesh.Service{}}
}

// Denied reports whether policies deny a dataplane access to everything behind an outbound that is
// outside the mesh.
func (m *Mesh) Denied(dataplane *resource.Resource, o mesh.Outbound) bool {
	return m.permits(dataplane).restrict(o).Service.Denied
}

// restrict returns an outbound with only those endpoints outside the mesh that the proxy may use.
// If there are none, its service becomes one without endpoints but with the same protocol.
//
// All endpoints behind an egress are one destination, so the proxy must be admitted to all of them.
func (p *permits) restrict(o mesh.Outbound) mesh.Outbound {
	s := o.Service
	if s.Outside == nil {
		return o
	}
	admitted := func(e mesh.Endpoint) bool {
		return p.m.Policies.Outside(e.Resource.Key).Admits(p.names)
	}
	if s.Egress {
		if slices.ContainsFunc(s.Outside.Subset(o.Subset), func(e mesh.Endpoint) bool { return !admitted(e) }) {
			o.Service = p.deny(s)
		}
		return o
	}
	out := *s.Endpoints
	out.List = slices.DeleteFunc(slices.Clone(s.Endpoints.List), func(e mesh.Endpoint) bool { return !admitted(e) })
	switch {
	case len(out.List) == len(s.Endpoints.List):
	case len(out.Subset(o.Subset)) == 0:
		o.Service = p.deny(s)
	default:
		some := *s
		some.Endpoints = &out
		o.Service = &some
	}
	return o
}

// deny returns a service without its endpoints outside the mesh.
func (p *permits) deny(s *mesh.Service) *mesh.Service {
	out, ok := p.denied[s]
	if !ok {
		none := *s
		none.External, none.Egress, none.Outside, none.Endpoints, none.Index, none.Denied = false, false, nil,
			&mesh.EndpointSet{}, -1, true
		out = &none
		p.denied[s] = out
	}
	return out
}

// Permissions returns which services admit a dataplane, whether or not that restricts its
// outbounds. It returns nil if the mesh admits every client.
func (m *Mesh) Permissions(dataplane *resource.Resource) *policy.Permissions {
	if m.Policies == nil {
		return nil
	}
	return m.Policies.Permissions(m.set, dataplane)
}

// Permitting returns the policies of the mesh, prepared for questions about the permissions of many
// dataplanes. It is nil if there are none.
func (m *Mesh) Permitting() *policy.Index {
	if m.Policies == nil {
		return nil
	}
	return m.Policies.Permitting(m.set)
}
