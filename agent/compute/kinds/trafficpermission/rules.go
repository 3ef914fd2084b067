package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// RuleConf is an entry of rules: clients by the SPIFFE IDs in their certificates. Of all entries
// about an inbound none overrides another: who is denied by one stays out, whoever allows it.
type RuleConf struct {
	Deny []resource.ClientMatch `json:"deny,omitempty"`
	// AllowWithShadowDeny allows, and counts as if denied.
	AllowWithShadowDeny []resource.ClientMatch `json:"allowWithShadowDeny,omitempty"`
	Allow               []resource.ClientMatch `json:"allow,omitempty"`
}

// Validate checks that somebody is named, and how.
func (c *RuleConf) Validate(v *resource.Validator) {
	if len(c.Deny) == 0 && len(c.AllowWithShadowDeny) == 0 && len(c.Allow) == 0 {
		v.Faultf("the rule says nothing: give allow, allowWithShadowDeny or deny")
	}
	v.Field("deny").Matches(c.Deny)
	v.Field("allowWithShadowDeny").Matches(c.AllowWithShadowDeny)
	v.Field("allow").Matches(c.Allow)
}

// ClientMatches are all matches of the entry.
func (c *RuleConf) ClientMatches() []resource.ClientMatch {
	return slices.Concat(c.Deny, c.AllowWithShadowDeny, c.Allow)
}

// decide says what entries of rules say of a client: the first that denies it, else the first that
// allows it.
func decide(confs []resource.Conf, ids []string) (policy.Decision, int) {
	holds := func(list []resource.ClientMatch) bool {
		return slices.ContainsFunc(list, func(m resource.ClientMatch) bool { return m.Holds(ids) })
	}
	allowed := -1
	for i := range confs {
		c, ok := confs[i].(*RuleConf)
		switch {
		case !ok:
		case holds(c.Deny):
			return policy.Denied, i
		case allowed < 0 && (holds(c.AllowWithShadowDeny) || holds(c.Allow)):
			allowed = i
		}
	}
	if allowed >= 0 {
		return policy.Admitted, allowed
	}
	return policy.Unspoken, -1
}

// withRules makes what the filters enforce and count where entries of rules are about an inbound,
// beside from. Who is denied by either form stays out, and who is allowed by one of them, and
// denied by none, comes in.
func withRules(mesh string, in *policy.InboundRules) (enforced, shadow *rbacv3.RBAC) {
	var all RuleConf
	for _, r := range in.Apart {
		if c := toolkit.Conf[RuleConf](r); c != nil {
			all.Deny = append(all.Deny, c.Deny...)
			all.AllowWithShadowDeny = append(all.AllowWithShadowDeny, c.AllowWithShadowDeny...)
			all.Allow = append(all.Allow, c.Allow...)
		}
	}
	denied := ofMatches(all.Deny)
	var out []*rbacv3.Principal // whom from denies
	for _, r := range in.Rules {
		if decisionOf(r) == deny {
			out = append(out, ofSubset(mesh, r.Subset))
		}
	}
	if in.Overflow { // what from denies is not known in full
		all.Allow, all.AllowWithShadowDeny = nil, nil
	}
	allowed, counted := split(mesh, principalRules(in))
	kept := slices.Concat(denied, out)
	allowed = append(except(allowed, denied), except(ofMatches(all.Allow), kept)...)
	counted = append(except(counted, denied), except(ofMatches(all.AllowWithShadowDeny), kept)...)
	return filters(allowed, counted)
}

// ofMatches are the principals of clients for whom matches hold, each once.
func ofMatches(list []resource.ClientMatch) []*rbacv3.Principal {
	var out []*rbacv3.Principal
	known := map[resource.SpiffeIDMatch]bool{}
	for _, m := range list {
		id := m.SpiffeID
		if id == nil || known[*id] {
			continue
		}
		known[*id] = true
		name := toolkit.Exactly(id.Value)
		if id.Type == resource.MatchPrefix {
			name = toolkit.Prefix(id.Value)
		}
		out = append(out, &rbacv3.Principal{
			Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: name}},
		})
	}
	return out
}

// except takes clients out of principals; where there are such, one principal is left.
func except(list, out []*rbacv3.Principal) []*rbacv3.Principal {
	if len(list) == 0 || len(out) == 0 {
		return list
	}
	return []*rbacv3.Principal{All([]*rbacv3.Principal{
		anyOf(list),
		{Identifier: &rbacv3.Principal_NotId{NotId: anyOf(out)}},
	})}
}

func anyOf(list []*rbacv3.Principal) *rbacv3.Principal {
	if len(list) == 1 {
		return list[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: list}}}
}
