package mesh

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// DestinationName is the cluster name of one port of a real service: mesh_name_namespace_zone_kind_port, as users
// know it from the reference.
func DestinationName(mesh, name, namespace, zone, short string, port uint32) string {
	return fmt.Sprintf("%s_%s_%s_%s_%s_%d", mesh, name, namespace, zone, short, port)
}

// zoneOf is the zone in the name of a real service. A document that came from a global place belongs to no zone.
func (v *View) zoneOf(r *resource.Resource) string {
	if z := r.Labels[resource.LabelZone]; z != "" {
		return z
	}
	if r.Labels[resource.LabelOrigin] == "global" {
		return ""
	}
	return v.Zone
}

func (v *View) realService(r *resource.Resource, kind, short string, port uint32, appProtocol string, vips []resource.VIP) *Service {
	s := &Service{
		ID:       ServiceID{kind, DestinationName(v.Name, r.DisplayName(), r.Namespace(), v.zoneOf(r), short, port)},
		Resource: r.Key, FullName: fullName(r), Labels: r.Labels, Port: port, Protocol: ParseProtocol(appProtocol), digest: r.Digest, claimed: vips,
	}
	return s
}

// fullName is the name of a service in the server names of mTLS. One that was synced goes by the name that it has at home.
func fullName(r *resource.Resource) string {
	switch ns := r.Namespace(); {
	case r.Kind != KindMeshService:
		return r.DisplayName()
	case ns != "":
		return r.DisplayName() + "." + ns
	case r.Labels[resource.LabelOrigin] == "global":
		return r.DisplayName()
	}
	return r.Name
}

func statusVIPs(st *resource.ServiceStatus) []resource.VIP {
	if st == nil {
		return nil
	}
	if st.VIP != nil {
		return append(slices.Clone(st.VIPs), *st.VIP)
	}
	return st.VIPs
}

// addMeshServices adds the ports of each MeshService. Where the mesh uses real services everywhere, tag services
// without a MeshService of that name get a derived one.
func (v *View) addMeshServices(ix *inboundIndex, list []*resource.Resource) {
	named := make(map[string]bool, len(list))
	for _, r := range list {
		spec, ok := r.Spec.(*resource.MeshService)
		if !ok {
			continue
		}
		named[r.DisplayName()] = true
		selected := v.selectInbounds(ix, &spec.Selector)
		identities := v.identities(spec, selected)
		ready := spec.Status != nil && spec.Status.TLS != nil && spec.Status.TLS.Status == resource.TLSReady
		for i := range spec.Ports {
			p := &spec.Ports[i]
			s := v.realService(r, KindMeshService, "msvc", p.Port, p.AppProtocol, statusVIPs(spec.Status))
			s.Section, s.port = p.Name, p
			s.Identities, s.TLSReady = identities, ready
			eps := &EndpointSet{}
			for _, in := range selected {
				if in.ready && matchesPort(in.spec, p) {
					eps.List = append(eps.List, in.ep)
				}
			}
			s.Endpoints = eps
			v.add(s)
		}
	}
	if v.Spec.ServicesMode() == resource.MeshServicesDisabled {
		return
	}
	for _, name := range ix.services {
		if named[name] {
			continue
		}
		v.deriveMeshService(name, ix.by[name])
	}
}

// deriveMeshService makes the real service of a kuma.io/service tag: one port for each port of its inbounds.
func (v *View) deriveMeshService(name string, ins []*inbound) {
	ports := map[uint32]*Service{}
	var order []uint32
	identities := v.provedBy(ins)
	for _, in := range ins {
		s := ports[in.spec.Port]
		if s == nil {
			s = &Service{
				ID:        ServiceID{KindMeshService, DestinationName(v.Name, name, "", "", "msvc", in.spec.Port)},
				Resource:  resource.Key{Kind: KindMeshService, Mesh: v.Name, Name: name},
				FullName:  name,
				Port:      in.spec.Port,
				Protocol:  in.proto,
				Endpoints: &EndpointSet{}, Identities: identities,
			}
			ports[in.spec.Port] = s
			order = append(order, in.spec.Port)
		}
		s.Protocol = common(s.Protocol, in.proto)
		if in.ready {
			s.Endpoints.List = append(s.Endpoints.List, in.ep)
		}
	}
	slices.Sort(order)
	for _, p := range order {
		v.add(ports[p])
	}
}

