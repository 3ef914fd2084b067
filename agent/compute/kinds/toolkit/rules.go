package toolkit

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf returns the conf of a rule; nil without a rule, and for a conf of another kind.
func Conf[C any](r *policy.Rule) *C {
	if r == nil {
		return nil
	}
	conf, _ := any(r.Conf).(*C)
	return conf
}

// LegacyConf returns the conf of a source-destination policy; nil without a policy, and for a conf
// of another kind.
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

// Once converts a conf the first time and returns the same result afterwards, so that many
// resources share it; nil for nil. All that one rule is about has the same conf, by its pointer.
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

// Strongest returns the strongest of the policies that made a rule; nil without a rule.
func Strongest(r *policy.Rule) *resource.Resource {
	if r == nil || len(r.Origins) == 0 {
		return nil
	}
	return r.Origins[len(r.Origins)-1].Policy
}

// WarnStrongest notes something that the owner of the strongest policy of a rule should know.
func WarnStrongest(c *policy.Context, r *policy.Rule, format string, args ...any) {
	if p := Strongest(r); p != nil {
		c.Host.Warn(p.Key, format, args...)
	}
}

// WarnOrigins notes something that the owners of all policies of a rule should know.
func WarnOrigins(c *policy.Context, r *policy.Rule, format string, args ...any) {
	for _, o := range r.Origins {
		c.Host.Warn(o.Policy.Key, format, args...)
	}
}

// WarnPolicies notes something that the owners of policies should know.
func WarnPolicies(c *policy.Context, policies []*resource.Resource, format string, args ...any) {
	for _, p := range policies {
		c.Host.Warn(p.Key, format, args...)
	}
}

// SupersedingRoute returns the MeshHTTPRoute or MeshTCPRoute that leads the connections to a
// destination, nil for none: source-destination policies about requests and connections have no
// effect there.
func SupersedingRoute(r *policy.Rules, s draft.Service) *resource.Resource {
	for _, kind := range [...]string{"MeshHTTPRoute", "MeshTCPRoute"} {
		if p := Strongest(r.Kind(kind).Outbound(s)); p != nil {
			return p
		}
	}
	return nil
}

// SupersededByAny returns what [policy.PlanOptions] has as SupersededBy where any policy of a kind
// supersedes the legacy kind on the dataplanes that it selects.
func SupersededByAny(in *policy.MigrateInput, kind string) func(*resource.Resource) *resource.Resource {
	return func(dataplane *resource.Resource) *resource.Resource {
		for _, p := range in.Index.Ruled(dataplane, kind) {
			return p
		}
		return nil
	}
}
