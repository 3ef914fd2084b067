package trafficpermission

import "github.com/nearside-mesh/nearside/agent/policy"

// maxCompared bounds how many rules of each form are held against those of the other.
const maxCompared = 256

// principalRules returns the rules of an inbound in the form in which they become principals.
//
// Envoy joins principals by or: a client is admitted when one of them holds it. Kuma's form of the rules lets two of
// them hold one client, and where one denies what another allows, Envoy would admit whom a policy denies: with an item
// for everybody and two that each deny a service, nobody is kept out. So its form is taken, and with it the bytes that
// Kuma sends, where no client comes off better than the rules have it; else the rules that are disjoint.
func principalRules(in *policy.InboundRules) []*policy.Rule {
	if len(in.Rules) < 2 || len(in.Rules) > maxCompared || in.Overflow {
		return in.Rules
	}
	ordered := in.Ordered()
	if len(ordered) > maxCompared {
		return in.Rules
	}
	for _, r := range in.Rules {
		for _, o := range ordered {
			if better(decisionOf(o), decisionOf(r)) && r.Subset.Overlaps(o.Subset) {
				return in.Rules
			}
		}
	}
	return ordered
}

func decisionOf(r *policy.Rule) decision {
	c, ok := r.Conf.(*Conf)
	if !ok {
		return deny
	}
	d, _ := c.Action.decision()
	return d
}

// better reports whether a client of whom a rule decides one thing gets something else by another rule that holds it
// too: admittance, or a denial in the count.
func better(other, own decision) bool {
	return own == deny && other != deny || own == allow && other == allowShadowDeny
}
