package policy

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// guard derives from the policies of the kind that says who may come in which services a proxy may reach: a service
// that admits no inbound of the proxy needs no config there. It looks at services by the tags that they select
// workloads by, so that no workload is looked at.
type guard struct {
	admits func(resource.Conf) bool
	// Policies by the kuma.io/service that they are about, under "" those that name none.
	byService map[string][]guarded
	digest    [32]byte
}

// guarded is a policy with the tags that it wants of an inbound.
type guarded struct {
	want  map[string]string
	items []item
	rank  int
}

// newGuard is nil when the mesh has no mutual TLS, without which nobody is kept out, or no kind that guards.
func (x *Index) newGuard() *guard {
	if x.View.Spec.MTLSEnabled() == nil {
		return nil
	}
	for _, room := range x.Rooms {
		if room.Admits == nil {
			continue
		}
		g := &guard{admits: room.Admits, byService: map[string][]guarded{}}
		fp := fingerprint{h: sha256.New()}
		b := builder{x: x, k: &KindRules{}}
		for _, d := range room.Kinds {
			for i, p := range x.Policies(d.Kind) {
				fp.resource(p)
				g.add(&b, p, i)
			}
		}
		fp.h.Sum(g.digest[:0])
		return g
	}
	return nil
}

func (g *guard) add(b *builder, p *resource.Resource, rank int) {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return
	}
	var items []item
	for i := range spec.From {
		it := item{origin: Origin{p, i}, ref: &spec.From[i].TargetRef, conf: spec.From[i].Conf}
		if it.conf != nil && b.client(&it) {
			items = append(items, it)
		}
	}
	t := spec.TargetRef
	if t == nil {
		t = wholeMesh
	}
	put := func(want map[string]string) {
		s := want[resource.TagService]
		g.byService[s] = append(g.byService[s], guarded{want, items, rank})
	}
	switch t.Kind {
	case kindMesh:
		put(nil)
	case "MeshSubset":
		put(t.Tags)
	case mesh.KindMeshService, "MeshServiceSubset":
		want := maps.Clone(t.Tags)
		if want == nil {
			want = map[string]string{}
		}
		want[resource.TagService] = t.Name
		put(want)
		for _, k := range b.x.resolve(p, t) { // a real service is known by what it selects
			if r := b.x.View.Real(k); r != nil {
				put(selectorTags(r))
			}
		}
	case "Dataplane":
		// One workload of a service that admits the client is enough to dial it.
		for _, d := range b.x.View.Dataplanes() {
			sel := b.x.Select(p, d)
			dp, _ := d.Spec.(*resource.Dataplane)
			for _, i := range sel.Inbounds {
				put(map[string]string{resource.TagService: dp.Networking.Inbound[i].Tags[resource.TagService]})
			}
		}
	}
}

// selectorTags are the tags by which a MeshService selects workloads.
func selectorTags(r *resource.Resource) map[string]string {
	if spec, ok := r.Spec.(*resource.MeshService); ok {
		return spec.Selector.DataplaneTags
	}
	return nil
}

// admitted reports whether a service with these tags admits some client of these sets of tags. Of the tags that a
// policy wants only those count that the service is known by: the others are of single workloads.
func (g *guard) admitted(service map[string]string, clients []map[string]string) bool {
	var about []guarded
	for _, list := range [...][]guarded{g.byService[""], g.byService[service[resource.TagService]]} {
		for _, p := range list {
			matches := true
			for k, v := range p.want {
				if have, ok := service[k]; ok && have != v && v != "*" {
					matches = false
				}
			}
			if matches {
				about = append(about, p)
			}
		}
		if service[resource.TagService] == "" {
			break // both lists are one
		}
	}
	slices.SortStableFunc(about, func(a, b guarded) int { return a.rank - b.rank })
	for _, tags := range clients {
		if tags == nil {
			continue
		}
		var confs []resource.Conf
		for _, p := range about {
			for _, it := range p.items {
				if !slices.ContainsFunc(it.subset, func(t Tag) bool { return tags[t.Key] != t.Value }) {
					confs = append(confs, it.conf)
				}
			}
		}
		if len(confs) > 0 && g.admits(resource.Merge(confs...)) {
			return true
		}
	}
	return false
}

// Outbounds returns what a dataplane may reach, as [mesh.View.Outbounds] does. With AutoReachable it leaves out the
// virtual addresses of services whose permissions admit none of its inbounds, unless the dataplane itself lists what
// it reaches. Services outside the mesh stay: no permission can be about them.
func (x *Index) Outbounds(dataplane *resource.Resource) ([]mesh.Outbound, []mesh.Warning) {
	all, warnings := x.View.Outbounds(dataplane)
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if x.guard == nil || !ok || !derives(dp) {
		return all, warnings
	}
	clients := tagSets(x.View, dp)
	known := map[mesh.ServiceID]bool{}
	return slices.DeleteFunc(all, func(o mesh.Outbound) bool {
		s := o.Service
		if !s.VIP.IsValid() || o.Address != s.VIP && o.Address != s.VIP6 || s.External {
			return false
		}
		ok, seen := known[s.ID]
		if !seen {
			ok = x.admits(s, clients)
			known[s.ID] = ok
		}
		return !ok
	}), warnings
}

// derives reports whether what a dataplane reaches is left to the permissions.
func derives(dp *resource.Dataplane) bool {
	tp := dp.Networking.TransparentProxying
	return tp != nil && len(tp.ReachableServices) == 0 && tp.ReachableBackends == nil
}

func (x *Index) admits(s *mesh.Service, clients []map[string]string) bool {
	switch s.ID.Kind {
	case mesh.KindTag:
		return x.guard.admitted(x.View.InboundTags(map[string]string{resource.TagService: s.Tag}), clients)
	case mesh.KindMeshService:
		tags := map[string]string{resource.TagService: s.Resource.Name} // one that is derived selects by its name
		if r := x.View.Real(s.Resource); r != nil {
			tags = selectorTags(r)
		}
		tags = x.View.InboundTags(tags)
		tags[resource.LabelOrigin] = "zone"
		return x.guard.admitted(tags, clients)
	case mesh.KindMeshMultiZoneService:
		for i := range s.Endpoints.List {
			if x.guard.admitted(s.Endpoints.List[i].Tags, clients) {
				return true
			}
		}
		return len(s.Endpoints.List) == 0
	}
	return true
}
