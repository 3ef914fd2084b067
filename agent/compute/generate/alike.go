package generate

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// alike is what the last proxy was made of that the next one may have too: the proxies of a mesh
// that reach the same services share their lists, and the work for these is done once.
type alike struct {
	outbounds []mesh.Outbound
	linked    linked
	indices   indices
	refs      []endpointRef // as they were made, in no order
	sorted    []*endpointRef
	endpoints []*draft.Resource // of sorted
	placed    []*draft.Resource // those of the proxy, among which these are where sorted says
	isPlaced  bool
	flavor    node.Flavor
	refreshed refreshed
	parts     map[place]*part // the last ones
}

// linked is a list of outbounds with the services of a view.
type linked struct {
	from, to []mesh.Outbound
	view     *mesh.View
}

// indices are endpoints with the indices that the services of outbounds have.
type indices struct {
	outbounds []mesh.Outbound
	from, to  []*endpointRef
}

// refreshed is a list of endpoints as it was, and as a view has it.
type refreshed struct {
	view         *mesh.View
	flavor       node.Flavor
	ofRefs, refs []*endpointRef
	of, list     []*draft.Resource
	version      string // of list
}

// Rest lets go of what was remembered of the last proxy: it is of the view that it was made from.
func (m *Memo) Rest() {
	m.alike = alike{}
	m.pool.Rest()
}

// sharedOutbounds returns a list that is the same, and as a rule that of the last proxy.
func (m *Memo) sharedOutbounds(list []mesh.Outbound) []mesh.Outbound {
	if m == nil || len(list) == 0 {
		return list
	}
	same := func(a, b mesh.Outbound) bool {
		return a.Service == b.Service && a.Address == b.Address && a.Port == b.Port &&
			(a.Tags == nil) == (b.Tags == nil) && maps.Equal(a.Tags, b.Tags) && maps.Equal(a.Subset, b.Subset)
	}
	if !sameSlice(m.alike.outbounds, list) && !slices.EqualFunc(m.alike.outbounds, list, same) {
		m.alike.outbounds = slices.Clip(list)
	}
	return m.alike.outbounds
}

func sameSlice[T any](a, b []T) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// relink returns what a proxy reaches with the services of another view in which nothing but
// endpoints has changed; false where that is not certain.
func (m *Memo) relink(list []mesh.Outbound, v *mesh.View) ([]mesh.Outbound, bool) {
	if m == nil || len(list) == 0 {
		return nil, false
	}
	if last := &m.alike.linked; last.view == v && sameSlice(last.from, list) {
		return last.to, true
	}
	services, to := v.Services(), []mesh.Outbound(nil)
	for i := range list {
		s := list[i].Service
		if s.Index < 0 || s.Index >= len(services) || s.Outside != nil { // it may be a form of it that is the proxy's own
			return nil, false
		}
		next := services[s.Index]
		if next.ID != s.ID || next.Outside != nil {
			return nil, false
		}
		if next != s && to == nil {
			to = slices.Clone(list)
		}
		if to != nil {
			to[i].Service = next
		}
	}
	if to == nil {
		to = list
	}
	m.alike.linked = linked{list, to, v}
	return to, true
}

