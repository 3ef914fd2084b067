// Package attribute finds the policies behind a part of a proxy's config by leaving policies out:
// one without which the part would be different is behind it. A [Search] makes the config again
// without each candidate, within bounds, and asks its caller what became of what is searched for;
// it also finds the innermost field of a policy that matters.
//
// The package is pure. Each trial costs one config, so that it is for questions and never for every
// pass.
package attribute

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxPolicies bounds the policies that are left out of the config of one proxy.
const maxPolicies = 256

// Candidate is a resource that may be behind something.
type Candidate struct {
	Key      resource.Key
	Resource *resource.Resource    // as it acts; nil: it does not act any more
	Mesh     func() *generate.Mesh // without it; nil where there is no such mesh
}

// Search makes the config of one proxy in meshes that differ in what acts.
type Search struct {
	ID   generate.ProxyID
	Memo *generate.Memo
	Prev *generate.Proxy // a config of the proxy that is like those to be made; nil: none
	// reads a resource of its canonical form; nil: no fields are searched for
	Decode func([]byte) (*resource.Resource, error)
	Spent  func() bool // no further config may be made
	Trials int         // configs made so far
}

// Acting returns the policies that act on a proxy in a mesh, which may be nil, in the order in
// which they act.
func Acting(m *generate.Mesh, id generate.ProxyID) []*resource.Resource {
	if m == nil || m.Policies == nil || m.View.Dataplane(id.Name) == nil || id.Flavor == node.FlavorGRPC {
		return nil
	}
	return m.Policies.Match(m.View.Dataplane(id.Name)).Policies()
}

// Of returns a policy that acts in a mesh as a candidate.
func Of(m *generate.Mesh, r *resource.Resource) Candidate {
	return Candidate{Key: r.Key, Resource: r, Mesh: func() *generate.Mesh { return m.Without(r.Key) }}
}

// Try makes the config without each candidate and gives it to judge, with the mesh that it is made
// in, until judge returns false or no further config may be made. The config is nil where the
// dataplane does not exist without the candidate. A candidate without which no config can be made
// is passed over: nothing can be said about it.
func (s *Search) Try(list []Candidate, judge func(c *Candidate, m *generate.Mesh, p *generate.Proxy) bool) {
	for i := range list {
		if s.Spent() {
			return
		}
		m := list[i].Mesh()
		if m == nil {
			continue
		}
		if p, err := s.In(m); err == nil && !judge(&list[i], m, p) {
			return
		}
	}
}

// In makes the config of the proxy in a mesh.
func (s *Search) In(m *generate.Mesh) (*generate.Proxy, error) {
	s.Trials++
	return s.ID.In(m, s.Prev, s.Memo)
}

// Owners returns the policies that shape resources of a proxy's config: those without which a
// resource would have other bytes or would not exist, and those that remove it. Only resources that
// want admits are looked at. The policies of a resource are in the order in which their kinds act;
// where too many select the proxy, the first of them are passed over.
func Owners(m *generate.Mesh, id generate.ProxyID,
	want func(draft.ResourceID) bool) (map[draft.ResourceID][]resource.Key, error) {
	s := Search{ID: id, Memo: generate.NewMemo(), Spent: func() bool { return false }}
	now, err := s.In(m)
	if err != nil {
		return nil, err
	}
	acting := Acting(m, id)
	list := make([]Candidate, 0, len(acting))
	for _, r := range acting[max(0, len(acting)-maxPolicies):] {
		list = append(list, Of(m, r))
	}
	s.Prev = now
	out := map[draft.ResourceID][]resource.Key{}
	s.Try(list, func(c *Candidate, _ *generate.Mesh, without *generate.Proxy) bool {
		for _, d := range generate.Difference(now, without) {
			if want(d.ResourceID) {
				out[d.ResourceID] = append(out[d.ResourceID], c.Key)
			}
		}
		return true
	})
	return out, nil
}

// pathsOf returns the places of a resource that a change is about, for people.
func pathsOf(c *generate.Change, most int) ([]string, error) {
	out := []string{}
	if c.From == nil {
		return out, nil
	}
	renderer, err := generate.NewRenderer(nil)
	if err != nil {
		return nil, err
	}
	from, to, err := renderer.Both(c)
	if err != nil {
		return nil, err
	}
	fields, err := jsonpatch.FieldsBetween(from, to)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if len(out) < most && !slices.Contains(out, f.Path) {
			out = append(out, f.Path)
		}
	}
	return out, nil
}
