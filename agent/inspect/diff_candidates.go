package inspect

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxCandidates bounds the resources of the change that are tried for one proxy.
const maxCandidates = 64

// candidate is a resource of the change that may cause something.
type candidate struct {
	ref     Ref
	key     resource.Key
	was, is *resource.Resource // as it acts before and after the change; nil: it does not

	without, alone attempt
}

// attempt is a mesh in which a part of the change was made.
type attempt struct {
	mesh *generate.Mesh
	done bool
}

// candidatesIn lists what of the change acts in a mesh, and reports whether the mesh has other resources afterwards: a
// shadow policy may come and go without acting.
func (d *differ) candidatesIn(mesh string) (out []*candidate, other bool) {
	for i := range d.out.Resources {
		r := &d.out.Resources[i]
		if r.Action == ActionUnchanged || r.Mesh != mesh && (r.Mesh != "" || r.Type == kindMesh && r.Name != mesh) {
			continue
		}
		other = other || r.Action != ActionActivated
		k := resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}
		c := &candidate{ref: Ref{Type: r.Type, Mesh: r.Mesh, Name: r.Name}, key: k}
		if c.was = d.c.Set.Get(k); c.was != nil && c.was.Shadow() {
			c.was = nil
		}
		if c.is = d.after.Get(k); c.is != nil && c.is.Shadow() && !d.c.Shadow {
			c.is = nil
		}
		if c.was != nil || c.is != nil {
			out = append(out, c)
		}
	}
	return out, other
}

// withoutOne is the mesh after the change, but for one resource.
func (d *differ) withoutOne(m *meshStates, c *candidate) *generate.Mesh {
	return d.try(&c.without, m.to, func() *resource.Set { return exchange(d.after.All(), c.key, c.was) })
}

// aloneOne is the mesh before the change, but for one resource.
func (d *differ) aloneOne(m *meshStates, c *candidate) *generate.Mesh {
	return d.try(&c.alone, m.from, func() *resource.Set {
		now := slices.DeleteFunc(d.c.Set.All(), func(r *resource.Resource) bool { return r.Shadow() })
		return exchange(now, c.key, c.is)
	})
}

// try derives a mesh once; nil when there is none.
func (d *differ) try(a *attempt, prev *generate.Mesh, set func() *resource.Set) *generate.Mesh {
	if a.done || prev == nil {
		return a.mesh
	}
	a.done = true
	d.work += len(prev.View.Services()) / 4 // what a view costs, compared with a config
	m, err := d.build(set(), prev.View.Name, prev)
	if err != nil || m == nil {
		return nil
	}
	if d.c.Shadow {
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

// potential lists the candidates that a proxy can notice: of policies, those that select it, and those that these refer to.
func (x *proxyStates) potential() []*candidate {
	named := map[string]bool{} // kinds that targetRefs name
	selected := map[resource.Key]bool{}
	kinds := map[string]bool{} // of policies
	for _, m := range [...]*generate.Mesh{x.mesh.from, x.mesh.to} {
		if m == nil || m.Policies == nil {
			continue
		}
		for i := range m.Policies.Plugins {
			kindsOf(&m.Policies.Plugins[i], kinds)
		}
		dp := m.View.Dataplane(x.id.Name)
		if dp == nil {
			continue
		}
		for _, r := range m.Policies.Match(dp).Policies() {
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
		if !kinds[c.key.Kind] || selected[c.key] || named[c.key.Kind] {
			out = append(out, c)
		}
	}
	return out
}

// kindsOf adds the kinds of policies of a plugin.
func kindsOf(plugin *policy.Plugin, to map[string]bool) {
	for _, d := range plugin.Kinds {
		to[d.Kind] = true
	}
	for _, l := range plugin.Legacy {
		to[l.Kind] = true
	}
}
