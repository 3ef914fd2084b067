package xds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Proxy is the generated config of one proxy.
type Proxy struct {
	Mesh   string
	Name   string
	Flavor Flavor
	Sealed *draft.Sealed
	// Warnings are about parts of the dataplane or the mesh that are not served as written.
	Warnings []mesh.Warning

	dataplane *resource.Resource
	mesh      *resource.Mesh
	zone      string
	catalog   [32]byte
	outbounds []mesh.Outbound
	refs      []endpointRef  // the EDS resources, in the order of their names
	fixed     []endpointRef  // endpoints that are part of listeners
	notes     []mesh.Warning // of the generator; Warnings has those about the outbounds too
}

// endpointRef is one EDS resource of a proxy.
type endpointRef struct {
	cluster string
	index   int // of the service in the view, -1 for one that nothing offers
	set     *mesh.EndpointSet
	subset  map[string]string
}

// NotFoundError says that a mesh has no dataplane of a name.
type NotFoundError struct{ Mesh, Name string }

// Error names the dataplane and the remedy.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("mesh %q has no dataplane %q: apply a Dataplane of that name, or start its Envoy with the Dataplane in its node metadata", e.Mesh, e.Name)
}

// Generate makes the config of one dataplane. It is pure but for memo, which only saves work and memory: nil is
// allowed and gives the same bytes.
//
// prev is the result of an earlier call for the same dataplane, or nil. Where nothing that it depends on has changed
// its parts are used again; when nothing at all has changed, the returned Sealed is the same pointer.
//
// It fails with a NotFoundError when the view has no such dataplane, and when the dataplane cannot be served at all. A
// part that cannot be served is left out and named in Warnings.
func Generate(v *mesh.View, name string, f Flavor, prev *Proxy, memo *Memo) (*Proxy, error) {
	r := v.Dataplane(name)
	if r == nil {
		return nil, &NotFoundError{Mesh: v.Name, Name: name}
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected spec %T", r.Key, r.Spec)
	}
	if b := v.Spec.MTLSEnabled(); b != nil {
		// Plain text where the mesh asks for mutual TLS would be worse than no config.
		return nil, fmt.Errorf("mesh %q enables mTLS (backend %q), which this agent cannot serve yet: "+
			"remove mtls.enabledBackend from the Mesh", v.Name, b.Name)
	}
	if prev != nil && prev.Flavor == f && prev.dataplane.Key == r.Key && prev.dataplane.Digest == r.Digest {
		if next := prev.reuse(v, r, dp, memo); next != nil {
			return next, nil
		}
	}
	g := &generator{v: v, r: r, dp: dp, flavor: f, memo: memo, d: &draft.Draft{}, sealer: draft.NewSealer(memo.intern), clusters: make(map[string]bool, len(dp.Networking.Outbound)), p: &Proxy{
		Mesh: v.Name, Name: name, Flavor: f, dataplane: r, mesh: v.Spec, zone: v.Zone, catalog: v.Catalog,
	}}
	g.run()
	return g.p, nil
}

// refresh returns p with the endpoints of v, in which the services have the indices that refs has.
func (p *Proxy) refresh(v *mesh.View, memo *Memo) *Proxy {
	rank := draft.Rank(draft.TypeEndpoint)
	old := p.Sealed.Resources[rank]
	services := v.Services()
	var enc assignment
	var refs []endpointRef // made when the first difference shows
	var list []*draft.Resource
	for i := range p.refs {
		ref := p.refs[i]
		if ref.index < 0 || services[ref.index].Endpoints == ref.set {
			continue
		}
		if list == nil {
			refs, list = slices.Clone(p.refs), slices.Clone(old)
		}
		refs[i].set = services[ref.index].Endpoints
		list[i] = memo.endpoints(&enc, &refs[i], p.Flavor)
	}
	if list == nil {
		return p
	}
	next := *p
	next.refs = refs
	if slices.EqualFunc(list, old, func(a, b *draft.Resource) bool { return a == b || a.Version == b.Version }) {
		return &next
	}
	sealed := *p.Sealed
	sealed.Resources[rank], sealed.Versions[rank] = draft.Order(list)
	next.Sealed = &sealed
	return &next
}

// generator builds one draft.
type generator struct {
	v        *mesh.View
	r        *resource.Resource
	dp       *resource.Dataplane
	flavor   Flavor
	memo     *Memo
	d        *draft.Draft // the part that is being made
	sealer   *draft.Sealer
	p        *Proxy
	clusters map[string]bool // names taken
	tags     string          // value of the x-kuma-tags header
}

func (g *generator) warnf(format string, args ...any) {
	g.p.notes = append(g.p.notes, mesh.Warning{Resource: g.r.Key, Reason: fmt.Sprintf(format, args...)})
}

func (g *generator) run() {
	g.tags = mesh.TagString(g.v.ProxyTags(g.dp))
	outbounds, warnings := g.v.Outbounds(g.r)
	g.p.outbounds = outbounds
	if g.flavor == FlavorGRPC {
		g.apiListeners(outbounds)
	} else {
		g.inbounds()
		g.outbounds(outbounds)
		g.transparent()
		g.directAccess()
	}
	g.seal()
	g.p.Warnings = slices.Concat(warnings, g.p.notes)
}

// seal packs the draft and adds the endpoints, which proxies share.
func (g *generator) seal() {
	slices.SortFunc(g.p.refs, func(a, b endpointRef) int { return strings.Compare(a.cluster, b.cluster) })
	rank := draft.Rank(draft.TypeEndpoint)
	eps := make([]*draft.Resource, len(g.p.refs))
	var enc assignment
	for i := range g.p.refs {
		eps[i] = g.memo.endpoints(&enc, &g.p.refs[i], g.flavor)
	}
	g.d.Ready[rank] = eps
	g.flush()
	sealed, faults := g.sealer.Finish()
	for _, f := range faults {
		g.warnf("%v: it is left out", f)
	}
	g.p.Sealed = sealed
}

// flush seals the part that was made and begins another one in its place.
func (g *generator) flush() {
	g.sealer.Add(g.d)
	*g.d = draft.Draft{Listeners: g.d.Listeners[:0], Clusters: g.d.Clusters[:0]}
}

// claim takes a cluster name; false when it is taken.
func (g *generator) claim(name string) bool {
	if g.clusters[name] {
		return false
	}
	g.clusters[name] = true
	return true
}
