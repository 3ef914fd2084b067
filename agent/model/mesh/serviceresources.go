package mesh

import (
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// DestinationName returns the cluster name of one port of a service resource in Kuma's form:
// mesh_name_namespace_zone_kind_port.
func DestinationName(mesh, name, namespace, zone, short string, port uint32) string {
	b := make([]byte, 0, len(mesh)+len(name)+len(namespace)+len(zone)+len(short)+10)
	for _, field := range [...]string{mesh, name, namespace, zone, short} {
		b = append(append(b, field...), '_')
	}
	return string(strconv.AppendUint(b, uint64(port), 10))
}

// zoneOf returns the zone in the name of a service resource. A resource from a global control plane
// has no zone.
func (v *View) zoneOf(r *resource.Resource) string {
	if z := r.Labels[resource.LabelZone]; z != "" {
		return z
	}
	if r.Labels[resource.LabelOrigin] == "global" {
		return ""
	}
	return v.Zone
}

func (v *View) newServicePort(r *resource.Resource, kind, short string, port uint32, appProtocol string) *Service {
	return &Service{
		ID:       ServiceID{kind, DestinationName(v.Name, r.DisplayName(), r.Namespace(), v.zoneOf(r), short, port)},
		Resource: r.Key, FullName: fullName(r), Labels: v.serviceLabels(r), Port: port, Protocol: ParseProtocol(appProtocol),
		res: r, claimed: statusVIPs(r),
	}
}

// fullName returns the name of a service in mTLS server names. A synced service has the name of its
// origin.
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

// serviceLabels returns the labels of a service resource. It shares unchanged ones with the
// previous view.
func (v *View) serviceLabels(r *resource.Resource) map[string]string {
	if v.prev != nil && v.prev.Zone == v.Zone {
		if before := v.prev.ports[r.Key]; len(before) > 0 && before[0].res == r {
			return before[0].Labels
		}
	}
	return v.Labels(r)
}

// local reports whether a service resource belongs to the node's zone, so that its endpoints are
// dataplanes of this mesh.
func (v *View) local(r *resource.Resource) bool {
	z := r.Labels[resource.LabelZone]
	return z == "" || z == v.Zone
}

// dropTwins removes services with duplicate cluster names, which occur when display name,
// namespace, and zone of two resources are equal. The first resource by name stays; services
// derived from tags come last.
func (v *View) dropTwins() {
	kept := v.services[:0]
	for i := 0; i < len(v.services); {
		n := i + 1
		for n < len(v.services) && v.services[n].ID == v.services[i].ID {
			n++
		}
		same := v.services[i:n]
		slices.SortStableFunc(same, func(a, b *Service) int {
			if a.Derived != b.Derived {
				if b.Derived {
					return -1
				}
				return 1
			}
			return a.Resource.Compare(b.Resource)
		})
		first := same[0]
		for _, s := range same {
			if s != first {
				v.warnf(s.Resource, "port %d has the cluster name %s, which %s already uses: the port is ignored; "+
					"change %s of one of them", s.Port, s.ID.Name, first.Resource, resource.LabelDisplayName)
				v.warnf(first.Resource, "%s has the same cluster name %s: its port %d is ignored", s.Resource, s.ID.Name, s.Port)
				v.ports[s.Resource] = slices.DeleteFunc(v.ports[s.Resource], func(o *Service) bool { return o == s })
				for _, o := range v.ports[s.Resource] {
					o.fixed = false // the next view has to drop the port too
				}
			}
		}
		kept = append(kept, first)
		i = n
	}
	clear(v.services[len(kept):])
	v.services = kept
}

// statusVIPs returns the addresses in the status of a service resource.
func statusVIPs(r *resource.Resource) []resource.VIP {
	st := resource.StatusOf(r.Spec)
	switch {
	case st == nil:
		return nil
	case st.VIP != nil && st.VIP.IP != "":
		return append(slices.Clone(st.VIPs), *st.VIP)
	}
	return st.VIPs
}

// addMeshExternalServices adds each MeshExternalService. As in Kuma, traffic to it passes through a
// zone egress. Without an egress it has no endpoints, and HTTP services have no outbound.
func (v *View) addMeshExternalServices(list []*resource.Resource) {
	for r, spec := range resource.Specs[*resource.MeshExternalService](list) {
		s := v.newServicePort(r, KindMeshExternalService, "extsvc", spec.Match.Port, spec.Match.Protocol)
		s.Endpoints = &EndpointSet{}
		reason := v.notReached()
		if reason != "" {
			v.warnf(r.Key, "%s", reason)
		}
		if spec.Extension != nil && len(spec.Endpoints) > 0 { // without endpoints, the egress warns
			v.warnf(r.Key, "spec.extension: extensions are unknown here and have no effect: "+
				"only spec.endpoints lead to the service; remove the extension")
		}
		v.leaves(s, outsideOf(r, spec), reason == "")
		v.add(s)
	}
}

// addMultiZoneServices adds the ports of each MeshMultiZoneService with the endpoints of all
// selected MeshServices at the same port number.
func (v *View) addMultiZoneServices(all []*resource.Resource) {
	if len(all) == 0 {
		return
	}
	byLabel := groups[*Service]{}
	for _, spec := range resource.Specs[*resource.MeshMultiZoneService](all) {
		byLabel.want(spec.Selector.MeshService.MatchLabels)
	}
	var services []*Service
	for _, s := range v.services {
		if s.ID.Kind != KindMeshService {
			continue
		}
		services = append(services, s)
		for k, val := range s.Labels {
			byLabel.put(k, val, s)
		}
	}
	for r, spec := range resource.Specs[*resource.MeshMultiZoneService](all) {
		want := spec.Selector.MeshService.MatchLabels
		selected := filter(byLabel.smallest(want, services), func(s *Service) bool { return Contains(s.Labels, want) })
		v.addMultiZoneService(r, spec, selected)
	}
}

// unavailable reports whether the status of another zone's MeshService says that it has no
// available endpoint. For a service of this zone the endpoints decide.
func (v *View) unavailable(s *Service) bool {
	if s.res == nil || v.local(s.res) {
		return false
	}
	spec, ok := s.res.Spec.(*resource.MeshService)
	return ok && spec.State == resource.ServiceUnavailable
}

func (v *View) addMultiZoneService(r *resource.Resource, spec *resource.MeshMultiZoneService, selected []*Service) {
	var missing []string
	for i := range spec.Ports {
		p := &spec.Ports[i]
		s := v.newServicePort(r, KindMeshMultiZoneService, "mzsvc", p.Port, p.AppProtocol)
		s.Section = p.Name
		eps := &EndpointSet{}
		var beyond []Endpoint
		found := false
		for _, ms := range selected {
			if ms.Port != p.Port {
				continue
			}
			if p.AppProtocol == "" && !found {
				s.Protocol = ms.Protocol
			} else if p.AppProtocol == "" {
				s.Protocol = Common(s.Protocol, ms.Protocol)
			}
			found = true
			if v.unavailable(ms) {
				continue
			}
			eps.List = append(eps.List, ms.Endpoints.List...)
			if ms.Beyond != nil {
				beyond = append(beyond, ms.Beyond.List...)
			}
			s.NotReady += ms.NotReady
			s.Identities = append(s.Identities, ms.Identities...)
		}
		eps.List = dedupe(eps.List)
		slices.Sort(s.Identities)
		s.Identities = slices.Compact(s.Identities)
		s.Endpoints = eps
		if len(beyond) > 0 {
			s.Beyond = &EndpointSet{List: dedupe(beyond)}
		}
		v.add(s)
		if !found {
			missing = append(missing, "ports["+strconv.Itoa(i)+"] ("+SectionName("", p.Port)+")")
		}
	}
	switch labels := describePairs(spec.Selector.MeshService.MatchLabels); {
	case len(selected) == 0:
		v.warnf(r.Key, "spec.selector.meshService: no MeshService has the labels %s: the service has no endpoints", labels)
	case len(missing) > 0:
		v.warnf(r.Key, "spec.%s: no MeshService with the labels %s has a port with that number: no endpoint serves it",
			list(missing, ", spec."), labels)
	}
}

// dedupe drops endpoints that two selected services share. It adds up the instances behind one
// ingress.
func dedupe(list []Endpoint) []Endpoint {
	type addr struct {
		host string
		port uint32
	}
	seen := make(map[addr]bool, len(list))
	return slices.DeleteFunc(Distinct(list), func(e Endpoint) bool {
		k := addr{e.Address, e.Port}
		if seen[k] {
			return true
		}
		seen[k] = true
		return false
	})
}
