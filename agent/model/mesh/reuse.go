package mesh

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// A change affects few services. A view reuses results of the previous view by three rules. Each
// covers all inputs of the result:
//
//   - An inbound is reused while its dataplane is the same resource (by pointer), and the zone of
//     the node and the ingresses of other zones are unchanged.
//   - A service is reused if it depends only on the same inbounds and ingresses, under the same
//     Mesh. A MeshService that selects none of the changed inbounds has the same inbounds.
//   - The names are reused while the resources and addresses of all services and virtual hosts are
//     unchanged.

// reusable returns the previous view if the inputs shared by all inbounds and services are
// unchanged: the Mesh, the zone, the ingresses of other zones, and the egresses that lead there.
// Else it returns nil.
func (v *View) reusable() *View {
	if v.prev == nil || v.prev.mesh != v.mesh || v.prev.Spec != v.Spec || v.prev.plainClients != v.plainClients ||
		!v.sameIngresses() || v.prev.egress != v.egress && v.ThroughEgress() && len(v.zones.behind) > 0 {
		return nil
	}
	return v.prev
}

// sameIngresses reports whether the previous view has the same zone, and the same ingresses at the
// same addresses.
func (v *View) sameIngresses() bool {
	if v.prev.Zone != v.Zone || len(v.prev.zones.behind) != len(v.zones.behind) {
		return false
	}
	for zone, list := range v.zones.behind {
		before, ok := v.prev.zones.behind[zone]
		if !ok ||
			!slices.EqualFunc(before, list, func(a, b *ingress) bool { return a.res.Key == b.res.Key && a.at == b.at }) {
			return false
		}
	}
	return true
}

// regroup builds the groups from those of the previous index. Only services that gained or lost
// inbounds get a new list.
func (ix *inboundIndex) regroup(before *inboundIndex, came, gone []*inbound) {
	ix.by, ix.services = before.by, before.services
	if len(came) == 0 && len(gone) == 0 {
		return
	}
	left := make(map[*inbound]bool, len(gone))
	touched := map[string][]*inbound{} // new inbounds of each service
	for _, in := range gone {
		left[in] = true
		touched[in.service] = nil
	}
	for _, in := range came {
		touched[in.service] = append(touched[in.service], in)
	}
	delete(touched, "")
	ix.by = maps.Clone(before.by)
	resort := false
	for service, more := range touched {
		list := filter(before.by[service], func(in *inbound) bool { return !left[in] })
		list = append(list, more...)
		slices.SortFunc(list, func(a, b *inbound) int {
			return cmp.Or(strings.Compare(a.dp.Name, b.dp.Name), a.index-b.index)
		})
		if ix.by[service] = list; len(list) == 0 {
			delete(ix.by, service)
		}
		resort = resort || (len(list) == 0) != (len(before.by[service]) == 0)
	}
	if resort {
		ix.services = sortedKeys(ix.by)
	}
}

// madeOf reports whether a service depends on only these inbounds and ingresses.
func (s *Service) madeOf(list []*inbound, through []Endpoint) bool {
	return s.fixed && slices.Equal(s.from, list) && s.through == firstOf(through)
}

func firstOf(list []Endpoint) *Endpoint {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// reusePorts adds the ports of a service resource from the previous view if they have the same
// inputs: the resource r (nil for services derived from tags) and these inbounds.
func (v *View) reusePorts(key resource.Key, r *resource.Resource, list []*inbound) bool {
	prev := v.reusable()
	if prev == nil {
		return false
	}
	ports := prev.ports[key]
	if len(ports) == 0 || slices.ContainsFunc(ports, func(s *Service) bool { return s.res != r || !s.madeOf(list, nil) }) {
		return false
	}
	v.addAgain(ports)
	return true
}

// addAgain adds the ports of a service resource from the previous view.
func (v *View) addAgain(ports []*Service) {
	if len(ports) == 0 {
		return
	}
	list := make([]*Service, len(ports))
	for i, s := range ports {
		list[i] = s.clone()
	}
	v.services = append(v.services, list...)
	v.ports[list[0].Resource] = list
	v.Warnings = append(v.Warnings, list[0].warned...)
}

// unaffected says whether a MeshService and everything that it may select are as in the previous
// view, and has its ports there: none if it is optional and selects nothing.
type unaffected struct {
	is    bool
	ports []*Service
}

// maxChangedInbounds is the number of changed inbounds up to which each MeshService is asked
// whether it selects them. With more, all services search their inbounds.
const maxChangedInbounds = 64

// unaffected returns which MeshServices have the same inputs as in the previous view. A
// dataplaneRef is not among them: it depends on dataplanes without inbounds too.
func (v *View) unaffected(ix *inboundIndex, list []*resource.Resource) []unaffected {
	out := make([]unaffected, len(list))
	prev := v.reusable()
	if prev == nil || !ix.follows || len(ix.changed) > maxChangedInbounds {
		return out
	}
	before := prev.meshServices
	for i, r := range list {
		for len(before) > 0 && before[0].Name < r.Name { // both are sorted
			before = before[1:]
		}
		spec, ok := r.Spec.(*resource.MeshService)
		if !ok || len(before) == 0 || before[0] != r || spec.Selector.DataplaneRef != nil {
			continue
		}
		ports, added := prev.ports[r.Key]
		absent := !added && len(spec.Ports) > 0 // [LabelOptional]
		if len(ports) == 0 && !absent ||
			slices.ContainsFunc(ports, func(s *Service) bool { return s.res != r || !s.fixed || s.through != nil }) ||
			slices.ContainsFunc(ix.changed, func(in *inbound) bool { return v.selects(r, &spec.Selector, in.dp, in.spec) }) {
			continue
		}
		out[i] = unaffected{true, ports}
	}
	return out
}

// clone returns a copy for the next view, which sets its index and addresses.
func (s *Service) clone() *Service {
	next := *s
	next.again = true
	return &next
}

// sortServices sorts the services by their ID. Those of the previous view are in order already.
func (v *View) sortServices() {
	var before, fresh []*Service
	if v.prev != nil {
		before = make([]*Service, len(v.prev.services))
	}
	for _, s := range v.services {
		if s.again {
			before[s.Index], s.again = s, false
		} else {
			fresh = append(fresh, s)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *Service) int { return a.ID.compare(b.ID) })
	out := v.services[:0]
	for _, s := range before {
		if s == nil {
			continue
		}
		for len(fresh) > 0 && fresh[0].ID.compare(s.ID) <= 0 {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = append(out, s)
	}
	v.services = append(out, fresh...)
}

// previousTags iterates over the tag services of the previous view. Callers must ask for names in
// sorted order.
type previousTags []*Service

// find returns the service of that name if it depends on only these inbounds and ingresses, else
// nil.
func (t *previousTags) find(name string, list []*inbound, through []Endpoint) *Service {
	for len(*t) > 0 && (*t)[0].ID.Kind == KindTag && (*t)[0].Tag < name {
		*t = (*t)[1:]
	}
	if len(*t) == 0 || (*t)[0].ID.Kind != KindTag || (*t)[0].Tag != name || !(*t)[0].madeOf(list, through) {
		return nil
	}
	return (*t)[0]
}

// sameNames reports whether the services have the same inputs for names as in the previous view.
func (v *View) sameNames() bool {
	prev := v.reusable()
	return prev != nil && prev.IPv6 == v.IPv6 && v.sameHosts() &&
		slices.EqualFunc(v.services, prev.services, func(a, b *Service) bool {
			return a.ID == b.ID && a.res == b.res && a.Resource.Name == b.Resource.Name && a.VIP == b.VIP && a.VIP6 == b.VIP6
		})
}
