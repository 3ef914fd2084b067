package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxInstances bounds the weight of one endpoint: Envoy takes at most 2^32-1 in one locality, and so 65,536 endpoints of
// this weight.
const maxInstances = 1<<16 - 1

// ingress is a ZoneIngress of another zone as proxies of this one reach it.
type ingress struct {
	zone string
	at   netip.AddrPort
	res  *resource.Resource
	spec *resource.ZoneIngress
}

// zones are the other zones that are reached through their ingresses. Endpoints of zones that are not among them are
// reached directly.
type zones struct {
	behind map[string][]*ingress // by zone, sorted by name; none where no ingress can be used
	tags   map[string][]Endpoint // by value of kuma.io/service
}

// indexZones finds the ingresses. A zone that has one, be it of no use, is not reached directly; in a flat network every
// zone is.
func (v *View) indexZones(list []*resource.Resource, flat bool) {
	if flat {
		return
	}
	at := map[netip.AddrPort]*ingress{}
	var direct map[netip.AddrPort]resource.Key
	for _, r := range list {
		spec, ok := r.Spec.(*resource.ZoneIngress)
		if !ok || spec.Zone == "" || spec.Zone == v.Zone {
			continue
		}
		if v.zones.behind == nil {
			v.zones.behind = map[string][]*ingress{}
			direct = v.inboundAddresses()
		}
		if _, ok := v.zones.behind[spec.Zone]; !ok {
			v.zones.behind[spec.Zone] = nil // it is behind an ingress, whatever becomes of this one
		}
		host, port := spec.Advertised()
		addr, err := netip.ParseAddr(host)
		if err != nil || port == 0 || port > 65535 {
			v.warnf(r.Key, "it is advertised at %q, port %d, and endpoints are IP addresses with a port: no traffic goes "+
				"through it; set networking.advertisedAddress and advertisedPort", host, port)
			continue
		}
		in := &ingress{zone: spec.Zone, at: netip.AddrPortFrom(addr.Unmap(), uint16(port)), res: r, spec: spec}
		if other := at[in.at]; other != nil {
			v.warnf(r.Key, "it is advertised at %s as %s is: no traffic goes through it", in.at, other.res.Key)
			continue
		}
		if dp, ok := direct[in.at]; ok {
			v.warnf(r.Key, "it is advertised at %s, where %s has an inbound: no traffic goes through it", in.at, dp)
			continue
		}
		at[in.at] = in
		v.zones.behind[in.zone] = append(v.zones.behind[in.zone], in)
	}
}

