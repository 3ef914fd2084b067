package mesh

import (
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// vipPort is the port at the virtual address of a tag service; such a service has no port of its own.
const vipPort = 80

// addTagServices adds a service for each value of kuma.io/service, of dataplanes and of external services. A service
// that has both is reached as an external one, with the dataplanes among its endpoints.
func (v *View) addTagServices(ix *inboundIndex, external []*resource.Resource) {
	ext := map[string][]Endpoint{}
	proto := map[string]Protocol{}
	for r, spec := range resource.Specs[*resource.ExternalService](external) {
		name := spec.Tags[resource.TagService]
		host, port, err := net.SplitHostPort(spec.Networking.Address)
		n, notPort := strconv.ParseUint(port, 10, 16)
		if err != nil || notPort != nil {
			v.warnf(r.Key, "networking.address: %q is not host:port with a port from 1 to 65535: it is no endpoint; correct it", spec.Networking.Address)
			continue
		}
		tags := spec.Tags
		if tls := spec.Networking.TLS; tls != nil && tls.Enabled {
			// Selects the endpoint's own TLS context among those of the cluster.
			tags = maps.Clone(tags)
			tags[resource.TagExternalServiceName] = r.Name
		}
		ext[name] = append(ext[name], Endpoint{Address: host, Port: uint32(n), Tags: tags, Zone: tags[resource.TagZone], Resource: r})
		p := ParseProtocol(spec.Tags[resource.TagProtocol])
		if have, ok := proto[name]; ok {
			p = common(have, p)
		}
		proto[name] = p
	}
	names := slices.Concat(ix.services, sortedKeys(ext), sortedKeys(v.zones.tags))
	slices.Sort(names)
	var before previousTags
	if prev := v.reusable(); prev != nil {
		before = prev.services
	}
	for _, name := range slices.Compact(names) {
		eps, through := ext[name], v.zones.tags[name]
		if s := before.find(name, ix.by[name], through); s != nil && len(eps) == 0 {
			v.add(s.clone())
			continue
		}
		s := &Service{ID: ServiceID{Kind: KindTag, Name: name}, Tag: name, Port: vipPort, from: ix.by[name], through: firstOf(through), fixed: len(eps) == 0}
		s.External = len(eps) > 0 && !v.ThroughEgress()
		p, known := proto[name]
		list := make([]Endpoint, 0, len(eps)+len(ix.by[name]))
		list = append(list, eps...)
		for _, in := range ix.by[name] {
			p, known = joined(p, known, in.proto)
			switch {
			case in.behind:
			case in.ready:
				list = append(list, in.ep)
			default:
				s.NotReady++
			}
		}
		for i := range through {
			p, known = joined(p, known, ParseProtocol(through[i].Tags[resource.TagProtocol]))
		}
		s.Protocol, s.Endpoints = p, &EndpointSet{List: list}
		if v.crosses(s) {
			s.Endpoints.List = append(list, through...)
		}
		if len(eps) > 0 {
			v.leaves(s, eps, !s.External)
			if s.Egress && len(list) > len(eps) {
				v.warnf(eps[0].Resource.Key, "dataplanes have the tag %s: %s too, and are not reached under it: this service leaves through the ZoneEgress", resource.TagService, name)
			}
		}
		v.add(s)
	}
}

// joined is the protocol that all endpoints so far and one more understand.
func joined(p Protocol, known bool, next Protocol) (Protocol, bool) {
	if !known {
		return next, true
	}
	return common(p, next), true
}