// indexed returns endpoints with the indices that the services of outbounds, and what routes lead
// to, have in their view.
func (m *Memo) indexed(refs []*endpointRef, outbounds []mesh.Outbound, backends []backend) []*endpointRef {
	if m != nil && len(backends) == 0 && sameSlice(m.alike.indices.from, refs) &&
		sameSlice(m.alike.indices.outbounds, outbounds) {
		return m.alike.indices.to
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
	out := ownRefs(refs)
	for _, ref := range out {
		if ref.index != atEgress {
			// One that nothing offered is a new value in each view, with the same endpoints: none.
			ref.index = services[ref.cluster].Index
		}
	}
	if m != nil && len(backends) == 0 {
		m.alike.indices = indices{outbounds, refs, out}
	}
	return out
}

// reachable is what the proxy reaches, and what there is to be said about it.
func (g *generator) reachable() ([]mesh.Outbound, []mesh.Warning) {
	if p := g.before; p != nil && p.border == nil && g.mesh.only == nil && p.Mesh == g.p.Mesh && p.Flavor == g.flavor &&
		p.dataplane.Digest == g.r.Digest && p.dataplane.Key == g.r.Key && p.catalog == g.p.catalog && p.reach == g.p.reach {
		if list, ok := g.memo.relink(p.outbounds, g.v); ok {
			return list, p.Warnings[:len(p.Warnings)-len(p.notes)]
		}
	}
	list, warnings := g.mesh.outbounds(g.r)
	return g.memo.sharedOutbounds(list), warnings
}

// refsRoom returns where the endpoints of a proxy are listed.
func (m *Memo) refsRoom(n int) []endpointRef {
	if m == nil || cap(m.room.refs) < n {
		return make([]endpointRef, 0, n)
	}
	return m.room.refs[:0]
}

// endpoints returns the load assignments of the proxy. Most are those that it had, or that the last
// proxy has.
func (g *generator) endpoints() []*draft.Resource {
	for i := range g.refs {
		g.refs[i].localities = g.localitiesOf(&g.refs[i])
	}
	m := g.memo
	same := func(a, b endpointRef) bool { return a.index == b.index && a.same(&b) }
	if m != nil && len(g.refs) > 0 && m.alike.flavor == g.flavor && slices.EqualFunc(m.alike.refs, g.refs, same) {
		clear(g.refs)
		m.room.refs, g.refs = g.refs, nil
		g.p.refs = m.alike.sorted
		return m.alike.endpoints
	}
	g.p.refs = make([]*endpointRef, len(g.refs))
	for i := range g.refs {
		g.p.refs[i] = &g.refs[i]
	}
	slices.SortFunc(g.p.refs, func(a, b *endpointRef) int { return strings.Compare(a.cluster, b.cluster) })
	list := g.assign()
	if m != nil {
		m.room.refs = nil
		m.alike.refs, m.alike.sorted, m.alike.endpoints, m.alike.isPlaced, m.alike.flavor = g.refs, g.p.refs, list,
			false, g.flavor
	}
	return list
}

// assign makes the load assignments for the refs of the proxy.
func (g *generator) assign() []*draft.Resource {
	rank := draft.RankEndpoint
	var before []*endpointRef
	if g.before != nil && g.before.Flavor == g.flavor {
		before = g.before.refs
	}
	out, j := make([]*draft.Resource, len(g.p.refs)), 0
	var enc assignment
	for i, ref := range g.p.refs {
		for j < len(before) && before[j].cluster < ref.cluster {
			j++
		}
		if j < len(before) && before[j].same(ref) {
			if at := before[j].at; at >= 0 {
				out[i] = g.before.Sealed.Resources[rank][at]
				continue
			}
		}
		out[i] = g.memo.endpoints(&enc, ref, g.flavor)
	}
	return out
}

// place notes where the load assignments are among those of the proxy, which policies may have
// added to.
func (g *generator) place(eps []*draft.Resource) {
	all, last := g.p.Sealed.Resources[draft.RankEndpoint], &alike{}
	if g.memo != nil {
		last = &g.memo.alike
	}
	shared := sameSlice(g.p.refs, last.sorted) && last.isPlaced // with proxies that are made already
	if shared && draft.SameList(all, last.placed) {
		return
	}
	for i, j := 0, 0; i < len(g.p.refs); i++ {
		for j < len(all) && all[j].Name < g.p.refs[i].cluster {
			j++
		}
		at := j
		if j == len(all) || all[j] != eps[i] {
			at = -1
		}
		if g.p.refs[i].at == at {
			continue
		}
		if shared {
			shared, g.p.refs = false, ownRefs(g.p.refs)
		}
		g.p.refs[i].at = at
	}
	if sameSlice(g.p.refs, last.sorted) && !last.isPlaced {
		last.placed, last.isPlaced = all, true
	}
}

// ownRefs returns refs that no other proxy has.
func ownRefs(refs []*endpointRef) []*endpointRef {
	out, own := make([]*endpointRef, len(refs)), make([]endpointRef, len(refs))
	for i, ref := range refs {
		own[i], out[i] = *ref, &own[i]
	}
	return out
}

// likeLast has a part share what it has in common with the last one for the same outbounds, which
// may be of another proxy.
func (m *Memo) likeLast(p *part) {
	if m == nil {
		return
	}
	at := placeAt(p.of)
	if last := m.alike.parts[at]; last != nil {
		if slices.Equal(last.taken, p.taken) {
			p.taken = last.taken
		}
		if slices.EqualFunc(last.refs, p.refs, func(a, b endpointRef) bool { return a.index == b.index && a.same(&b) }) {
			p.refs = last.refs
		}
	}
	if m.alike.parts == nil || len(m.alike.parts) >= maxLast {
		m.alike.parts = map[place]*part{}
	}
	m.alike.parts[at] = p
}

// maxLast bounds the parts that are remembered beside those that proxies have.
const maxLast = 256

// again returns what a list of endpoints has become for another proxy that had the same; nil: that
// is not known.
func (m *Memo) again(v *mesh.View, p *Proxy) *refreshed {
	if m == nil {
		return nil
	}
	r := &m.alike.refreshed
	if r.view == v && r.flavor == p.Flavor && sameSlice(r.ofRefs, p.refs) &&
		draft.SameList(r.of, p.Sealed.Resources[draft.RankEndpoint]) {
		return r
	}
	return nil
}
