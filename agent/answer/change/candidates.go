package change

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxCandidates bounds the resources of the change that are tried for one proxy.
const maxCandidates = 64

// candidate is a resource of the change that may cause something.
type candidate struct {
	ref     api.Ref
	key     resource.Key
	was, is *resource.Resource // as it acts before and after the change; nil: it does not

	without, alone attempt
}

// attempt is a mesh in which a part of the change was made.
type attempt struct {
	mesh *generate.Mesh
	done bool
}

// candidatesIn returns what of the change acts in a mesh, and reports whether the mesh has other
// resources afterwards: a shadow policy may come and go without acting.
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

// withoutOne is the mesh after the change, but for one resource; nil where there is none.
func (s *states) withoutOne(m *meshStates, c *candidate) *generate.Mesh {
	return s.try(&c.without, m.to, func() *resource.Set { return exchange(s.after.All(), c.key, c.was) })
}

// aloneOne is the mesh before the change, but for one resource; nil where there is none.
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

// exchange puts another resource in the place of one; nil: none.
func exchange(list []*resource.Resource, k resource.Key, by *resource.Resource) *resource.Set {
	list = slices.DeleteFunc(list, func(r *resource.Resource) bool { return r.Key == k })
	if by != nil {
		list = append(list, by)
	}
	return resource.NewSet(list)
}

// potential returns the candidates that can act on a proxy: of policies, those that select it, and
// those of the kinds that these refer to. With more than maxCandidates it returns some more than
// these: nobody looks for causes among so many.
func (x *proxyStates) potential() []*candidate {
	named := map[string]bool{} // kinds that targetRefs name
	selected := map[resource.Key]bool{}
	for _, m := range [...]*generate.Mesh{x.mesh.from, x.mesh.to} {
		for _, r := range attribute.Acting(m, x.ProxyID) {
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
