package circuitbreaker

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ended returns the policy that keeps a field of a CircuitBreaker from acting on the cluster of a destination, as
// applier.legacy has it: a route that leads there, or the strongest MeshCircuitBreaker that speaks of the same half.
func ended(r *policy.Rules, s draft.Service, path string) *resource.Resource {
	for _, kind := range [...]string{kindHTTPRoute, kindTCPRoute} {
		if rule := r.Kind(kind).Outbound(s); rule != nil && len(rule.Origins) > 0 {
			return rule.Origins[len(rule.Origins)-1].Policy
		}
	}
	k := r.Kind(kind)
	if k == nil {
		return nil
	}
	ofLimits := path == "thresholds" || strings.HasPrefix(path, "thresholds.")
	for _, p := range slices.Backward(k.Policies) {
		if limits, outlier := spoken([]*resource.Resource{p}); ofLimits && limits || !ofLimits && outlier {
			return p
		}
	}
	return nil
}
