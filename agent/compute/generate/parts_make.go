package generate

import (
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// partMaker uses parts again, and notes what the making of one takes and leaves.
type partMaker struct {
	g      *generator
	key    partKey         // of the proxy
	shared *sharedParts    // nil: nothing is
	last   map[place]*part // of the same proxy, where all else of it is as it was

	// While a part is made.
	now    *part           // nil: none is
	asked  map[string]bool // names that are in taken and claimed of it
	faulty bool            // something about it was told that names the proxy
	tls    bool            // tls.used of before
	mark   draft.Mark
}

type place struct {
	address string
	port    uint32
}

func placeAt(list []mesh.Outbound) place { return place{list[0].Address.String(), list[0].Port} }

// newPartMaker prepares the parts of a proxy with its policies; nil: none act. prev is what it was
// last; nil: nothing is known.
func (g *generator) newPartMaker(prev *Proxy, match *policy.Match) *partMaker {
	m := &partMaker{g: g, shared: g.memo.partsOf(g.v)}
	addr, err := netip.ParseAddr(g.dp.Networking.Address)
	m.key = partKey{flavor: g.flavor, rules: g.p.policies, ipv6: err == nil && !addr.Is4(), bind: g.bindToPort() == nil,
		tagged: g.headers != nil, inline: g.sealer.Inline}
	if g.sealer.Inline || match != nil && match.ByTags() {
		m.key.tags = tagsDigest(g.dp)
	}
	if prev != nil && prev.differsInOutboundsAlone(g.p, g.dp) {
		m.last = make(map[place]*part, len(prev.parts))
		for _, p := range prev.parts {
			m.last[placeAt(p.of)] = p
		}
	}
	return m
}

// differsInOutboundsAlone reports whether all that decides about single outbounds of p is the same
// for next, a proxy of the same name that is about to be made.
func (p *Proxy) differsInOutboundsAlone(next *Proxy, dp *resource.Dataplane) bool {
	if p.border != nil || p.Flavor != next.Flavor || p.Mesh != next.Mesh || p.mesh != next.mesh ||
		p.upgrades != next.upgrades || p.zone != next.zone || p.policies != next.policies ||
		p.dataplane.Key != next.dataplane.Key || !maps.Equal(p.dataplane.Labels, next.dataplane.Labels) {
		return false
	}
	was, ok := p.dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return false
	}
	return was.SameButOutbounds(dp)
}

// tagsDigest is a hash over all tags of a dataplane, by its inbounds and gateway.
func tagsDigest(dp *resource.Dataplane) (out [32]byte) {
	h := sha256.New()
	add := func(tags map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(tags)) {
			_, _ = h.Write([]byte(k + "\x00" + tags[k] + "\x00"))
		}
		_, _ = h.Write([]byte{1})
	}
	for i := range dp.Networking.Inbound {
		add(dp.Networking.Inbound[i].Tags)
		_, _ = h.Write([]byte(dp.Networking.Inbound[i].State))
	}
	if g := dp.Networking.Gateway; g != nil {
		_, _ = h.Write([]byte{3})
		add(g.Tags)
	}
	h.Sum(out[:0])
	return out
}

// again adds a part that was made before for the same outbounds, and reports whether there is one.
func (m *partMaker) again(list []mesh.Outbound) bool {
	if p := m.last[placeAt(list)]; p != nil && m.fits(p, list) {
		m.add(p, list)
		return true
	}
	if p := m.shared.get(m.keyOf(list)); p != nil && m.fits(p, list) {
		m.add(p, list)
		return true
	}
	return false
}

func (m *partMaker) keyOf(list []mesh.Outbound) partKey {
	k, at := m.key, placeAt(list)
	k.address, k.port, k.outbound = at.address, at.port, len(list)
	return k
}

// fits reports whether the making of a part for these outbounds would go as it went.
func (m *partMaker) fits(p *part, list []mesh.Outbound) bool {
	g := m.g
	same := func(a, b mesh.Outbound) bool { return sameOutbound(a, b) && maps.Equal(a.Subset, b.Subset) }
	if !sameSlice(p.of, list) && !slices.EqualFunc(p.of, list, same) {
		return false
	}
	for _, t := range p.taken {
		if g.clusters[t.name] != t.before {
			return false
		}
	}
	for _, t := range p.claimed {
		if g.claimed[t.name] != t.before {
			return false
		}
	}
	for _, v := range p.versions {
		if g.p.Build.From(v.from.Major, v.from.Minor) != v.is {
			return false
		}
	}
	for _, b := range p.backends {
		o, ok := g.v.Backend(b.from, mesh.BackendRef(b.ref))
		if ok {
			o = g.permits.restrict(o)
		}
		if ok != (b.outbound.Service != nil) || ok && !sameOutbound(o, b.outbound) {
			return false
		}
	}
	return true
}