func (v *View) selectInbounds(ix *inboundIndex, sel *resource.MeshServiceSelector) []*inbound {
	var out []*inbound
	if len(sel.DataplaneTags) > 0 {
		// Nearly every selector names the service, which narrows the search to its inbounds.
		if name := sel.DataplaneTags[resource.TagService]; name != "" {
			for _, in := range ix.by[name] {
				if in.ep.has(sel.DataplaneTags) {
					out = append(out, in)
				}
			}
			return out
		}
	}
	for _, service := range ix.services {
		for _, in := range ix.by[service] {
			switch {
			case len(sel.DataplaneTags) > 0:
				if !in.ep.has(sel.DataplaneTags) {
					continue
				}
			case sel.DataplaneRef != nil:
				if in.dp.Name != sel.DataplaneRef.Name {
					continue
				}
			case sel.DataplaneLabels != nil:
				if !contains(in.dp.Labels, sel.DataplaneLabels.MatchLabels) {
					continue
				}
			default:
				continue // a service without selector has no endpoints
			}
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b *inbound) int {
		if c := a.dp.Key.Compare(b.dp.Key); c != 0 {
			return c
		}
		return a.index - b.index
	})
	return out
}

// matchesPort reports whether a service port leads to an inbound: by number, by name, or by its own number where it
// names no target.
func matchesPort(in *resource.Inbound, p *resource.MeshServicePort) bool {
	switch {
	case p.TargetPort == nil:
		return in.Port == p.Port
	case p.TargetPort.String != "":
		return in.Name == p.TargetPort.String
	default:
		return in.Port == p.TargetPort.Int
	}
}

// addMeshExternalServices adds each MeshExternalService. As in the reference, traffic to it leaves through a zone
// egress: without one it has no endpoints, and HTTP has no outbound at all.
func (v *View) addMeshExternalServices(list []*resource.Resource) {
	for _, r := range list {
		spec, ok := r.Spec.(*resource.MeshExternalService)
		if !ok {
			continue
		}
		s := v.realService(r, KindMeshExternalService, "extsvc", spec.Match.Port, spec.Match.Protocol, statusVIPs(spec.Status))
		s.Endpoints = &EndpointSet{}
		v.warnf(r.Key, "traffic to a MeshExternalService leaves through a ZoneEgress, which this agent does not "+
			"configure yet: it is not reachable")
		v.add(s)
	}
}

// addMultiZoneServices adds the ports of each MeshMultiZoneService: the endpoints of all selected MeshServices at the
// port of the same number.
func (v *View) addMultiZoneServices(list []*resource.Resource) {
	if len(list) == 0 {
		return
	}
	var services []*Service
	for _, s := range v.services {
		if s.ID.Kind == KindMeshService {
			services = append(services, s)
		}
	}
	for _, r := range list {
		spec, ok := r.Spec.(*resource.MeshMultiZoneService)
		if !ok {
			continue
		}
		for _, p := range spec.Ports {
			s := v.realService(r, KindMeshMultiZoneService, "mzsvc", p.Port, p.AppProtocol, statusVIPs(spec.Status))
			eps := &EndpointSet{}
			for _, ms := range services {
				if ms.Port == p.Port && contains(ms.Labels, spec.Selector.MeshService.MatchLabels) {
					eps.List = append(eps.List, ms.Endpoints.List...)
					s.Identities = append(s.Identities, ms.Identities...)
				}
			}
			eps.List = dedupe(eps.List)
			slices.Sort(s.Identities)
			s.Identities = slices.Compact(s.Identities)
			s.Endpoints = eps
			v.add(s)
		}
	}
}

// dedupe drops endpoints that two selected services share.
func dedupe(list []Endpoint) []Endpoint {
	type addr struct {
		host string
		port uint32
	}
	seen := make(map[addr]bool, len(list))
	return slices.DeleteFunc(list, func(e Endpoint) bool {
		k := addr{e.Address, e.Port}
		if seen[k] {
			return true
		}
		seen[k] = true
		return false
	})
}
