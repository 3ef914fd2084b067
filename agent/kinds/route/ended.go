package route

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ended returns the policy that keeps a TrafficRoute from making the chain of a destination, as outbound has it.
func ended(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
	by := r.Kind(kindTCP)
	if tcp := by.Outbound(s); tcp != nil {
		return strongest(tcp)
	}
	if isHTTP(s.Protocol) {
		by = r.Kind(kindHTTP)
	}
	if by == nil || len(by.Policies) == 0 {
		return nil
	}
	return by.Policies[len(by.Policies)-1]
}