// add leaves in the generator what the making of a part would.
func (m *partMaker) add(p *part, list []mesh.Outbound) {
	g := m.g
	services := make(map[string]*mesh.Service, len(list))
	next := *p
	next.backends = nil
	for _, b := range p.backends {
		o, ok := g.v.Backend(b.from, mesh.BackendRef(b.ref))
		if ok {
			o = g.permits.restrict(o)
			services[clusterName(&o)] = o.Service
		}
		next.backends = append(next.backends, backend{b.from, b.ref, o})
	}
	for i := range list {
		services[clusterName(&list[i])] = list[i].Service
	}
	next.of = list
	added := g.sealer.AddPart(&p.sealed, g.headers)
	for _, t := range p.taken {
		if t.takes {
			g.clusters[t.name] = true
		}
	}
	for _, t := range p.claimed {
		g.isClaimed(t.name)
	}
	for _, v := range p.versions {
		g.EnvoyFrom(v.from.Major, v.from.Minor)
	}
	for _, ref := range p.refs {
		switch s := services[ref.cluster]; {
		case ref.index == atEgress:
			ref.set = g.v.Egresses()
		case s != nil:
			ref.index, ref.set = s.Index, s.Endpoints
		}
		g.refs = append(g.refs, ref)
	}
	g.p.backends = append(g.p.backends, next.backends...)
	for _, w := range p.notes {
		g.note(w)
	}
	for _, l := range p.located {
		g.Localities(l.cluster, l.localities)
	}
	if p.tls {
		g.tls.used = true
	}
	switch {
	case added != &p.sealed: // with other headers: what is shared stays the one that was made
		next.sealed = *added
		g.p.parts = append(g.p.parts, &next)
	case len(p.backends) > 0 || !slices.EqualFunc(p.of, list, func(a, b mesh.Outbound) bool {
		return a.Service == b.Service
	}):
		m.keep(&next)
	default:
		m.keep(p)
	}
}

// keep remembers a part for the proxy, and for others that may have the same.
func (m *partMaker) keep(p *part) {
	m.g.p.parts = append(m.g.p.parts, p)
	if !p.own {
		m.shared.put(m.keyOf(p.of), p)
	}
}

// cluster notes that the generator was asked whether a cluster is there.
func (m *partMaker) cluster(name string, before bool) {
	if m == nil || m.now == nil || m.asked[name] {
		return
	}
	m.asked[name] = true
	m.now.taken = append(m.now.taken, taken{name: name, before: before})
}

// claim notes that a plugin has claimed something.
func (m *partMaker) claim(key string, before bool) {
	if m == nil || m.now == nil || m.asked["\x00"+key] {
		return
	}
	m.asked["\x00"+key] = true
	m.now.claimed = append(m.now.claimed, taken{name: key, before: before})
}

// making returns the part that is being made; nil: none is.
func (m *partMaker) making() *part {
	if m == nil {
		return nil
	}
	return m.now
}

// begin notes from now on what the making of a part takes and leaves.
func (m *partMaker) begin(list []mesh.Outbound) {
	g := m.g
	m.now, m.asked, m.faulty = &part{of: list}, map[string]bool{}, false
	m.mark = g.sealer.Mark()
	if g.c != nil {
		g.c.Own = false
	}
	if g.tls != nil {
		m.tls, g.tls.used = g.tls.used, false
	}
}

// end takes the part up.
func (m *partMaker) end(refs, backends int) {
	g := m.g
	p := m.now
	m.now = nil
	if g.tls != nil {
		p.tls = g.tls.used
		g.tls.used = g.tls.used || m.tls
	}
	p.own = g.c != nil && g.c.Own
	var ok bool
	if p.sealed, ok = g.sealer.Since(m.mark); !ok || m.faulty {
		return // what is wrong with it is told when it is made
	}
	for i := range p.taken {
		p.taken[i].takes = !p.taken[i].before && g.clusters[p.taken[i].name]
	}
	p.refs, p.backends = slices.Clone(g.refs[refs:]), slices.Clone(g.p.backends[backends:])
	for i := range p.refs {
		p.refs[i].set = nil // it is that of the view in which the part is used
	}
	g.memo.likeLast(p)
	m.keep(p)
}
