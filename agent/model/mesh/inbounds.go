package mesh

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// inbound is one inbound of the mesh that may receive traffic.
type inbound struct {
	dp      *resource.Resource
	spec    *resource.Inbound
	index   int
	service string
	proto   Protocol
	ready   bool
	state   *resource.EndpointState // of its dataplane, or nil
	behind  bool                    // reached through an ingress of its zone
	partial bool                    // another inbound of the dataplane was dropped; each view warns about it
	ep      Endpoint
}

// inboundIndex groups all inbounds by their kuma.io/service tag, in the order of dataplane names.
// Inbounds without the tag are only in the list of all.
type inboundIndex struct {
	services []string // sorted
	by       map[string][]*inbound
	all      []*inbound
	changed  []*inbound // added or removed since the previous view; set only during Build
	follows  bool       // changed is known
}

// indexInbounds builds the index. It reuses the inbounds of unchanged dataplanes.
func indexInbounds(v *View) *inboundIndex {
	var last *inboundIndex
	var before, came, gone []*inbound // before: the remaining inbounds of the previous view; both are sorted by name
	if v.prev != nil && v.sameIngresses() {
		last = v.prev.inbounds
		before = last.all
	}
	ix := &inboundIndex{all: make([]*inbound, 0, len(v.dataplanes))}
	var block inboundBlock
	for _, d := range v.dataplanes {
		n := 0
		for n < len(before) && before[n].dp != d && before[n].dp.Name <= d.Name {
			n++
		}
		gone, before = append(gone, before[:n]...), before[n:]
		n = 0
		for n < len(before) && before[n].dp == d && !before[n].partial && before[n].state == v.states[d.Name] {
			n++
		}
		if n > 0 {
			ix.all, before = append(ix.all, before[:n]...), before[n:]
			continue
		}
		from := len(ix.all)
		if ix.all = v.parseInbounds(ix.all, &block, d); last != nil {
			came = append(came, ix.all[from:]...)
		}
	}
	if last != nil {
		gone = append(gone, before...)
		ix.changed, ix.follows = slices.Concat(came, gone), true
		ix.regroup(last, came, gone)
	} else {
		ix.group()
	}
	return ix
}

// group builds the groups.
func (ix *inboundIndex) group() {
	ix.by = make(map[string][]*inbound, len(ix.all)/2)
	for _, in := range ix.all {
		if in.service != "" {
			ix.by[in.service] = append(ix.by[in.service], in)
		}
	}
	ix.services = sortedKeys(ix.by)
}

// inboundBlock is memory for inbounds. It comes in small blocks, because later views may retain a
// single inbound of a block.
type inboundBlock []inbound

func (r *inboundBlock) take(n int) []inbound {
	if n > len(*r) {
		*r = make([]inbound, max(n, 16))
	}
	out := (*r)[:0:n]
	*r = (*r)[n:]
	return out
}

// parseInbounds appends the inbounds of a dataplane that may receive traffic.
func (v *View) parseInbounds(out []*inbound, block *inboundBlock, d *resource.Resource) []*inbound {
	spec, ok := d.Spec.(*resource.Dataplane)
	if !ok {
		return out
	}
	list, state := block.take(len(spec.Networking.Inbound)), v.states[d.Name]
	partial := false
	for i := range spec.Networking.Inbound {
		in := &spec.Networking.Inbound[i]
		service := in.Tags[resource.TagService] // "" if only MeshServices select the inbound, by labels
		if in.State == resource.InboundIgnored {
			continue
		}
		addr := cmp.Or(spec.Networking.AdvertisedAddress, in.Address, spec.Networking.Address)
		if _, err := netip.ParseAddr(addr); err != nil {
			v.warnf(d.Key, "networking.inbound[%d]: the address %q is not an IP address, which endpoints require: "+
				"other proxies cannot reach this inbound; set networking.address to an IP", i, addr)
			partial = true
			continue
		}
		zone := cmp.Or(in.Tags[resource.TagZone], v.Zone)
		list = append(list, inbound{
			dp: d, spec: in, index: i, service: service,
			proto: ParseProtocol(in.Speaks()), behind: v.behindIngress(zone),
			ready: Ready(in) && !state.Excludes(in.Port), state: state,
			ep: Endpoint{Address: addr, Port: in.Port, Zone: zone, Tags: in.Tags, Resource: d, Index: i},
		})
	}
	for i := range list {
		list[i].partial = partial
		out = append(out, &list[i])
	}
	return out
}

