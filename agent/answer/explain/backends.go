package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Permissions to use a service.
const (
	PermissionAllowed = "allowed"
	PermissionDenied  = "denied"
	// PermissionOpen means that permissions cannot apply to the service or are not enforced in the
	// mesh.
	PermissionOpen = "open"
)

// Backends is the response of GET /v1/dataplanes/{mesh}/{name}/backends: the services of the mesh
// as seen by one dataplane, in the order of [mesh.View.Services]. Lists are never null.
type Backends struct {
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	Mode string `json:"mode"` // meshServices.mode of the mesh
	// whether the dataplane has a transparent proxy; without one, lists have no effect
	Transparent bool `json:"transparentProxy"`
	// ListsServices and ListsBackends say whether the dataplane has the lists reachableServices and
	// reachableBackends.
	ListsServices bool              `json:"listsServices"`
	ListsBackends bool              `json:"listsBackends"`
	Total         int               `json:"total"`
	Items         []CallableBackend `json:"items"`
}

// CallableBackend is a service of [Backends], or a port of a service resource.
type CallableBackend struct {
	Destination
	Why
	Permission   string  `json:"permission"`
	PermissionBy *Source `json:"permissionBy,omitempty"` // the deciding permission, if any
	// Ref is an entry for reachableBackends.refs that selects the backend and usually nothing else.
	// It is absent for a kuma.io/service value, which is listed in reachableServices.
	Ref     *resource.ReachableBackendRef `json:"ref,omitempty"`
	Cluster string                        `json:"cluster"`
	// Addresses that workloads dial: virtual addresses and those of the dataplane's outbounds.
	Addresses []netip.AddrPort `json:"addresses"`
	// Endpoints are the addresses of instances, except for those behind other zones.
	Endpoints []netip.AddrPort `json:"endpoints"`
	Hostnames []string         `json:"hostnames"`
}

// ProxyBackends lists the services of a mesh as seen by a dataplane. It is pure. It returns a
// *generate.NotFoundError if the mesh has no such dataplane.
func ProxyBackends(m *generate.Mesh, name string) (*Backends, error) {
	dataplane := m.View.Dataplane(name)
	if dataplane == nil {
		return nil, &generate.NotFoundError{Mesh: m.View.Name, Name: name}
	}
	index := m.Policies
	if index == nil {
		index = policy.NewIndex(nil, resource.NewSet(nil), m.View, policy.Options{})
	}
	p, err := NewProxy(index, dataplane, nil)
	if err != nil {
		return nil, err
	}
	out := &Backends{Mesh: m.View.Name, Name: name, Mode: m.View.Spec.ServicesMode(), Items: []CallableBackend{}}
	if tp := p.spec.Networking.TransparentProxying; tp != nil {
		out.Transparent, out.ListsServices, out.ListsBackends = true, len(tp.ReachableServices) > 0,
			tp.ReachableBackends != nil
	}
	own := map[mesh.ServiceID][]netip.AddrPort{}
	m.View.EachOutbound(dataplane, func(i int, s *mesh.Service) {
		o := &p.spec.Networking.Outbound[i]
		address := o.Address
		if address == "" {
			address = "127.0.0.1"
		}
		if a, err := netip.ParseAddr(address); err == nil {
			own[s.ID] = append(own[s.ID], netip.AddrPortFrom(a, uint16(o.Port)))
		}
	})
	reach, permitted := index.Reach(dataplane), m.Permissions(dataplane)
	for _, s := range m.View.Services() {
		why := WhyReach(p.index, p.spec, s, reach.Of(s))
		x := CallableBackend{Destination: destinationOf(s), Why: why, Cluster: s.ID.Name, Addresses: own[s.ID],
			Endpoints: []netip.AddrPort{}, Hostnames: []string{}}
		x.permission(m, dataplane, s, permitted)
		if s.ID.Kind != mesh.KindTag {
			x.Ref = refTo(s)
		}
		for _, a := range [...]netip.Addr{s.VIP, s.VIP6} {
			if a.IsValid() {
				x.Addresses = append(x.Addresses, netip.AddrPortFrom(a, uint16(s.Port)))
			}
		}
		if x.Addresses == nil {
			x.Addresses = []netip.AddrPort{}
		}
		for i := range s.Endpoints.List {
			e := &s.Endpoints.List[i]
			if a, err := netip.ParseAddr(e.Address); err == nil && !e.Relay() {
				x.Endpoints = append(x.Endpoints, netip.AddrPortFrom(a, uint16(e.Port)))
			}
		}
		for _, h := range m.View.HostnamesOf(s) {
			if h.Generated {
				x.Hostnames = append(x.Hostnames, h.Hostname)
			}
		}
		slices.Sort(x.Hostnames)
		out.Items = append(out.Items, x)
	}
	out.Total = len(out.Items)
	return out, nil
}

// permission sets whether the dataplane may use the service.
func (x *CallableBackend) permission(m *generate.Mesh, dataplane *resource.Resource, s *mesh.Service,
	permitted *policy.Permissions) {
	x.Permission = PermissionOpen
	if s.Outside != nil && m.Denied(dataplane, m.View.VirtualOutbound(s)) {
		x.Permission = PermissionDenied
		return
	}
	if permitted == nil {
		return
	}
	d := permitted.Of(s)
	switch {
	case !d.About:
		return
	case d.Allowed:
		x.Permission = PermissionAllowed
	default:
		x.Permission = PermissionDenied
	}
	if r := d.By.Policy; r != nil {
		x.PermissionBy = &Source{Type: r.Kind, Mesh: r.Mesh, Name: r.Name}
		if _, ok := r.Spec.(*resource.Policy); ok {
			x.PermissionBy.Field = fmt.Sprintf("spec.from[%d]", d.By.Item)
		}
	}
}

// refTo returns a reference to one port of a service resource.
func refTo(s *mesh.Service) *resource.ReachableBackendRef {
	port := s.Port
	ref := &resource.ReachableBackendRef{Kind: s.ID.Kind, Name: s.Resource.Name, Port: &port}
	if ns := s.Labels[resource.LabelNamespace]; ns != "" {
		if base, ok := strings.CutSuffix(s.Resource.Name, "."+ns); ok {
			ref.Name, ref.Namespace = base, ns
		}
	}
	return ref
}
