package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// tagDomain is what the names of tag services end with, as in the reference.
const tagDomain = ".mesh"

// nameMaker gives names away. Whoever asks first has a name.
type nameMaker struct {
	v        *View
	t        *nameTable
	owner    map[string]int     // index in t.list
	tried    map[serviceKey]int // generators that selected a service
	lost     []collision
	failed   []failure
	overflow bool
}

// collision is a name that a service does not have because another one does.
type collision struct {
	name      string
	winner    int // index in the list while it is made
	loser     *named
	origin    Origin
	generator resource.Key
}

func (v *View) makeNames(t *nameTable) {
	m := &nameMaker{v: v, t: t, owner: make(map[string]int, len(t.services)), tried: map[serviceKey]int{}}
	t.list = make([]Hostname, 0, len(t.services)) // one for each, as with tags; a generator more makes it grow
	t.status = make(map[serviceKey][]HostnameStatus, len(t.services))
	m.fromStatus()
	m.fromGenerators()
	m.fromTags()
	for i := range t.services {
		s := &t.services[i]
		if n := m.tried[s.serviceKey]; n > maxNamesOfService {
			m.tell(s, HostnameStatus{Origin: OriginGenerator, Reason: HostnameOutOfRange, Message: fmt.Sprintf(
				"%d generators select the service, and the first %d count: select it by fewer", n, maxNamesOfService)})
		}
	}
	m.warn()
	slices.SortFunc(t.list, func(a, b Hostname) int { return strings.Compare(a.Name, b.Name) })
}

// claim gives a service a name, unless another one has it.
func (m *nameMaker) claim(s *named, name string, origin Origin, generator resource.Key) {
	st := HostnameStatus{Hostname: name, Origin: origin, Generator: generator}
	i, taken := m.owner[name]
	switch {
	case taken && keyOf(&m.t.list[i]) != s.serviceKey:
		h := &m.t.list[i]
		h.Contested = true
		m.lost = append(m.lost, collision{name, i, s, origin, generator})
		st.Reason, st.Message = HostnameCollision, fmt.Sprintf("the name belongs to %s, %s", describeService(h.Tag, h.Resource), describeOrigin(h.Origin, h.Generator))
	case !taken && len(m.t.list) >= maxNames:
		m.overflow = true
		st.Reason, st.Message = HostnameOutOfRange, fmt.Sprintf("the mesh has %d names already, which is the most", maxNames)
	default:
		st.Generated, st.Reason = true, HostnameGenerated
		if !taken {
			m.owner[name] = len(m.t.list)
			m.t.list = append(m.t.list, hostnameOf(s, name, origin, generator))
		}
	}
	m.tell(s, st)
}

func (m *nameMaker) tell(s *named, st HostnameStatus) {
	m.t.status[s.serviceKey] = append(m.t.status[s.serviceKey], st)
}

func hostnameOf(s *named, name string, origin Origin, generator resource.Key) Hostname {
	h := Hostname{Name: name, Kind: s.kind, Resource: s.resource, Zone: s.labels[resource.LabelZone], Origin: origin, Generator: generator}
	if s.kind == KindTag {
		h.Tag = s.name
	}
	h.VIPs = slices.DeleteFunc(slices.Clone(s.vips[:]), func(a netip.Addr) bool { return !a.IsValid() })
	return h
}

func keyOf(h *Hostname) serviceKey {
	if h.Kind == KindTag {
		return serviceKey{KindTag, h.Tag}
	}
	return serviceKey{h.Kind, h.Resource.Name}
}

// fromStatus takes the addresses that documents bring along.
func (m *nameMaker) fromStatus() {
	for i := range m.t.services {
		s := &m.t.services[i]
		for _, name := range statusNames(s.res) {
			if fold, reason := dnsName(name); reason == "" {
				m.claim(s, fold, OriginStatus, resource.Key{})
			}
		}
	}
}

// statusNames returns the hostnames in the status of a service resource. Decoding has checked them.
func statusNames(r *resource.Resource) []string {
	if r == nil {
		return nil
	}
	var st *resource.ServiceStatus
	switch spec := r.Spec.(type) {
	case *resource.MeshService:
		st = spec.Status
	case *resource.MeshExternalService:
		st = spec.Status
	case *resource.MeshMultiZoneService:
		st = spec.Status
	}
	if st == nil {
		return nil
	}
	out := make([]string, 0, len(st.Addresses))
	for _, a := range st.Addresses[:min(len(st.Addresses), maxNamesOfService)] {
		out = append(out, a.Hostname)
	}
	return out
}

// fromTags gives tag services their names: SERVICE.mesh, and the same with dots for underscores, as in the reference. The
// first form of all goes before the second of any.
func (m *nameMaker) fromTags() {
	n, _ := slices.BinarySearchFunc(m.t.services, serviceKey{kind: KindMeshExternalService}, func(s named, k serviceKey) int { return s.compare(k) })
	tags := m.t.services[:n] // no kind sorts before all kinds
	for i := range tags {
		m.fromTag(&tags[i], tags[i].name)
	}
	for i := range tags {
		if dotted := strings.ReplaceAll(tags[i].name, "_", "."); dotted != tags[i].name {
			m.fromTag(&tags[i], dotted)
		}
	}
}

func (m *nameMaker) fromTag(s *named, name string) {
	if fold, reason := dnsName(name + tagDomain); reason != "" {
		m.tell(s, HostnameStatus{Origin: OriginTag, Reason: HostnameInvalid, Message: reason})
	} else {
		m.claim(s, fold, OriginTag, resource.Key{})
	}
}
