// Package mesh derives an immutable view of one mesh from a set of resources: its services, their
// endpoints and virtual addresses, and the services that each proxy may reach. It is pure: the same
// set yields the same view.
package mesh

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// DefaultZone is the zone of a node without a configured zone.
const DefaultZone = "default"

// Options holds the facts about the node that a view depends on. The zero value is safe.
type Options struct {
	Zone string // zone of this node; "" means DefaultZone
	VIPs virtualip.Options
	// FlatNetwork makes proxies reach dataplanes of other zones directly, even if their zone has an
	// ingress.
	FlatNetwork bool
	// Sidecars holds the reachability that proxies announce in their annotations, by dataplane
	// name.
	Sidecars map[string]*resource.Reach
	// Transition is set while the mutual TLS of the mesh is being switched on or off; else nil.
	Transition *Transition
	// TLS is set while the TLS versions or ciphers of the mesh change in steps; see [View.TLS].
	TLS *TLSRange
	// Resolver is true if the node has a resolver, which answers hosts of ExternalServices with
	// virtual addresses. Proxies of the node then ask for real addresses; see [View.AskedHosts].
	Resolver bool
}

// Transition describes a mesh whose mutual TLS is being switched on or off.
type Transition struct {
	Spec         *resource.Mesh // the Mesh in the meantime
	Both         bool           // inbounds accept TLS and plain text, regardless of policies
	PlainClients bool           // proxies send each other plain text
}

// View is one mesh in the form from which proxy configs are generated.
type View struct {
	Name string
	Zone string
	Spec *resource.Mesh

	// Warnings are about resources that are not used in full. Each names its resource.
	Warnings []Warning
	// Catalog is a hash of all inputs of listeners, clusters, and routes. Endpoints that proxies
	// get over EDS are not part of it.
	Catalog [32]byte
	// Common is a hash of the inputs that all proxies of the mesh share, except the services.
	Common [32]byte
	// IPv6 reports whether proxies also listen on the IPv6 addresses of services. If not, a
	// resolver must not return these addresses.
	IPv6 bool

	// WebSockets reports whether requests between proxies of the mesh may become WebSockets:
	// inbounds accept upgrades over HTTP/2.
	WebSockets bool
	// Switching reports whether the mutual TLS of the mesh is being switched: inbounds accept plain
	// text too, regardless of policies.
	Switching bool
	// TLS is the range of versions and ciphers that proxies use in addition to those of their
	// policies while these change in steps; else nil.
	TLS *TLSRange
	// Domains are the names of [virtualip.Options]. Callers must not modify them.
	Domains []string
	// Unaddressed reports whether a service has no virtual address yet; see [virtualip.Options].
	Unaddressed bool

	// ExternalHosts are the hosts of ExternalServices with virtual addresses, sorted. AskedHosts are
	// those for whose real addresses proxies ask by [table.ProxySpelling]: all, with
	// [Options.Resolver].
	ExternalHosts, AskedHosts []string

	plainClients bool // proxies send each other plain text

	vips       *virtualip.Set
	ranges     virtualip.Ranges
	virtual    [2][]netip.Prefix     // ranges of virtual addresses
	domains    []virtualip.Addresses // addresses of Domains
	hosts      []virtualHost         // sorted by name
	mesh       *resource.Resource
	dataplanes []*resource.Resource        // sorted by name
	services   []*Service                  // sorted by kind, then name
	ports      map[resource.Key][]*Service // the ports of each service resource, by its key
	egress     *EndpointSet                // the egresses of the zone
	names      *nameTable
	zones      zones
	prev       *View // the previous view; set only during Build

	sidecars sidecars

	states       map[string]*resource.EndpointState // by dataplane
	inbounds     *inboundIndex
	meshServices []*resource.Resource // sorted by name
	gateways     map[string]bool      // values of kuma.io/service of gateways
}

// Warning is a message for the owner of a resource.
type Warning struct {
	Resource resource.Key `json:"resource"`
	Reason   string       `json:"reason"`
}

