package toolkit

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LegacyOutbound returns a source-destination kind about connections to services. Its policies have
// a conf, those of the kind current replace it on each dataplane, and so does a route
// ([SupersedingRoute]) for what it leads to.
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

// MigrateOutbound makes a policy of the kind current of each that is in a plan, the weakest first.
// convert says with a conf of the new kind what one of the old kind says, and notes what cannot be
// said. over gives what a weaker policy speaks of and a stronger one does not, so that nothing of
// it takes effect: source-destination policies are not merged, targetRef policies are.
func MigrateOutbound[Old, New any, P interface {
	*New
	resource.Conf
}](in *policy.MigrateInput, plan *policy.Plan, current string, convert func(old *Old, notes *[]string) P,
	over func(c, weak P, notes *[]string)) []policy.Migrated {
	var out []policy.Migrated
	confs := map[*policy.Unit]P{}
	for _, u := range plan.Units {
		old := LegacyConf[Old](u.Policy)
		if old == nil {
			continue
		}
		conf := convert(old, &u.Notes)
		for _, w := range u.Weaker {
			if weak := confs[w]; weak != nil {
				over(conf, weak, &u.Notes)
			}
		}
		confs[u] = conf
		policy.AddNote(&u.Notes, in.Reach(u))
		policy.AddNote(&u.Notes, in.Routed())
		out = append(out, policy.Migrated{
			Kind: current, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: &u.Target, To: u.Items(conf)},
		})
	}
	return out
}

// Give sets a field that is open and of which a weaker policy speaks.
func Give[T any](field **T, weak *T, v T) {
	if *field == nil && weak != nil {
		*field = &v
	}
}
