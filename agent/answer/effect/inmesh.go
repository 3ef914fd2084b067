package effect

import (
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// InMesh says whether a policy is in force on any of the proxies; nil stands for all dataplanes of
// the mesh. It ends at the first proxy where it is.
func (x *Examiner) InMesh(policy *resource.Resource, proxies []string) MeshVerdict {
	if reason := x.inactive(policy); reason != "" {
		return MeshVerdict{Verdict: Verdict{Effect: api.EffectNone, Reason: reason}}
	}
	if proxies == nil {
		for _, d := range x.mesh.View.Dataplanes() {
			proxies = append(proxies, d.Name)
		}
	}
	out := MeshVerdict{Verdict: Verdict{Effect: api.EffectNone}}
	best := -1
	for _, name := range proxies {
		v := x.on(policy, name)
		if v.Selected {
			out.Selected++
		}
		if v.InForce() {
			out.Verdict, out.Dataplane = v, name
			return out
		}
		if rank := rankOf(&v); v.Selected && rank > best {
			best, out.Verdict, out.Dataplane = rank, v, name
		}
	}
	if out.Effect == api.EffectNone && x.mesh.View.ThroughEgress() &&
		x.leaveOut(policy.Key).Policies.OutsideDigest() != x.mesh.Policies.OutsideDigest() {
		out.Effect, out.Reason = api.EffectUnknown, "zone egresses may apply it to destinations outside the mesh"
	}
	return out
}

// rankOf orders the effects of a policy that is not in force on a proxy. The best reason is an
// override, and the worst one that of a proxy to which no item of the policy applies.
func rankOf(v *Verdict) int {
	switch {
	case v.Effect == api.EffectUnknown:
		return 6
	case v.Held != "":
		return 5
	case v.Effect == api.EffectSame:
		return 4
	case v.Effect == api.EffectDefault:
		return 3
	case len(v.By) > 0:
		return 2
	case v.placed:
		return 1
	}
	return 0
}
