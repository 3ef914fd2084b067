package edges

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// addNodes groups the services and the dataplanes by name.
func (g *Graph) addNodes() {
	found := map[string]*node{}
	get := func(name, kind string) *node {
		n := found[name]
		if n == nil {
			n = &node{name: name, kind: kind}
			found[name] = n
		}
		return n
	}
	for i, s := range g.v.Services() {
		name, kind := g.nameOf(s)
		n := get(name, kind)
		n.dests = append(n.dests, int32(i))
		if kind == mesh.KindMeshService { // selected by other tags than kuma.io/service
			for j := range s.Endpoints.List {
				if at := g.dataplaneAt(s.Endpoints.List[j].Resource); at >= 0 && !slices.Contains(n.servers, at) {
					n.servers = append(n.servers, at)
				}
			}
		}
	}
	for i, r := range g.v.Dataplanes() {
		dp, ok := r.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		names := g.v.ProxyTags(dp)[resource.TagService]
		for _, name := range names {
			n := get(name, mesh.KindTag)
			n.gateway = n.gateway || dp.Networking.Gateway != nil
			n.members = append(n.members, int32(i))
		}
		if len(names) == 0 {
			n := get(kindDataplane+"/"+r.Name, kindDataplane)
			n.members = append(n.members, int32(i))
		}
	}
	for _, n := range found {
		g.nodes = append(g.nodes, n)
	}
	slices.SortFunc(g.nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	for i, n := range g.nodes {
		g.byName[n.name] = i
	}
}

const kindDataplane = "Dataplane"

// nameOf returns the name and kind of the node of a service. A MeshService that selects exactly a
// value of kuma.io/service belongs to that value.
func (g *Graph) nameOf(s *mesh.Service) (name, kind string) {
	switch s.ID.Kind {
	case mesh.KindTag:
		return s.Tag, mesh.KindTag
	case mesh.KindMeshService:
		r := g.v.MeshService(s.Resource)
		if r == nil {
			return s.Resource.Name, mesh.KindTag // derived from the value
		}
		if spec, ok := r.Spec.(*resource.MeshService); ok && len(spec.Selector.DataplaneTags) == 1 {
			if tag := spec.Selector.DataplaneTags[resource.TagService]; tag != "" && tag != "*" {
				return tag, mesh.KindTag
			}
		}
	}
	return s.ID.Kind + "/" + s.Resource.Name, s.ID.Kind
}

// dataplaneAt returns the index of a dataplane in the view, or -1.
func (g *Graph) dataplaneAt(r *resource.Resource) int32 {
	if r == nil || r.Kind != kindDataplane {
		return -1
	}
	i, ok := slices.BinarySearchFunc(g.v.Dataplanes(), r.Name, func(d *resource.Resource, name string) int {
		return strings.Compare(d.Name, name)
	})
	if !ok {
		return -1
	}
	return int32(i)
}