// indexStates indexes the observed states of dataplanes by name.
func (v *View) indexStates(list []*resource.Resource) {
	v.states = make(map[string]*resource.EndpointState, len(list))
	for r, state := range resource.Specs[*resource.EndpointState](list) {
		v.states[r.Name] = state
	}
}

// EndpointState returns the observed state of a dataplane, or nil if there is none: then it is
// ready.
func (v *View) EndpointState(dataplane string) *resource.EndpointState { return v.states[dataplane] }

// Ready reports whether an inbound accepts traffic by its resource. The state that an agent has
// observed is in [View.EndpointState].
func Ready(in *resource.Inbound) bool {
	return (in.State == "" || in.State == resource.InboundReady) && (in.Health == nil || in.Health.Ready)
}

// ProxyTags returns the tags of all inbounds of a dataplane, or of its gateway: each key with its
// sorted values. Ignored inbounds count too: they receive no traffic but are part of the proxy's
// identity.
func (v *View) ProxyTags(dp *resource.Dataplane) map[string][]string {
	out := map[string][]string{}
	add := func(tags map[string]string) {
		for k, val := range v.InboundTags(tags) {
			if !slices.Contains(out[k], val) {
				out[k] = append(out[k], val)
			}
		}
	}
	if gw := dp.Networking.Gateway; gw != nil {
		add(gw.Tags)
	}
	for i := range dp.Networking.Inbound {
		add(dp.Networking.Inbound[i].Tags)
	}
	for _, vals := range out {
		slices.Sort(vals)
	}
	return out
}

// vipPort is the port of a tag service at its virtual address. Tag services define no port.
const vipPort = 80

// addTagServices adds a service for each value of kuma.io/service in dataplanes and external
// services. A value used by both becomes an external service whose endpoints include the
// dataplanes.
func (v *View) addTagServices(ix *inboundIndex, external []*resource.Resource) {
	ext := map[string][]Endpoint{}
	proto := map[string]Protocol{}
	for r, spec := range resource.Specs[*resource.ExternalService](external) {
		name := spec.Tags[resource.TagService]
		host, port, err := net.SplitHostPort(spec.Networking.Address)
		n, notPort := strconv.ParseUint(port, 10, 16)
		if err != nil || notPort != nil {
			v.warnf(r.Key, "networking.address: %q is not host:port with a port from 1 to 65535, "+
				"so the service has no endpoint; correct it", spec.Networking.Address)
			continue
		}
		tags := spec.Tags
		if tls := spec.Networking.TLS; tls != nil && tls.Enabled {
			// The tag selects the endpoint's own TLS context among those of the cluster.
			tags = maps.Clone(tags)
			tags[resource.TagExternalServiceName] = r.Name
		}
		ext[name] = append(ext[name],
			Endpoint{Address: host, Port: uint32(n), Tags: tags, Zone: tags[resource.TagZone], Resource: r})
		p := ParseProtocol(spec.Tags[resource.TagProtocol])
		if have, ok := proto[name]; ok {
			p = Common(have, p)
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
		s := &Service{ID: ServiceID{Kind: KindTag, Name: name}, Tag: name, Port: vipPort, from: ix.by[name],
			through: firstOf(through), fixed: len(eps) == 0}
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
			v.addBeyond(s, through)
		}
		if len(eps) > 0 {
			s.Aliases = aliases(eps)
			v.leaves(s, eps, !s.External)
			if s.Egress && len(list) > len(eps) {
				v.warnf(eps[0].Resource.Key, "dataplanes have the tag %s: %s too, but are not part of this service: it "+
					"leaves through the ZoneEgress", resource.TagService, name)
			}
		}
		v.add(s)
	}
}

// joined returns the protocol that next and all previous endpoints understand.
func joined(p Protocol, known bool, next Protocol) (Protocol, bool) {
	if !known {
		return next, true
	}
	return Common(p, next), true
}

// aliases returns the ports of external services, with their addresses where these are IPs.
func aliases(list []Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range list {
		e := &list[i]
		if e.Port != vipPort {
			out = append(out, netip.AddrPortFrom(netip.Addr{}, uint16(e.Port)))
		}
		if a, err := netip.ParseAddr(e.Address); err == nil && !a.IsUnspecified() {
			out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(e.Port)))
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
