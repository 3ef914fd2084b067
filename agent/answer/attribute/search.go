// Package attribute finds the policies behind a part of a proxy's config. It generates the config
// without each candidate policy: if the part differs, the policy contributes to it. A [Search]
// limits the number of these trials and can also find the innermost field of a policy that matters.
//
// The package is pure. Each trial generates a whole config, so use it to answer questions, not in
// the reconcile loop.
package attribute

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxPolicies limits the policies that [Owners] tries for one proxy.
const maxPolicies = 256

// Candidate is a resource that may be a cause.
type Candidate struct {
	Key      resource.Key
	Resource *resource.Resource    // in its active form; nil: no longer active
	Mesh     func() *generate.Mesh // the mesh without it; nil if that mesh does not exist
}

// Search generates the config of one proxy in variants of a mesh.
type Search struct {
	ID   generate.ProxyID
	Memo *generate.Memo
	Prev *generate.Proxy // a similar config of the proxy, to reuse; nil: none
	// Decode reads the canonical JSON of a resource; nil disables the search for fields.
	Decode func([]byte) (*resource.Resource, error)
	Spent  func() bool // reports whether the limit of trials is reached
	Trials int         // configs generated so far
}

// Acting returns the policies that apply to a proxy, in the order in which they are applied. The
// mesh and the memo may be nil.
func Acting(m *generate.Mesh, id generate.ProxyID, memo *generate.Memo) []*resource.Resource {
	if m == nil || m.Policies == nil || m.View.Dataplane(id.Name) == nil || id.Flavor == node.FlavorGRPC {
		return nil
	}
	return memo.Match(m.Policies, m.View.Dataplane(id.Name)).Policies()
}

// Of returns an active policy of a mesh as a candidate.
func Of(m *generate.Mesh, r *resource.Resource) Candidate {
	return Candidate{Key: r.Key, Resource: r, Mesh: func() *generate.Mesh { return m.Without(r.Key) }}
}

// Try generates the config without each candidate and calls visit with it and its mesh, until visit
// returns false or the limit of trials is reached. The config is nil if the dataplane does not
// exist without the candidate. Try skips a candidate if generation without it fails.
func (s *Search) Try(list []Candidate, visit func(c *Candidate, m *generate.Mesh, p *generate.Proxy) bool) {
	for i := range list {
		if s.Spent() {
			return
		}
		m := list[i].Mesh()
		if m == nil {
			continue
		}
		if p, err := s.In(m); err == nil && !visit(&list[i], m, p) {
			return
		}
	}
}

// In generates the config of the proxy in a mesh.
func (s *Search) In(m *generate.Mesh) (*generate.Proxy, error) {
	s.Trials++
	return s.ID.In(m, s.Prev, s.Memo)
}

// Owners returns the policies that shape the resources of a proxy's config: without such a policy,
// the resource would have different bytes, not exist, or not have been removed. It considers only
// resources that want accepts. The policies of a resource are in the order in which they are
// applied. If more than maxPolicies select the proxy, the first ones are skipped.
func Owners(m *generate.Mesh, id generate.ProxyID,
	want func(draft.ResourceID) bool) (map[draft.ResourceID][]resource.Key, error) {
	s := Search{ID: id, Memo: generate.NewMemo(), Spent: func() bool { return false }}
	now, err := s.In(m)
	if err != nil {
		return nil, err
	}
	acting := Acting(m, id, s.Memo)
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

// pathsOf returns at most most paths that a change affects, for display.
func pathsOf(c *generate.Change, most int) ([]string, error) {
	out := []string{}
	if c.From == nil {
		return out, nil
	}
	renderer, err := generate.NewRenderer(nil)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(renderer, c)
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

// fieldsOf returns the fields of a resource that a change affects.
func fieldsOf(renderer *generate.Renderer, c *generate.Change) ([]jsonpatch.FieldChange, error) {
	from, to, err := renderer.Both(c)
	if err != nil {
		return nil, err
	}
	return jsonpatch.FieldsBetween(from, to)
}
