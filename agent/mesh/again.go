package mesh

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// A change concerns few services. What was made for the view before is taken over by three rules, each of which looks at
// all that the thing depends on:
//
//   - An inbound is that of the view before while its dataplane is the same resource (by pointer), the zone of the node is
//     the same and the same zones are behind ingresses.
//   - A service that was made of inbounds alone is made of the same ones again, under the same Mesh.
//   - The names stand while no service has another resource or address.

// steady returns the view before if nothing that all its inbounds and services depend on is another: the Mesh, the zone,
// and which zones are behind ingresses. It is nil otherwise.
func (v *View) steady() *View {
	if v.last == nil || v.last.mesh != v.mesh || !v.sameZones() {
		return nil
	}
	return v.last
}

// sameZones reports whether the view before was made in the same zone, with the same zones behind ingresses.
func (v *View) sameZones() bool {
	if v.last.Zone != v.Zone || len(v.last.zones.behind) != len(v.zones.behind) {
		return false
	}
	for zone := range v.zones.behind {
		if !v.last.behindIngress(zone) {
			return false
		}
	}
	return true
}

// regroup makes the groups of an index out of those of the one before. Only services of which inbounds came or went get
// another list.
func (ix *inboundIndex) regroup(before *inboundIndex, came, gone []*inbound) {
	ix.by, ix.services = before.by, before.services
	if len(came) == 0 && len(gone) == 0 {
		return
	}
	left := make(map[*inbound]bool, len(gone))
	touched := map[string][]*inbound{} // what came to each
	for _, in := range gone {
		left[in] = true
		touched[in.service] = nil
	}
	for _, in := range came {
		touched[in.service] = append(touched[in.service], in)
	}
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

// madeOf reports whether a service was made of these inbounds and nothing else.
func (s *Service) madeOf(list []*inbound) bool { return s.alone && slices.Equal(s.from, list) }

// portsAgain adds the ports that a real service had in the view before, if they would come out the same: it was made of
// that resource (nil: of tags) and these inbounds.
func (v *View) portsAgain(key resource.Key, r *resource.Resource, list []*inbound) bool {
	last := v.steady()
	if last == nil {
		return false
	}
	ports := last.real[key]
	if len(ports) == 0 || slices.ContainsFunc(ports, func(s *Service) bool { return s.res != r || !s.madeOf(list) }) {
		return false
	}
	for _, s := range ports {
		v.add(s.again())
	}
	return true
}

// again returns a service for the next view. Its place and its addresses are still to come.
func (s *Service) again() *Service {
	next := *s
	return &next
}

// tagsBefore goes through the tag services of the view before, whoever asks in the order of their names.
type tagsBefore []*Service

// find returns the service of that name if it was made of these inbounds and nothing else, or nil.
func (t *tagsBefore) find(name string, list []*inbound) *Service {
	for len(*t) > 0 && (*t)[0].ID.Kind == KindTag && (*t)[0].Tag < name {
		*t = (*t)[1:]
	}
	if len(*t) == 0 || (*t)[0].ID.Kind != KindTag || (*t)[0].Tag != name || !(*t)[0].madeOf(list) {
		return nil
	}
	return (*t)[0]
}

// namesStand reports whether the services are those of the view before as far as their names depend on them.
func (v *View) namesStand() bool {
	last := v.steady()
	return last != nil && last.IPv6 == v.IPv6 && slices.EqualFunc(v.services, last.services, func(a, b *Service) bool {
		return a.ID == b.ID && a.res == b.res && a.Resource.Name == b.Resource.Name && a.VIP == b.VIP && a.VIP6 == b.VIP6
	})
}
