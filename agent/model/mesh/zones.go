package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxInstances limits the weight of one endpoint. Envoy accepts a sum of at most 2^32-1 in one
// locality, which allows 65,536 endpoints of this weight.
const maxInstances = 1<<16 - 1

// ingress is a ZoneIngress of another zone as proxies of this zone reach it.
type ingress struct {
	zone    string
	at      netip.AddrPort
	address string // of at
	res     *resource.Resource
	spec    *resource.ZoneIngress
}

// zones holds the other zones that are reached through their ingresses. Endpoints of any other zone
// are reached directly.
type zones struct {
	behind   map[string][]*ingress // by zone, sorted by name; empty if no ingress is usable
	tags     map[string][]Endpoint // by value of kuma.io/service
	from     []*resource.Resource  // the ZoneIngress resources; nil in a flat network
	warnings []Warning
}

func (z *zones) warnf(k resource.Key, format string, args ...any) {
	z.warnings = append(z.warnings, Warning{Resource: k, Reason: fmt.Sprintf(format, args...)})
}

// indexZones indexes the ingresses. A zone with an ingress is never reached directly, even if the
// ingress is unusable; in a flat network every zone is. The zones of the previous view are reused
// if all their inputs are unchanged.
func (v *View) indexZones(list []*resource.Resource, flat bool) {
	if flat {
		list = nil
	}
	if p := v.prev; p != nil && p.mesh == v.mesh && p.Spec == v.Spec && p.plainClients == v.plainClients &&
		p.Zone == v.Zone && slices.Equal(p.zones.from, list) && slices.Equal(p.dataplanes, v.dataplanes) &&
		maps.Equal(p.states, v.states) {
		v.zones = p.zones
		return
	}
	v.zones.from = list
	at := map[netip.AddrPort]*ingress{}
	var direct map[netip.AddrPort]resource.Key
	for r, spec := range resource.Specs[*resource.ZoneIngress](list) {
		if spec.Zone == "" || spec.Zone == v.Zone {
			continue
		}
		if v.zones.behind == nil {
			v.zones.behind = map[string][]*ingress{}
			direct = v.inboundAddresses()
		}
		if _, ok := v.zones.behind[spec.Zone]; !ok {
			v.zones.behind[spec.Zone] = nil // the zone is behind an ingress even if this one is unusable
		}
		host, port := spec.Advertised()
		addr, err := netip.ParseAddr(host)
		if err != nil || port == 0 || port > 65535 {
			v.zones.warnf(r.Key, "the advertised address %q, port %d, is not an IP address with a port: no "+
				"traffic goes through it; set networking.advertisedAddress and advertisedPort", host, port)
			continue
		}
		in := &ingress{zone: spec.Zone, at: netip.AddrPortFrom(addr.Unmap(), uint16(port)), res: r, spec: spec}
		in.address = in.at.Addr().String()
		if other := at[in.at]; other != nil {
			v.zones.warnf(r.Key, "the advertised address %s is also that of %s: no traffic goes through this ingress",
				in.at, other.res.Key)
			continue
		}
		if dp, ok := direct[in.at]; ok {
			v.zones.warnf(r.Key,
				"the advertised address %s is also that of an inbound of %s: no traffic goes through this ingress", in.at, dp)
			continue
		}
		at[in.at] = in
		v.zones.behind[in.zone] = append(v.zones.behind[in.zone], in)
	}
}

// inboundAddresses returns the addresses of inbounds that are reached directly.
func (v *View) inboundAddresses() map[netip.AddrPort]resource.Key {
	out := map[netip.AddrPort]resource.Key{}
	for d, spec := range resource.Specs[*resource.Dataplane](v.dataplanes) {
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			if a, err := netip.ParseAddr(cmp.Or(spec.Networking.AdvertisedAddress, in.Address, spec.Networking.Address)); err ==
				nil {
				out[netip.AddrPortFrom(a.Unmap(), uint16(in.Port))] = d.Key
			}
		}
	}
	return out
}

// behindIngress reports whether endpoints of a zone are reached through its ingresses.
func (v *View) behindIngress(zone string) bool {
	_, ok := v.zones.behind[zone]
	return ok
}