// Build derives the view of one mesh. The new view shares the parts of prev whose inputs did not
// change; prev may be nil. Build fails if the set has no mesh of that name.
func Build(set *resource.Set, name string, o Options, prev *View) (*View, error) {
	if o.Zone == "" {
		o.Zone = DefaultZone
	}
	m := set.Get(resource.Key{Kind: "Mesh", Name: name})
	if m == nil {
		return nil, fmt.Errorf("mesh %q does not exist: create it with a resource of type Mesh and that name", name)
	}
	spec, ok := m.Spec.(*resource.Mesh)
	if !ok {
		return nil, fmt.Errorf("mesh %q: unexpected spec %T", name, m.Spec)
	}
	v := &View{
		Name: name, Zone: o.Zone, Spec: spec, mesh: m,
		dataplanes: set.InMesh("Dataplane", name),
		prev:       prev, TLS: o.TLS,

		ranges: o.VIPs.Ranges,
	}
	if prev != nil && prev.ranges == v.ranges {
		v.virtual = prev.virtual
	} else {
		v.virtual = virtualRanges(v.ranges.Prefixes())
	}
	if t := o.Transition; t != nil {
		v.Spec, v.Switching, v.plainClients = t.Spec, t.Both, t.PlainClients
	}
	if prev != nil {
		v.services = make([]*Service, 0, len(prev.services)+1)
		v.ports = make(map[resource.Key][]*Service, len(prev.ports))
	} else {
		v.ports = map[resource.Key][]*Service{}
	}
	defer func() { v.prev = nil }()
	v.egress = v.egresses(set, prev)
	v.noteEgress()
	v.warnIgnored(m.Key, spec)
	v.WebSockets = v.webSockets()
	v.dataplanes = v.restrict(v.dataplanes, o.Sidecars, prev)
	v.indexStates(set.InMesh(resource.KindEndpointState, name))
	v.indexZones(set.Kind("ZoneIngress"), o.FlatNetwork)
	ix := indexInbounds(v)
	v.inbounds = ix
	defer func() { ix.changed, ix.follows = nil, false }()
	v.addOffered(ix)
	v.addTagServices(ix, set.InMesh("ExternalService", name))
	v.addMeshServices(ix, set.InMesh("MeshService", name))
	v.indexNames(set.InMesh("MeshService", name))
	v.addMeshExternalServices(set.InMesh("MeshExternalService", name))
	v.addMultiZoneServices(set.InMesh("MeshMultiZoneService", name))
	v.sortServices()
	v.dropTwins()
	for i, s := range v.services {
		s.Index = i
	}
	v.addVirtualHosts(set.InMesh("VirtualOutbound", name), set.InMesh("ExternalService", name))
	v.addExternalHosts(set.InMesh("ExternalService", name), o.VIPs.Domains)
	if o.Resolver {
		v.AskedHosts = v.ExternalHosts
	}
	v.assignVIPs(&o.VIPs)
	v.nameServices(set.Kind("HostnameGenerator"))
	v.reuse(prev)
	v.Catalog, v.Common = v.hash(), v.common(o.Transition)
	return v, nil
}

// Dataplane returns the dataplane of that name, or nil.
func (v *View) Dataplane(name string) *resource.Resource {
	return findByName(v.dataplanes, name)
}

// findByName returns the resource of that name in a list sorted by name, or nil.
func findByName(list []*resource.Resource, name string) *resource.Resource {
	i, ok := slices.BinarySearchFunc(list, name, func(r *resource.Resource, name string) int {
		return strings.Compare(r.Name, name)
	})
	if !ok {
		return nil
	}
	return list[i]
}

// Dataplanes returns all dataplanes of the mesh, sorted by name. Callers must not modify the slice.
func (v *View) Dataplanes() []*resource.Resource { return v.dataplanes }

// Services returns all services, sorted by kind and name. Callers must not modify the slice.
func (v *View) Services() []*Service { return v.services }

// Service returns a service, or nil.
func (v *View) Service(id ServiceID) *Service {
	i, ok := slices.BinarySearchFunc(v.services, id, func(s *Service, id ServiceID) int { return s.ID.compare(id) })
	if !ok {
		return nil
	}
	return v.services[i]
}

func (v *View) warnf(k resource.Key, format string, args ...any) {
	v.Warnings = append(v.Warnings, Warning{Resource: k, Reason: fmt.Sprintf(format, args...)})
}

