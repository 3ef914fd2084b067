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

// What permissions say of the use of a service.
const (
	PermissionAllowed = "allowed"
	PermissionDenied  = "denied"
	// PermissionOpen is that of a service that no permission can be about, and of all in a mesh that
	// keeps nobody out.
	PermissionOpen = "open"
)

// Backends is GET /v1/dataplanes/{mesh}/{name}/backends: every service of the mesh as one dataplane
// sees it, sorted as [mesh.View.Services] is. Lists are never null.
type Backends struct {
	Mesh        string `json:"mesh"`
	Name        string `json:"name"`
	Mode        string `json:"mode"`             // meshServices.mode of the mesh
	Transparent bool   `json:"transparentProxy"` // the dataplane has one; without it no list has an effect
	// ListsServices and ListsBackends say of what the dataplane has a list: reachableServices,
	// reachableBackends.
	ListsServices bool              `json:"listsServices"`
	ListsBackends bool              `json:"listsBackends"`
	Total         int               `json:"total"`
	Items         []CallableBackend `json:"items"`
}

// CallableBackend is one service of [Backends]; of service resources, one port.
type CallableBackend struct {
	Destination
	Why
	Permission   string  `json:"permission"`
	PermissionBy *Source `json:"permissionBy,omitempty"` // the permission that decides, where one does
	// Ref is an entry for reachableBackends.refs that selects it and, as a rule, nothing else; absent
	// for a value of kuma.io/service, which is listed in reachableServices.
	Ref     *resource.ReachableBackendRef `json:"ref,omitempty"`
	Cluster string                        `json:"cluster"`
	// that workloads dial: virtual ones, and those of outbounds that the dataplane lists
	Addresses []netip.AddrPort `json:"addresses"`
	// of instances in reach; those behind other zones are not among them
	Endpoints []netip.AddrPort `json:"endpoints"`
	Hostnames []string         `json:"hostnames"`
}

// ProxyBackends lists the services of a mesh as a dataplane sees them. It is pure. The error is
// an *generate.NotFoundError when the mesh has no such dataplane.
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

// permission says whether the dataplane may use the service.
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

// refTo names one port of a service resource.
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
