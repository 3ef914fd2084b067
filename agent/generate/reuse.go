package generate

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// reuse returns p brought up to a view, when nothing but endpoints has changed in what the proxy sees of the mesh; nil
// when it has to be made anew. The dataplane and the flavor are those of p.
func (p *Proxy) reuse(m *Mesh, r *resource.Resource, dp *resource.Dataplane, memo *Memo) *Proxy {
	v, reach := m.View, m.reach(r)
	if p.catalog == v.Catalog && p.reach == reach {
		for i := range p.fixed {
			if v.Services()[p.fixed[i].index].Endpoints != p.fixed[i].set {
				return nil
			}
		}
		return p.refresh(v, memo)
	}
	// Something about some service is new. Most proxies reach few of them.
	if p.mesh != v.Spec || p.zone != v.Zone || p.Mesh != v.Name {
		return nil
	}
	outbounds, warnings := m.outbounds(r)
	fixed := directServices(v, dp)
	if !slices.EqualFunc(outbounds, p.outbounds, sameOutbound) || !slices.EqualFunc(fixed, p.fixed, func(a, b endpointRef) bool { return a.set == b.set }) {
		return nil
	}
	backends, ok := p.sameBackends(v)
	if !ok {
		return nil
	}
	services := make(map[string]*mesh.Service, len(outbounds)+len(backends))
	for i := range backends {
		if o := &backends[i].outbound; o.Service != nil {
			services[clusterName(o)] = o.Service
		}
	}
	for i := range outbounds {
		services[clusterName(&outbounds[i])] = outbounds[i].Service
	}
	next := *p
	next.catalog, next.reach, next.outbounds, next.fixed = v.Catalog, reach, outbounds, fixed
	next.backends = backends
	next.Warnings = slices.Concat(warnings, p.notes)
	next.refs = slices.Clone(p.refs)
	for i := range next.refs {
		ref := &next.refs[i]
		if ref.index == atEgress {
			continue
		}
		// One that nothing offered is a new value in each view, with the same endpoints: none.
		ref.index = services[ref.cluster].Index
	}
	return next.refresh(v, memo)
}

// sameOutbound reports whether the listener and the cluster of two outbounds of one dataplane are the same.
func sameOutbound(a, b mesh.Outbound) bool {
	s, t := a.Service, b.Service
	return a.Address == b.Address && a.Port == b.Port && s.ID == t.ID && s.Protocol == t.Protocol && s.External == t.External && s.Egress == t.Egress &&
		(!s.External || s.Endpoints == t.Endpoints) && (s.Index < 0) == (t.Index < 0) && maps.Equal(a.Tags, b.Tags) &&
		s.FullName == t.FullName && s.TLSReady == t.TLSReady && slices.Equal(s.Identities, t.Identities)
}
