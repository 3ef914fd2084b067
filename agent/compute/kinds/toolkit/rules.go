package toolkit

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf returns the conf of a rule. It returns nil if there is no rule or the conf is of another
// kind.
func Conf[C any](r *policy.Rule) *C {
	if r == nil {
		return nil
	}
	conf, _ := any(r.Conf).(*C)
	return conf
}

// LegacyConf returns the conf of a source-destination policy. It returns nil if there is no policy
// or the conf is of another kind.
func LegacyConf[C any](p *resource.Resource) *C {
	if p == nil {
		return nil
	}
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	conf, _ := any(spec.Conf).(*C)
	return conf
}

// Once converts a conf and caches the result by the conf's pointer, so that all resources of a rule
// share it. It returns nil for nil.
func Once[C, V any](memo map[*C]*V, conf *C, convert func(*C) *V) *V {
	if conf == nil {
		return nil
	}
	v, ok := memo[conf]
	if !ok {
		v = convert(conf)
		memo[conf] = v
	}
	return v
}

// Strongest returns the strongest policy of a rule, or nil without a rule.
func Strongest(r *policy.Rule) *resource.Resource {
	if r == nil || len(r.Origins) == 0 {
		return nil
	}
	return r.Origins[len(r.Origins)-1].Policy
}

// WarnStrongest reports a problem to the owner of the strongest policy of a rule.
func WarnStrongest(c *policy.Context, r *policy.Rule, format string, args ...any) {
	if p := Strongest(r); p != nil {
		c.Host.Warn(p.Key, format, args...)
	}
}

// WarnOrigins reports a problem to the owners of all policies of a rule.
func WarnOrigins(c *policy.Context, r *policy.Rule, format string, args ...any) {
	for _, o := range r.Origins {
		c.Host.Warn(o.Policy.Key, format, args...)
	}
}

// WarnPolicies reports a problem to the owners of policies.
func WarnPolicies(c *policy.Context, policies []*resource.Resource, format string, args ...any) {
	for _, p := range policies {
		c.Host.Warn(p.Key, format, args...)
	}
}

// SupersedingRoute returns the MeshHTTPRoute or MeshTCPRoute that routes the connections to a
// destination, or nil. Source-destination policies have no effect on routed connections and
// requests.
func SupersedingRoute(r *policy.Rules, s draft.Service) *resource.Resource {
	for _, kind := range [...]string{"MeshHTTPRoute", "MeshTCPRoute"} {
		if p := Strongest(r.Kind(kind).Outbound(s)); p != nil {
			return p
		}
	}
	return nil
}

// SupersededByAny returns a value for [successor.PlanOptions].SupersededBy for kinds that any
// policy of another kind supersedes on the dataplanes that it selects.
func SupersededByAny(in *policy.MigrateInput, kind string) func(*resource.Resource) *resource.Resource {
	return func(dataplane *resource.Resource) *resource.Resource {
		for _, p := range in.Index.Ruled(dataplane, kind) {
			return p
		}
		return nil
	}
}