// inboundAddresses are those that are reached directly if anything is.
func (v *View) inboundAddresses() map[netip.AddrPort]resource.Key {
	out := map[netip.AddrPort]resource.Key{}
	for _, d := range v.dataplanes {
		spec, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			if a, err := netip.ParseAddr(cmp.Or(spec.Networking.AdvertisedAddress, in.Address, spec.Networking.Address)); err == nil {
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

// endpoint is the ingress as an endpoint.
func (in *ingress) endpoint(tags map[string]string, instances uint32, index int) Endpoint {
	return Endpoint{
		Address: in.at.Addr().String(), Port: uint32(in.at.Port()), Zone: in.zone, Tags: tags,
		Weight: min(max(instances, 1), maxInstances), Resource: in.res, Index: index,
	}
}

// offered finds what tag services the ingresses lead to: those that they list, or where one lists nothing at all, what
// the dataplanes of its zone offer.
func (v *View) offered(ix *inboundIndex) {
	if len(v.zones.behind) == 0 {
		return
	}
	v.zones.tags = map[string][]Endpoint{}
	for _, zone := range sortedKeys(v.zones.behind) {
		for _, in := range v.zones.behind[zone] {
			if len(in.spec.AvailableServices) > 0 {
				v.listed(in)
			} else {
				v.inZone(in, ix)
			}
		}
	}
	v.judgeCrossing()
}

// listed adds what an ingress says that it leads to in this mesh.
func (v *View) listed(in *ingress) {
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
		{external, "services outside the mesh, and those are not reached through an ingress: they are left out"},
		{otherZone, "services of another zone than its own: they are left out"},
		{capped, "services with more than 65535 instances: that many count"},
	} {
		if w.n > 0 {
			v.warnf(in.res.Key, "availableServices: of mesh %s it lists %d %s", v.Name, w.n, w.what)
		}
	}
}

// inZone adds what the dataplanes of the ingress's zone offer, instances with the same tags together.
func (v *View) inZone(in *ingress, ix *inboundIndex) {
	for _, name := range ix.services {
		from := len(v.zones.tags[name])
		for _, i := range ix.by[name] {
			if !i.behind || !i.ready || i.ep.Zone != in.zone {
				continue
			}
			list := v.zones.tags[name]
			n := slices.IndexFunc(list[from:], func(e Endpoint) bool { return maps.Equal(e.Tags, i.ep.Tags) })
			if n < 0 {
				v.zones.tags[name] = append(list, in.endpoint(i.ep.Tags, 1, -1))
			} else if e := &list[from+n]; e.Weight < maxInstances {
				e.Weight++
			}
		}
	}
}

// crosses reports whether proxies send a service what an ingress can route: TLS, with a server name.
func (v *View) crosses(s *Service) bool {
	b := v.Spec.MTLSEnabled()
	return b != nil && !s.External && (!b.Permissive() || s.TLSReady)
}

// judgeCrossing tells of a mesh whose traffic cannot cross zones.
func (v *View) judgeCrossing() {
	names := strings.Join(sortedKeys(v.zones.behind), ", ")
	switch b := v.Spec.MTLSEnabled(); {
	case b == nil:
		v.warnf(v.mesh.Key, "the zones %s are behind a ZoneIngress, which routes by the server name of mutual TLS, and the mesh has "+
			"none: nothing there is reached; enable mtls, or set mesh.flatNetwork in the agent's config where the network is flat", names)
	case b.Permissive():
		v.warnf(v.mesh.Key, "the zones %s are behind a ZoneIngress, and with mode PERMISSIVE proxies send TLS to a MeshService "+
			"alone whose status.tls is Ready: nothing else there is reached; set mode STRICT", names)
	}
}

// addTagsOfZones adds to a tag service what ingresses lead to.
func (v *View) addTagsOfZones(s *Service) {
	if v.crosses(s) {
		s.Endpoints.List = append(s.Endpoints.List, v.zones.tags[s.Tag]...)
	}
}

// ofItsZone leaves of the inbounds that a MeshService selects those of the zone that its label says, where zones are
// behind ingresses: the ingresses of other zones do not know it.
func (v *View) ofItsZone(r *resource.Resource, selected []*inbound) []*inbound {
	zone := r.Labels[resource.LabelZone]
	if zone == "" || len(v.zones.behind) == 0 {
		return selected
	}
	return filter(selected, func(in *inbound) bool { return in.ep.Zone == zone })
}

// throughIngresses adds to a real service those of its inbounds that are behind ingresses. One of another zone, of which
// nothing is known but the service, has an endpoint for each ingress of the zone.
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
	s.alone = len(count) == 0
	for _, zone := range sortedKeys(count) {
		for _, in := range v.zones.behind[zone] {
			s.Endpoints.List = append(s.Endpoints.List, in.endpoint(nil, count[zone], -1))
		}
	}
}

// Ingress reports whether an endpoint is the ingress of another zone, which stands for as many instances as its weight.
func (e *Endpoint) Ingress() bool { return e.Resource != nil && e.Resource.Kind == "ZoneIngress" }

// Distinct joins the endpoints that are one ingress: Envoy takes one endpoint of an address. It has the instances of all
// and the tags that all have. The list is returned as it is when there are none to join.
func Distinct(list []Endpoint) []Endpoint {
	type place struct {
		host string
		port uint32
	}
	at := map[place]int{}
	var out []Endpoint
	for i := range list {
		e := &list[i]
		if !e.Ingress() {
			if out != nil {
				out = append(out, *e)
			}
			continue
		}
		if out == nil {
			out = append(make([]Endpoint, 0, len(list)), list[:i]...)
		}
		p := place{e.Address, e.Port}
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
	}
	if out == nil {
		return list
	}
	return out
}
