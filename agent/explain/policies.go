package explain

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ProxyPolicies lists the policies that select a dataplane, with what of them is in force, and what the dataplane
// reaches; backend is as for [Proxy.Reach]. It is pure. The error is an *generate.NotFoundError when the mesh has no
// such dataplane.
func ProxyPolicies(m *generate.Mesh, name, backend string) (*Policies, []mesh.Warning, error) {
	p, warnings, err := explainProxy(m, name)
	if err != nil {
		return nil, nil, err
	}
	out := &Policies{Mesh: m.View.Name, Name: name, Items: []PolicyBrief{}, Reach: p.Reach(backend, nil)}
	listed := map[Ref]bool{}
	for _, x := range p.Policies() {
		listed[x.Policy] = true
		out.Items = append(out.Items, PolicyBrief{
			Ref: x.Policy, Legacy: x.Legacy, Selected: x.Selected, Reason: x.Reason, Inbounds: x.Inbounds,
			Outbounds: x.Outbounds, Gateway: x.Gateway, Effect: x.Effect, Warnings: x.Warnings,
		})
	}
	out.Total = len(out.Items)
	warnings = slices.DeleteFunc(warnings, func(w mesh.Warning) bool {
		return listed[RefOf(w.Resource)]
	})
	return out, warnings, nil
}

// PolicyOn says whether a policy selects a dataplane and what of it is in force, or why not. The policy need not
// be one that acts. backend is as for [Proxy.ReachBy]. It is pure. The error is an *generate.NotFoundError when the mesh
// has no such dataplane.
func PolicyOn(m *generate.Mesh, policy *resource.Resource, dataplane, backend string) (*Policy, error) {
	p, _, err := explainProxy(m, dataplane)
	if err != nil {
		return nil, err
	}
	x := p.Policy(policy)
	p.ReachBy(policy, backend, &x)
	return &x, nil
}
