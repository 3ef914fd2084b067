package generate

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Owner is a policy that shapes a resource.
type Owner struct {
	Policy resource.Key
	// Without is the resource as it would be without the policy; nil when it would not be there.
	Without *draft.Resource
}

// maxOwners bounds the policies that are tried for one proxy, from the strongest kind on.
const maxOwners = 256

// Owners finds out which policies shape a proxy's config: a policy owns a resource that would have other bytes, or
// would not be there, without it; what a policy has removed is owned by it too. The config is made once for each
// policy that selects the proxy, so this is for questions and not for every pass. Only resources that want admits are
// looked at, nil for all. The policies of a resource stand in the order in which their kinds act.
func (m *Mesh) Owners(name string, f node.Flavor, want func(draft.ResourceID) bool) (map[draft.ResourceID][]Owner, error) {
	memo := NewMemo()
	in := Input{Mesh: m, Name: name, Flavor: f}
	p, err := Generate(in, nil, memo)
	if err != nil {
		return nil, err
	}
	out := map[draft.ResourceID][]Owner{}
	if m.Policies == nil {
		return out, nil
	}
	acting := m.Policies.Match(p.dataplane).Policies()
	if len(acting) > maxOwners {
		acting = acting[len(acting)-maxOwners:]
	}
	for _, r := range acting {
		without, err := Generate(Input{Mesh: m.Without(r.Key), Name: name, Flavor: f}, nil, memo)
		if err != nil {
			continue // the proxy cannot be made without it: nothing can be said
		}
		for _, c := range Difference(p, without) {
			if want == nil || want(c.ResourceID) {
				out[c.ResourceID] = append(out[c.ResourceID], Owner{r.Key, c.To})
			}
		}
	}
	return out, nil
}

// Without is the mesh in which a policy does not act.
func (m *Mesh) Without(k resource.Key) *Mesh {
	out := *m
	out.options.Without = k
	out.Policies = policy.NewIndex(m.Policies.Plugins, m.set, m.View, out.options)
	return &out
}

// With is the mesh in which a policy, which must be one of the mesh, is another one of the same key.
func (m *Mesh) With(r *resource.Resource) *Mesh {
	all := m.set.All()
	if i := slices.IndexFunc(all, func(o *resource.Resource) bool { return o.Key == r.Key }); i >= 0 {
		all[i] = r
	}
	out := *m
	out.set = resource.NewSet(all)
	out.Policies = policy.NewIndex(m.Policies.Plugins, out.set, m.View, out.options)
	return &out
}