// endpoint returns the ingress as an endpoint.
func (in *ingress) endpoint(tags map[string]string, instances uint32, index int) Endpoint {
	return Endpoint{
		Address: in.address, Port: uint32(in.at.Port()), Zone: in.zone, Tags: tags,
		Weight: min(max(instances, 1), maxInstances), Resource: in.res, Index: index,
	}
}

// addOffered adds the tag services that the ingresses lead to: those that an ingress lists, or
// those of the dataplanes in its zone if it lists none.
func (v *View) addOffered(ix *inboundIndex) {
	if len(v.zones.behind) > 0 && v.zones.tags == nil {
		v.zones.tags = map[string][]Endpoint{}
		var instances map[string]map[string]*tally
		for _, zone := range sortedKeys(v.zones.behind) {
			for _, in := range v.zones.behind[zone] {
				if len(in.spec.AvailableServices) > 0 {
					v.addListed(in)
					continue
				}
				if instances == nil {
					instances = tallyZones(ix)
				}
				for service, t := range instances[zone] {
					for i, tags := range t.tags {
						v.zones.tags[service] = append(v.zones.tags[service], in.endpoint(tags, t.count[i], -1))
					}
				}
			}
		}
		v.warnCrossing()
		if prev := v.reusable(); prev != nil { // so that services with unchanged endpoints are reused
			for service, list := range v.zones.tags {
				if old := prev.zones.tags[service]; slices.EqualFunc(old, list, equalEndpoints) {
					v.zones.tags[service] = old
				}
			}
		}
	}
	v.Warnings = append(v.Warnings, v.zones.warnings...)
}

// tally counts instances by their tags, in the order of first occurrence.
type tally struct {
	tags  []map[string]string
	count []uint32
	at    map[string]int // index by tags
}

// tallyZones counts the instances behind ingresses, by zone and service.
func tallyZones(ix *inboundIndex) map[string]map[string]*tally {
	out := map[string]map[string]*tally{}
	var keys []string
	var key []byte
	for _, in := range ix.all {
		if !in.behind || !in.ready || in.service == "" {
			continue
		}
		services := out[in.ep.Zone]
		if services == nil {
			services = map[string]*tally{}
			out[in.ep.Zone] = services
		}
		t := services[in.service]
		if t == nil {
			t = &tally{at: map[string]int{}}
			services[in.service] = t
		}
		keys = slices.AppendSeq(keys[:0], maps.Keys(in.ep.Tags))
		slices.Sort(keys)
		key = key[:0]
		for _, k := range keys {
			key = append(append(append(append(key, k...), 0), in.ep.Tags[k]...), 0)
		}
		i, ok := t.at[string(key)]
		if !ok {
			i = len(t.tags)
			t.at[string(key)] = i
			t.tags, t.count = append(t.tags, in.ep.Tags), append(t.count, 0)
		}
		t.count[i]++
	}
	return out
}

// addListed adds the services of this mesh that an ingress lists.
func (v *View) addListed(in *ingress) {
	external, otherZone, capped := 0, 0, 0
	for i := range in.spec.AvailableServices {
		s := &in.spec.AvailableServices[i]
		name := s.Tags[resource.TagService]
		switch {
		case cmp.Or(s.Mesh, resource.DefaultMesh) != v.Name || name == "":
			continue
		case s.ExternalService:
			external++
			continue
		case s.Tags[resource.TagZone] != "" && s.Tags[resource.TagZone] != in.zone:
			otherZone++
			continue
		case s.Instances > maxInstances:
			capped++
		}
		v.zones.tags[name] = append(v.zones.tags[name], in.endpoint(s.Tags, s.Instances, i))
	}
	for _, w := range []struct {
		n    int
		what string
	}{
		{external, "services outside the mesh, which an ingress cannot reach: they are ignored"},
		{otherZone, "services of another zone: they are ignored"},
		{capped, "services with more than 65535 instances: 65535 are counted"},
	} {
		if w.n > 0 {
			v.zones.warnf(in.res.Key, "availableServices lists for mesh %s %d %s", v.Name, w.n, w.what)
		}
	}
}

// crosses reports whether an ingress can route traffic to a service: it needs TLS with a server
// name.
func (v *View) crosses(s *Service) bool { return !s.External && v.UsesTLS(s) }

