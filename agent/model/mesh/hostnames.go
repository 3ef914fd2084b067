package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Bounds of the names of a mesh. What goes beyond them is dropped, with a warning.
const (
	maxNamesOfService = 32      // that generators give to one service
	maxNames          = 200_000 // of all services
)

// Origin says where a service has a hostname from.
type Origin string

// Origins of hostnames. Of two services that want one name, the one whose origin stands first here
// has it; of two with one origin, that of the first generator, then the first service, by name. A
// name that an operator gave is therefore never taken by a tag that some dataplane carries.
const (
	OriginStatus    Origin = "status"    // the status of the resource
	OriginGenerator Origin = "generator" // a HostnameGenerator
	OriginVirtual   Origin = "virtual"   // a VirtualOutbound
	OriginTag       Origin = "tag"       // the kuma.io/service tag, as SERVICE.mesh
	OriginPolicy    Origin = "policy"    // a policy about a name outside of the mesh
)

// Hostname is a name by which workloads find a service. Every name of a mesh has one owner.
type Hostname struct {
	Name      string       // lower case, no dot at the end
	Kind      string       // of the service
	Resource  resource.Key // the service resource; zero for tag services
	Tag       string       // value of kuma.io/service, tag services only
	VIPs      []netip.Addr // of the service at which proxies listen, IPv4 first; empty when it has none
	Zone      string       // of the service, "" when it is of none
	Origin    Origin
	Generator resource.Key // of OriginGenerator and OriginVirtual
	Ports     []uint32     // at which proxies listen; of OriginVirtual alone: others have those of their service
	Contested bool         // another service wants the name too, and does not have it
}

// Reasons of a [HostnameStatus].
const (
	HostnameGenerated  = "Generated"
	HostnameCollision  = "Collision"     // another service has the name
	HostnameTemplate   = "TemplateError" // the template asks for what the service does not have
	HostnameInvalid    = "InvalidName"   // the template gives what is no DNS name
	HostnameOutOfRange = "LimitReached"  // the service, or the mesh, has too many names
)

// HostnameStatus is what became of one name that a service was to have.
type HostnameStatus struct {
	Hostname  string // "" when the template gives none
	Origin    Origin
	Generator resource.Key // of OriginGenerator
	Generated bool         // the service has the name
	Reason    string
	Message   string // for people: why not, and what to do; "" when Generated
}

// Hostnames returns every name of the mesh, sorted. Views share the list while nothing of it
// changes; it must not be changed.
func (v *View) Hostnames() []Hostname { return v.names.list }

// Generators returns the HostnameGenerators that names were made by. The slice must not be changed.
func (v *View) Generators() []*resource.Resource { return v.names.generators }

// HostnamesOf returns what became of every name that a service was to have: that of its status
// first, then those of generators in their order. The ports of a service resource have the same
// names. The slice must not be changed.
func (v *View) HostnamesOf(s *Service) []HostnameStatus { return v.names.status[s.key()] }

// named is a service as far as names depend on it.
type named struct {
	serviceKey
	resource resource.Key
	res      *resource.Resource // nil for tag services and those that are made of tags
	labels   map[string]string
	vips     [2]netip.Addr
	host     *virtualHost // nil for services
}

// nameTable is the names of a mesh, and what they were made of.
type nameTable struct {
	zone       string
	services   []named // sorted
	hosts      []named // that VirtualOutbounds make, sorted
	generators []*resource.Resource

	list     []Hostname // sorted by name
	status   map[serviceKey][]HostnameStatus
	warnings []Warning
}

// nameServices gives services their names, or takes over those of the previous view when nothing
// differs that they depend on.
func (v *View) nameServices(generators []*resource.Resource) {
	if v.sameNames() && slices.EqualFunc(v.prev.names.generators, generators, sameResource) {
		v.names = v.prev.names
	} else {
		t := &nameTable{zone: v.Zone, services: v.nameable(), generators: generators}
		if v.Spec.ServicesMode() != resource.MeshServicesExclusive { // else nothing listens for them
			for i := range v.hosts {
				t.hosts = append(t.hosts, v.hosts[i].named(v.IPv6))
			}
		}
		if v.prev != nil && v.prev.names.sameInput(t) {
			t = v.prev.names
		} else {
			v.makeNames(t)
		}
		v.names = t
	}
	v.Warnings = append(v.Warnings, v.names.warnings...)
}

// nameable lists the services that may have names.
func (v *View) nameable() []named {
	out := make([]named, 0, len(v.services))
	for _, s := range v.services {
		k := s.key()
		switch {
		case len(out) > 0 && out[len(out)-1].serviceKey == k: // another port
			continue
		case s.ID.Kind == KindTag && v.Spec.ServicesMode() == resource.MeshServicesExclusive:
			continue // nothing listens for it
		}
		n := named{serviceKey: k, resource: s.Resource, res: s.res, labels: s.Labels, vips: [2]netip.Addr{s.VIP}}
		if v.IPv6 {
			n.vips[1] = s.VIP6
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b named) int { return a.compare(b.serviceKey) })
	return slices.CompactFunc(out, func(a, b named) bool { return a.serviceKey == b.serviceKey })
}

// sameInput reports whether another table would come out the same.
func (t *nameTable) sameInput(o *nameTable) bool {
	return t.zone == o.zone && slices.EqualFunc(t.generators, o.generators, sameResource) &&
		slices.EqualFunc(t.hosts, o.hosts, func(a, b named) bool { return a.vips == b.vips && a.host.equal(b.host) }) &&
		slices.EqualFunc(t.services, o.services, func(a, b named) bool {
			return a.serviceKey == b.serviceKey && a.vips == b.vips && sameResource(a.res, b.res)
		})
}

// sameResource reports whether two resources, nil for none, say the same.
func sameResource(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil && a.Key == b.Key && a.Digest == b.Digest
}

// find returns the owner of a name.
func (t *nameTable) find(name string) *Hostname {
	i, ok := slices.BinarySearchFunc(t.list, name, func(h Hostname, name string) int {
		return strings.Compare(h.Name, name)
	})
	if !ok {
		return nil
	}
	return &t.list[i]
}

// Hostname returns the name that a lookup asks for, in any case and with or without a dot at the
// end; nil when the mesh has none of that name. It must not be changed.
func (v *View) Hostname(name string) *Hostname {
	return v.names.find(strings.ToLower(strings.TrimSuffix(name, ".")))
}
