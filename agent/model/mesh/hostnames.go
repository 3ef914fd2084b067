package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Limits of a mesh's hostnames. Names beyond them are dropped, with a warning.
const (
	maxNamesOfService = 32      // that generators give one service
	maxNames          = 200_000 // of all services
)

// Origin names the source of a hostname.
type Origin string

// Origins of hostnames, in order of precedence. If two services claim one name, the earlier origin
// wins. With equal origins, the first generator wins, and then the first service by name. So a tag
// of some dataplane never takes a name that an operator assigned.
const (
	OriginStatus    Origin = "status"    // the status of the resource
	OriginGenerator Origin = "generator" // a HostnameGenerator
	OriginVirtual   Origin = "virtual"   // a VirtualOutbound
	OriginTag       Origin = "tag"       // the kuma.io/service tag, as SERVICE.mesh
	OriginHost      Origin = "host"      // the host of an ExternalService, for workloads whose proxies serve it
	OriginPolicy    Origin = "policy"    // a policy for a name outside the mesh
)

// Hostname is a name by which workloads find a service. Each name of a mesh has one owner.
type Hostname struct {
	// Host has the name in lower case without the final dot, and the virtual addresses that proxies
	// listen on, IPv4 first; it may have none. Its ports are set only for OriginVirtual and
	// OriginHost: other names use the ports of their service.
	table.Host
	Kind      string       // of the service
	Resource  resource.Key // the service resource; zero for tag services
	Tag       string       // value of kuma.io/service; set only for tag services
	Zone      string       // zone of the service; may be ""
	Origin    Origin
	Generator resource.Key // for OriginGenerator, OriginVirtual, and OriginHost
	Contested bool         // another service claims the same name
}

// Reasons of a [HostnameStatus].
const (
	HostnameGenerated  = "Generated"
	HostnameCollision  = "Collision"     // another service owns the name
	HostnameTemplate   = "TemplateError" // the template uses a field that the service lacks
	HostnameInvalid    = "InvalidName"   // the template yields an invalid DNS name
	HostnameOutOfRange = "LimitReached"  // the service, or the mesh, has too many names
)

// HostnameStatus is the result for one name that a service claims.
type HostnameStatus struct {
	Hostname  string // "" if the template yields none
	Origin    Origin
	Generator resource.Key // for OriginGenerator
	Generated bool         // the service owns the name
	Reason    string
	Message   string // the reason and the remedy, for people; "" if Generated
}

// Hostnames returns every name of the mesh, sorted. Views share the list until it changes. Callers
// must not modify it.
func (v *View) Hostnames() []Hostname { return v.names.list }

// Generators returns the HostnameGenerators that apply here, in order. Callers must not modify the
// slice.
func (v *View) Generators() []*resource.Resource { return v.names.generators }

// HostnamesOf returns the result for each name that a service claims: first the names in its
// status, then those of generators in their order. All ports of a service resource have the same
// names. Callers must not modify the slice.
func (v *View) HostnamesOf(s *Service) []HostnameStatus { return v.names.status[s.key()] }

// named holds the properties of a service that its names depend on.
type named struct {
	virtualip.Owner
	resource resource.Key
	res      *resource.Resource // nil for tag services and services derived from tags
	labels   map[string]string
	vips     [2]netip.Addr
	host     *virtualHost // nil for services
}

// nameTable holds the names of a mesh and the inputs that they were computed from.
type nameTable struct {
	zone       string
	services   []named // sorted
	hosts      []named // from VirtualOutbounds and ExternalServices, sorted
	generators []*resource.Resource

	list     []Hostname // sorted by name
	status   map[virtualip.Owner][]HostnameStatus
	warnings []Warning
}

// nameServices computes the names of all services. It reuses the names of the previous view if none
// of their inputs changed.
func (v *View) nameServices(generators []*resource.Resource) {
	if v.sameNames() && slices.EqualFunc(v.prev.names.generators, generators, sameResource) {
		v.names = v.prev.names
	} else {
		t := &nameTable{zone: v.Zone, services: v.nameable(), generators: generators}
		if v.Spec.ServicesMode() != resource.MeshServicesExclusive { // in exclusive mode no proxy listens for them
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

// nameable returns the services that may have names.
func (v *View) nameable() []named {
	out := make([]named, 0, len(v.services))
	for _, s := range v.services {
		k := s.key()
		switch {
		case len(out) > 0 && out[len(out)-1].Owner == k: // another port of the same service
			continue
		case s.ID.Kind == KindTag && v.Spec.ServicesMode() == resource.MeshServicesExclusive:
			continue // no proxy listens for it
		}
		n := named{Owner: k, resource: s.Resource, res: s.res, labels: s.Labels, vips: [2]netip.Addr{s.VIP}}
		if v.IPv6 {
			n.vips[1] = s.VIP6
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b named) int { return a.Compare(b.Owner) })
	return slices.CompactFunc(out, func(a, b named) bool { return a.Owner == b.Owner })
}

// sameInput reports whether both tables have the same inputs, and so the same names.
func (t *nameTable) sameInput(o *nameTable) bool {
	return t.zone == o.zone && slices.EqualFunc(t.generators, o.generators, sameResource) &&
		slices.EqualFunc(t.hosts, o.hosts, func(a, b named) bool { return a.vips == b.vips && a.host.equal(b.host) }) &&
		slices.EqualFunc(t.services, o.services, func(a, b named) bool {
			return a.Owner == b.Owner && a.vips == b.vips && sameResource(a.res, b.res)
		})
}

// sameResource reports whether two resources have the same content. Either may be nil.
func sameResource(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil && a.Key == b.Key && a.Digest == b.Digest
}

// find returns the entry of a name, or nil.
func (t *nameTable) find(name string) *Hostname {
	i, ok := slices.BinarySearchFunc(t.list, name, func(h Hostname, name string) int {
		return strings.Compare(h.Name, name)
	})
	if !ok {
		return nil
	}
	return &t.list[i]
}

// Hostname returns the entry for a name in any case, with or without the final dot, or nil. Callers
// must not modify it.
func (v *View) Hostname(name string) *Hostname {
	return v.names.find(strings.ToLower(strings.TrimSuffix(name, ".")))
}
