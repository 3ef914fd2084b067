package xds

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ResourceID names a resource of a proxy's config.
type ResourceID struct {
	TypeURL string
	Name    string
}

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
func (m *Mesh) Owners(name string, f Flavor, want func(ResourceID) bool) (map[ResourceID][]Owner, error) {
	memo := NewMemo()
	in := Input{Mesh: m, Name: name, Flavor: f}
	p, err := Generate(in, nil, memo)
	if err != nil {
		return nil, err
	}
	out := map[ResourceID][]Owner{}
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
		for rank, typeURL := range draft.Types {
			each(p.Sealed.Resources[rank], without.Sealed.Resources[rank], func(name string, other *draft.Resource) {
				if id := (ResourceID{typeURL, name}); want == nil || want(id) {
					out[id] = append(out[id], Owner{r.Key, other})
				}
			})
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

// each calls f for every name whose bytes differ between two sorted lists, with the resource of b, which is nil where
// b has none.
func each(a, b []*draft.Resource, f func(name string, other *draft.Resource)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			f(a[0].Name, nil)
			a = a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			f(b[0].Name, b[0])
			b = b[1:]
		default:
			if a[0].Version != b[0].Version {
				f(a[0].Name, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
}

// Changed returns the resources of which two configs have different bytes, or one has none, sorted by type and name.
func Changed(a, b *Proxy) []ResourceID {
	var out []ResourceID
	for rank, typeURL := range draft.Types {
		each(a.Sealed.Resources[rank], b.Sealed.Resources[rank], func(name string, _ *draft.Resource) {
			out = append(out, ResourceID{typeURL, name})
		})
	}
	slices.SortStableFunc(out, func(a, b ResourceID) int { return strings.Compare(a.TypeURL, b.TypeURL) })
	return out
}
