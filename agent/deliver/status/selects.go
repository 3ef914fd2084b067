package status

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Selects reports whether a policy selects a dataplane and is not superseded there by targetRef
// policies.
func Selects(m *generate.Mesh, r, dp *resource.Resource) bool {
	if _, ok := r.Spec.(*resource.Policy); ok {
		return m.Policies.Select(r, dp).Proxy
	}
	selected, superseded := selectsLegacy(m, r, dp)
	return selected && !superseded
}

// selectsLegacy reports whether a legacy policy selects a dataplane, and whether targetRef policies
// supersede it there.
func selectsLegacy(m *generate.Mesh, r, dp *resource.Resource) (selected, superseded bool) {
	for _, plugin := range m.Policies.Plugins {
		for _, l := range plugin.Legacy {
			if l.Kind != r.Kind {
				continue
			}
			selected = m.Policies.SelectLegacy(r, dp, l.Inbound).Selected
			superseded = slices.ContainsFunc(l.ReplacedBy, func(kind string) bool {
				return slices.ContainsFunc(m.Policies.Policies(kind), func(o *resource.Resource) bool {
					return m.Policies.Select(o, dp).Proxy
				})
			})
			return selected, superseded
		}
	}
	return false, false
}

// selected counts the dataplanes that a policy selects.
func (x *situation) selected(sub *subject, out *api.Applied) {
	if x.last == nil {
		return
	}
	m := x.last.Meshes[sub.key.Mesh]
	if m == nil || m.Policies == nil {
		return
	}
	superseded := 0
	for _, dp := range x.snap.Set().InMesh(kindDataplane, sub.key.Mesh) {
		if m.View.Dataplane(dp.Name) == nil {
			continue
		}
		if _, ok := sub.current.Spec.(*resource.Policy); ok {
			if m.Policies.Select(sub.current, dp).Proxy {
				out.Selected++
			}
			continue
		}
		switch selected, over := selectsLegacy(m, sub.current, dp); {
		case selected && over:
			superseded++
		case selected:
			out.Selected++
		}
	}
	switch {
	case out.Selected > 0:
	case superseded > 0:
		out.State, out.Reason = api.StateReplaced, "targetRef policies supersede it on all dataplanes that it selects"
	default:
		out.State, out.Reason = api.StateUnselected, "it selects no dataplane of the mesh"
	}
}