func (v *View) add(s *Service) {
	v.services = append(v.services, s)
	if s.Resource != (resource.Key{}) {
		v.ports[s.Resource] = append(v.ports[s.Resource], s)
	}
}

// reuse replaces endpoint sets that equal those of the previous view, so that equal pointers show
// that nothing changed.
func (v *View) reuse(prev *View) {
	if prev == nil {
		return
	}
	i := 0
	for _, s := range v.services { // both lists are sorted
		for i < len(prev.services) && prev.services[i].ID.compare(s.ID) < 0 {
			i++
		}
		if i < len(prev.services) && prev.services[i].ID == s.ID && prev.services[i].Endpoints.equal(s.Endpoints) {
			s.Endpoints = prev.services[i].Endpoints
		}
	}
}

// hash covers the inputs of proxy configs except EDS and the proxy's own dataplane.
func (v *View) hash() [32]byte {
	h := sha256.New()
	var b []byte
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	str(v.Name)
	str(v.Zone)
	b = append(b, v.mesh.Digest[:]...)
	for _, is := range [...]bool{len(v.egress.List) > 0, v.IPv6, v.Switching, v.plainClients} {
		b = append(b, 0)
		if is {
			b[len(b)-1] = 1
		}
	}
	addresses := func(list virtualip.Addresses) {
		for _, a := range list {
			b = append(b, byte(a.BitLen()))
			b = append(b, a.AsSlice()...)
		}
	}
	for i, name := range v.Domains {
		str(name)
		addresses(v.domains[i])
	}
	for i := range v.hosts {
		str(v.hosts[i].name)
		b = strconv.AppendBool(b, v.hosts[i].external)
		addresses(v.hosts[i].addr)
		for _, p := range v.hosts[i].ports {
			b = binary.AppendUvarint(b, uint64(p.number))
			str(tagText(p.tags))
		}
	}
	for _, s := range v.services {
		str(s.ID.Kind)
		str(s.ID.Name)
		str(s.Tag)
		b = binary.AppendUvarint(b, uint64(s.Port))
		str(string(s.Protocol))
		for _, vip := range [...]netip.Addr{s.VIP, s.VIP6} {
			b = append(b, byte(vip.BitLen()))
			b = append(b, vip.AsSlice()...)
		}
		var digest resource.Digest
		if s.res != nil {
			digest = s.res.Digest
		}
		b = append(b, digest[:]...)
		for _, id := range s.Identities {
			str(id)
		}
		for _, a := range s.Aliases {
			str(a.String())
		}
		if s.External {
			for i := range s.Endpoints.List {
				e := &s.Endpoints.List[i]
				b = append(b, e.Resource.Digest[:]...)
				b = binary.AppendUvarint(b, uint64(e.Index))
			}
		}
		if len(b) > 4096 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return [32]byte(h.Sum(nil))
}

// common hashes the Mesh, in its current step of an mTLS switch, and the zone.
func (v *View) common(t *Transition) [32]byte {
	var buf [512]byte
	b := append(buf[:0], v.mesh.Digest[:]...)
	b = append(append(append(b, v.Name...), 0), v.Zone...)
	for _, is := range [...]bool{v.WebSockets, v.Switching, v.plainClients, len(v.egress.List) > 0} {
		b = strconv.AppendBool(append(b, 0), is)
	}
	if v.TLS != nil {
		b = append(append(b, 0), v.TLS.String()...)
	}
	for _, list := range v.virtual {
		for _, p := range list {
			b = p.AppendTo(append(b, ' '))
		}
	}
	for _, host := range v.AskedHosts {
		b = append(append(b, 0), host...)
	}
	if t != nil {
		spec, err := json.Marshal(v.Spec)
		b = fmt.Appendf(b, " %s %v", spec, err)
	}
	return sha256.Sum256(b)
}

// TagString formats tags for the x-kuma-tags header: &key=value,value&&key=value&, with sorted keys
// and values.
func TagString(tags map[string][]string) string {
	var b strings.Builder
	for _, k := range sortedKeys(tags) {
		b.WriteByte('&')
		b.WriteString(k)
		b.WriteByte('=')
		b.WriteString(strings.Join(tags[k], ","))
		b.WriteByte('&')
	}
	return b.String()
}
