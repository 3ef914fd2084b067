package policy

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Permitting returns an index whose Permissions need no preparation. It is for callers that ask
// about many dataplanes. set must be the resource set of the index.
func (x *Index) Permitting(set *resource.Set) *Index {
	if x.guard != nil {
		return x
	}
	out := *x
	out.guard = x.newGuard(set, nil)
	return &out
}

// PermissionPlugins returns the plugins that decide which clients an inbound admits.
func (x *Index) PermissionPlugins() []*Plugin {
	var out []*Plugin
	for i := range x.Plugins {
		if x.Plugins[i].Admits != nil {
			out = append(out, &x.Plugins[i])
		}
	}
	return out
}

// PermissionMatcher matches dataplanes with the policies that decide which clients their inbounds
// admit. It looks at few policies for each dataplane, and is not safe for concurrent use.
type PermissionMatcher struct {
	x       *Index
	kinds   map[string]bool // including legacy ones
	byKind  map[string]*permissionIndex
	matches map[[32]byte]*KindRules
}

// permissionIndex finds the policies of a kind that may select a dataplane.
type permissionIndex struct {
	others    []placed            // may select any dataplane
	byService map[string][]placed // select only inbounds with a value of kuma.io/service
}

// placed is a policy with its place in the order of precedence.
type placed struct {
	rank   int
	policy *resource.Resource
}

// PermissionMatcher indexes the policies of [Index.PermissionPlugins].
func (x *Index) PermissionMatcher() *PermissionMatcher {
	out := &PermissionMatcher{x: x, kinds: map[string]bool{}, byKind: map[string]*permissionIndex{},
		matches: map[[32]byte]*KindRules{}}
	for _, p := range x.PermissionPlugins() {
		for i := range p.Legacy {
			out.kinds[p.Legacy[i].Kind] = true
		}
		for i := range p.Kinds {
			kind := p.Kinds[i].Kind
			index := &permissionIndex{byService: map[string][]placed{}}
			out.kinds[kind], out.byKind[kind] = true, index
			for rank, r := range x.Policies(kind) {
				services, ok := x.servicesOf(r)
				if !ok {
					index.others = append(index.others, placed{rank, r})
				}
				for _, s := range services {
					index.byService[s] = append(index.byService[s], placed{rank, r})
				}
			}
		}
	}
	return out
}

// servicesOf returns values of kuma.io/service, one of which each inbound has that a policy
// selects. It returns false if the policy may select others.
func (x *Index) servicesOf(r *resource.Resource) ([]string, bool) {
	spec, ok := r.Spec.(*resource.Policy)
	if !ok || spec.TargetRef == nil {
		return nil, false
	}
	t := spec.TargetRef
	switch {
	case t.Kind == "MeshSubset" && t.Tags[resource.TagService] != "" && t.Tags[resource.TagService] != "*":
		return []string{t.Tags[resource.TagService]}, true
	case t.Kind == "MeshServiceSubset" && t.Name != "" && t.Name != "*":
		return []string{t.Name}, true
	case t.Kind == mesh.KindMeshService && t.Name != "" && t.Name != "*":
		out := []string{t.Name}
		for _, k := range x.Resolve(r, t) {
			service := x.selectorTags(k)[resource.TagService]
			if service == "" || service == "*" {
				return nil, false
			}
			out = append(out, service)
		}
		slices.Sort(out)
		return slices.Compact(out), true
	}
	return nil, false
}

// Match is like [Index.Match] but selects only the policies of the matcher.
func (p *PermissionMatcher) Match(dataplane *resource.Resource) *Match {
	s := p.x.selector(dataplane)
	m := p.x.matchOf(s, func(kind string) bool { return p.kinds[kind] }, func(kind string) []*resource.Resource {
		index := p.byKind[kind]
		list := slices.Clone(index.others)
		for _, tags := range s.tags {
			list = append(list, index.byService[tags[resource.TagService]]...)
		}
		slices.SortFunc(list, func(a, b placed) int { return cmp.Compare(a.rank, b.rank) })
		list = slices.Compact(list)
		out := make([]*resource.Resource, len(list))
		for i := range list {
			out[i] = list[i].policy
		}
		return out
	})
	m.Share(p.matches)
	return m
}
