package toolkit

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LegacyOutbound returns a kind of outbound source-destination policies with a conf. Policies of
// the kind current supersede it on each dataplane, and a route supersedes it for its destination
// ([SupersedingRoute]).
func LegacyOutbound[C any, P interface {
	*C
	resource.Conf
}](kind, path, current string, apply func(*policy.Context, *draft.Draft),
	migrate func(*policy.MigrateInput) policy.Migration) policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, path, "",
			resource.LegacyShape{NewConf: func() resource.Conf { return P(new(C)) }, ConfRequired: true}),
		ReplacedBy: []string{current},
		SupersededBy: func(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
			return SupersedingRoute(r, s)
		},
		Apply:   apply,
		Migrate: migrate,
	}
}

// MigrateOutbound converts each policy of a plan to a policy of the kind current, the weakest
// first. convert returns the equivalent conf and notes differences. override sets the fields that a
// weaker policy sets and a stronger one does not, because targetRef policies are merged and
// source-destination policies are not.
func MigrateOutbound[Old, New any, P interface {
	*New
	resource.Conf
}](in *policy.MigrateInput, plan *successor.Plan, current string, convert func(old *Old, notes *[]string) P,
	override func(c, weak P, notes *[]string)) []policy.Migrated {
	var out []policy.Migrated
	confs := map[*successor.Unit]P{}
	for _, u := range plan.Units {
		old := LegacyConf[Old](u.Policy)
		if old == nil {
			continue
		}
		conf := convert(old, &u.Notes)
		for _, w := range u.Weaker {
			if weak := confs[w]; weak != nil {
				override(conf, weak, &u.Notes)
			}
		}
		confs[u] = conf
		successor.AddNote(&u.Notes, successor.Reach(in, u))
		successor.AddNote(&u.Notes, successor.Routed(in))
		out = append(out, policy.Migrated{
			Kind: current, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: &u.Target, To: u.Items(conf)},
		})
	}
	return out
}

// Override sets an unset field to v if a policy with lower precedence sets it.
func Override[T any](field **T, weak *T, v T) {
	if *field == nil && weak != nil {
		*field = &v
	}
}
