package timeout

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ended returns the route that keeps a Timeout from acting on a destination, as legacyApplier.of has it.
func ended(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
	for _, kind := range [...]string{kindHTTPRoute, kindTCPRoute} {
		if rule := r.Kind(kind).Outbound(s); rule != nil && len(rule.Origins) > 0 {
			return rule.Origins[len(rule.Origins)-1].Policy
		}
	}
	return nil
}
