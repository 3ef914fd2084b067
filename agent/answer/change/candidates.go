package change

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxCandidates is the maximum number of resources of the change that are tried for one proxy.
const maxCandidates = 64

// candidate is a resource of the change that may cause an effect.
type candidate struct {
	ref     api.Ref
	key     resource.Key
	was, is *resource.Resource // as active before and after the change, or nil

	without, alone attempt
}

// attempt is a mesh with only a part of the change.
type attempt struct {
	mesh *generate.Mesh
	done bool
}

// candidatesIn returns the resources of the change that affect a mesh. other reports whether the
// mesh has other resources after the change, for example inactive shadow policies.
func (s *states) candidatesIn(mesh string) (out []*candidate, other bool) {
	for i := range s.resources {
		r := &s.resources[i]
		if r.Action == api.ActionUnchanged || r.Mesh != mesh && (r.Mesh != "" || r.Type == kindMesh && r.Name != mesh) {
			continue
		}
		other = other || r.Action != api.ActionActivated
		k := resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}
		c := &candidate{ref: api.RefOf(k), key: k}
		if c.was = s.Set.Get(k); c.was != nil && c.was.Shadow() {
			c.was = nil
		}
		if c.is = s.after.Get(k); c.is != nil && c.is.Shadow() && !s.Shadow {
			c.is = nil
		}
		if c.was != nil || c.is != nil {
			out = append(out, c)
		}
	}
	return out, other
}

// withoutOne returns the mesh after the change with one resource in its previous state, or nil.
func (s *states) withoutOne(m *meshStates, c *candidate) *generate.Mesh {
	return s.try(&c.without, m.to, func() *resource.Set { return exchange(s.after.All(), c.key, c.was) })
}

// aloneOne returns the mesh before the change with only one resource of the change applied, or nil.
func (s *states) aloneOne(m *meshStates, c *candidate) *generate.Mesh {
	return s.try(&c.alone, m.from, func() *resource.Set {
		now := slices.DeleteFunc(s.Set.All(), func(r *resource.Resource) bool { return r.Shadow() })
		return exchange(now, c.key, c.is)
	})
}

// try derives a mesh once.
func (s *states) try(a *attempt, prev *generate.Mesh, set func() *resource.Set) *generate.Mesh {
	if a.done || prev == nil {
		return a.mesh
	}
	a.done = true
	s.derived += len(prev.View.Services())
	m, err := s.build(set(), prev.View.Name, prev)
	if err != nil || m == nil {
		return nil
	}
	if s.Shadow {
		m = m.Shadow()
	}
	a.mesh = m
	return m
}

// exchange returns a set in which a resource replaces another one, or removes it if by is nil.
func exchange(list []*resource.Resource, k resource.Key, by *resource.Resource) *resource.Set {
	list = slices.DeleteFunc(list, func(r *resource.Resource) bool { return r.Key == k })
	if by != nil {
		list = append(list, by)
	}
	return resource.NewSet(list)
}

// potential returns the candidates that can affect a proxy: policies that select it, and resources
// of the kinds that these refer to. If there are more than maxCandidates, it returns a few more
// than that, and no causes are searched.
func (x *proxyStates) potential() []*candidate {
	named := map[string]bool{} // kinds that targetRefs name
	selected := map[resource.Key]bool{}
	for _, m := range [...]*generate.Mesh{x.mesh.from, x.mesh.to} {
		for _, r := range attribute.Acting(m, x.ProxyID, x.crew[0].memo) {
			selected[r.Key] = true
			spec, ok := r.Spec.(*resource.Policy)
			if !ok {
				continue
			}
			if spec.TargetRef != nil {
				named[spec.TargetRef.Kind] = true
			}
			for i := range spec.To {
				named[spec.To[i].TargetRef.Kind] = true
			}
		}
	}
	var out []*candidate
	for _, c := range x.mesh.candidates {
		if !x.mesh.policies[c.key.Kind] || selected[c.key] || named[c.key.Kind] {
			if out = append(out, c); len(out) > maxCandidates {
				break
			}
		}
	}
	return out
}