// UsesTLS reports whether proxies use mutual TLS towards a service of the mesh. They also do in
// permissive mode, so that permissions apply between proxies. They do not if the MeshService's
// status says that it is not ready, or while mutual TLS is being switched.
func (v *View) UsesTLS(s *Service) bool {
	b := v.Spec.MTLSEnabled()
	return b != nil && (!b.Permissive() || !v.plainClients && !s.TLSNotReady)
}

// warnCrossing warns about a mesh whose traffic cannot cross zones.
func (v *View) warnCrossing() {
	names := strings.Join(sortedKeys(v.zones.behind), ", ")
	if v.Spec.MTLSEnabled() == nil {
		v.zones.warnf(v.mesh.Key, "the zones %s are behind a ZoneIngress, which routes by TLS server name, "+
			"but the mesh has no mTLS: nothing there is reachable; enable mtls, or set mesh.flatNetwork in the agent's config "+
			"if the network is flat", names)
	}
}

// ofItsZone filters the inbounds that a MeshService selects to the zone in its label if zones are
// behind ingresses, because the ingresses of other zones do not know the service.
func (v *View) ofItsZone(r *resource.Resource, selected []*inbound) []*inbound {
	zone := r.Labels[resource.LabelZone]
	if zone == "" || len(v.zones.behind) == 0 {
		return selected
	}
	return filter(selected, func(in *inbound) bool { return in.ep.Zone == zone })
}

// throughIngresses adds the inbounds behind ingresses to a service resource. A service of another
// zone without known inbounds gets an endpoint for each ingress of that zone.
func (v *View) throughIngresses(s *Service, selected []*inbound, match func(*inbound) bool) {
	if len(v.zones.behind) == 0 || !v.crosses(s) {
		return
	}
	count := map[string]uint32{}
	known := false
	for _, in := range selected {
		known = known || in.behind
		if in.behind && in.ready && match(in) {
			count[in.ep.Zone]++
		}
	}
	if home := s.Labels[resource.LabelZone]; !known && !s.Derived && v.behindIngress(home) {
		count[home] = 1
	}
	var list []Endpoint
	for _, zone := range sortedKeys(count) {
		for _, in := range v.zones.behind[zone] {
			list = append(list, in.endpoint(nil, count[zone], -1))
		}
	}
	v.addBeyond(s, list)
}

// Relay reports whether an endpoint is the ingress of another zone or an egress of this zone. Its
// weight is the number of instances behind it.
func (e *Endpoint) Relay() bool {
	return e.Resource != nil && (e.Resource.Kind == "ZoneIngress" || e.Resource.Kind == "ZoneEgress")
}

// addBeyond adds the endpoints behind the ingresses of other zones to a service. If traffic leaves
// through the egresses of this zone, each egress represents all of them.
func (v *View) addBeyond(s *Service, list []Endpoint) {
	switch {
	case len(list) == 0:
		return
	case !v.ThroughEgress():
		s.Endpoints.List = append(s.Endpoints.List, list...)
		return
	}
	s.Beyond = &EndpointSet{List: list}
	for i := range v.egress.List {
		at := &v.egress.List[i]
		for _, e := range list {
			e.Address, e.Port, e.Resource, e.Index = at.Address, at.Port, at.Resource, -1
			s.Endpoints.List = append(s.Endpoints.List, e)
		}
	}
}

// Distinct merges endpoints of the same ingress or egress, because Envoy accepts one endpoint per
// address. The result has the sum of their instances, and the zone and tags that all have in
// common. Without duplicates it returns the list itself.
func Distinct(list []Endpoint) []Endpoint {
	type hostPort struct {
		host string
		port uint32
	}
	at := map[hostPort]int{}
	var out []Endpoint
	for i := range list {
		e := &list[i]
		if !e.Relay() {
			if out != nil {
				out = append(out, *e)
			}
			continue
		}
		if out == nil {
			out = append(make([]Endpoint, 0, len(list)), list[:i]...)
		}
		p := hostPort{e.Address, e.Port}
		n, ok := at[p]
		if !ok {
			at[p] = len(out)
			out = append(out, *e)
			continue
		}
		have := &out[n]
		have.Weight = min(have.Weight+e.Weight, maxInstances)
		common := map[string]string{}
		for k, val := range have.Tags {
			if e.Tags[k] == val {
				common[k] = val
			}
		}
		have.Tags = common
		if have.Zone != e.Zone {
			have.Zone = ""
		}
	}
	if out == nil {
		return list
	}
	return out
}
