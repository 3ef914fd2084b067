package effect

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// unaffected reports whether a proxy cannot depend on a policy: the policy does not select it,
// restricts none of its destinations, and no other policy refers to it. It generates nothing.
func (x *Examiner) unaffected(r *resource.Resource, p *proxy) bool {
	if p.selects[r.Key] {
		return false
	}
	without := x.leaveOut(r.Key).Policies
	if p.reach != without.ReachDigest(p.dataplane) {
		return false
	}
	if _, _, legacy := KindOf(x.mesh.Policies, r.Kind); legacy == nil && !x.referred(r.Kind) {
		return true
	}
	return without.Match(p.dataplane).Fingerprint == p.match.Fingerprint
}

// referred reports whether policies may refer to resources of a kind.
func (x *Examiner) referred(kind string) bool {
	return x.mesh.Policies.Routes(kind) || slices.ContainsFunc(x.mesh.Policies.Plugins, func(p policy.Plugin) bool {
		return slices.ContainsFunc(p.Refers, func(d resource.Descriptor) bool { return d.Kind == kind })
	})
}
