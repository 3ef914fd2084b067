package effect

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Then returns the verdict about the proxies of v followed by those of next. It is for callers that
// ask about a mesh in several steps.
func (v MeshVerdict) Then(next MeshVerdict) MeshVerdict {
	selected := v.Selected + next.Selected
	switch {
	case v.InForce():
		return v
	case next.InForce(), v.Dataplane == "", next.Dataplane != "" && rankOf(&next.Verdict) > rankOf(&v.Verdict):
		v = next
	}
	v.Selected = selected
	return v
}

// Lacking reports whether the policy has no effect on any proxy although it selects some, so that
// it deserves a warning. A policy that sets the same value as another one or the default is
// correct, and one whose change an Envoy was not given has another problem.
func (v *MeshVerdict) Lacking() bool {
	return v.Effect == api.EffectNone && v.Held == "" && v.Selected > 0
}

// Unexplained reports whether nothing is known about why the policy has no effect.
func (v *MeshVerdict) Unexplained() bool { return v.Reason == "" && len(v.By) == 0 }

// Lacks says whether to warn that a policy has no effect on any proxy of the mesh. It does not if
// the reason may be a legacy policy that sets the same values without the policy.
func (x *Examiner) Lacks(r *resource.Resource) (MeshVerdict, bool) {
	v := x.InMesh(r, nil)
	return v, v.Lacking() && !(v.Unexplained() && Supersedes(x.mesh, r))
}

// Supersedes reports whether the mesh has legacy policies that a policy supersedes. Without the
// policy, these may set the same values.
func Supersedes(m *generate.Mesh, r *resource.Resource) bool {
	for i := range m.Policies.Plugins {
		p := &m.Policies.Plugins[i]
		for _, d := range p.Kinds {
			for _, l := range p.Legacy {
				if d.Kind == r.Kind && len(m.Policies.Policies(l.Kind)) > 0 {
					return true
				}
			}
		}
	}
	return false
}
