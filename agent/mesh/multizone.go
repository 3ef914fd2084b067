package mesh

import (
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// addMultiZoneServices adds the ports of each MeshMultiZoneService: the endpoints of all selected MeshServices at the
// port of the same number.
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

// unavailable reports whether a MeshService of another zone says that nothing serves it now. One of this zone is known by
// its endpoints, whatever it says.
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
		s := v.newServicePort(r, KindMeshMultiZoneService, "mzsvc", p.Port, p.AppProtocol, statusVIPs(spec.Status))
		s.Section = p.Name
		eps := &EndpointSet{}
		found := false
		for _, ms := range selected {
			if ms.Port != p.Port {
				continue
			}
			if p.AppProtocol == "" && !found {
				s.Protocol = ms.Protocol
			} else if p.AppProtocol == "" {
				s.Protocol = common(s.Protocol, ms.Protocol)
			}
			found = true
			if v.unavailable(ms) {
				continue
			}
			eps.List = append(eps.List, ms.Endpoints.List...)
			s.NotReady += ms.NotReady
			s.Identities = append(s.Identities, ms.Identities...)
		}
		eps.List = dedupe(eps.List)
		slices.Sort(s.Identities)
		s.Identities = slices.Compact(s.Identities)
		s.Endpoints = eps
		v.add(s)
		if !found {
			missing = append(missing, "ports["+strconv.Itoa(i)+"] ("+SectionName("", p.Port)+")")
		}
	}
	switch labels := describePairs(spec.Selector.MeshService.MatchLabels); {
	case len(selected) == 0:
		v.warnf(r.Key, "spec.selector.meshService: no MeshService has the labels %s: the service has no endpoints", labels)
	case len(missing) > 0:
		v.warnf(r.Key, "spec.%s: no MeshService with the labels %s has a port of that number: nothing serves it",
			list(missing, ", spec."), labels)
	}
}

// dedupe drops endpoints that two selected services share. Instances behind one ingress are added up.
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
