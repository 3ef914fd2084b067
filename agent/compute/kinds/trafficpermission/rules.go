package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// RuleConf is the conf of an entry of rules. It selects clients by the SPIFFE IDs in their
// certificates and by the server names that they request. No entry of an inbound overrides another:
// a client that one entry denies is denied, even if others allow it.
type RuleConf struct {
	Deny []resource.ClientMatch `json:"deny,omitempty"`
	// AllowWithShadowDeny allows clients and counts them as denied.
	AllowWithShadowDeny []resource.ClientMatch `json:"allowWithShadowDeny,omitempty"`
	Allow               []resource.ClientMatch `json:"allow,omitempty"`
}

// Validate checks that the entry is not empty and that its matches are valid.
func (c *RuleConf) Validate(v *resource.Validator) {
	if len(c.Deny) == 0 && len(c.AllowWithShadowDeny) == 0 && len(c.Allow) == 0 {
		v.Faultf("the rule is empty: give allow, allowWithShadowDeny or deny")
	}
	v.Field("deny").Matches(c.Deny)
	v.Field("allowWithShadowDeny").Matches(c.AllowWithShadowDeny)
	v.Field("allow").Matches(c.Allow)
}

// ClientMatches returns all matches of the entry.
func (c *RuleConf) ClientMatches() []resource.ClientMatch {
	return slices.Concat(c.Deny, c.AllowWithShadowDeny, c.Allow)
}

// decide returns the decision of entries about a client: that of the first entry that denies it,
// otherwise of the first that allows it.
func decide(confs []resource.Conf, client policy.Client) (policy.Decision, int) {
	holds := func(list []resource.ClientMatch) bool {
		return slices.ContainsFunc(list, func(m resource.ClientMatch) bool { return m.Holds(client.IDs, client.ServerName) })
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
	return policy.Undecided, -1
}

// entriesOf returns all entries of an inbound as one. A denial of one applies to all.
func entriesOf(in *policy.InboundRules) *RuleConf {
	var all RuleConf
	for _, r := range in.Entries {
		if c := toolkit.Conf[RuleConf](r); c != nil {
			all.Deny = append(all.Deny, c.Deny...)
			all.AllowWithShadowDeny = append(all.AllowWithShadowDeny, c.AllowWithShadowDeny...)
			all.Allow = append(all.Allow, c.Allow...)
		}
	}
	return &all
}

// withRules returns the enforced and shadow rules of an inbound with entries of rules. A
// destination outside the mesh also has from: a client that either denies is denied, and a client
// that either allows, and neither denies, is admitted.
func withRules(mesh string, in *policy.InboundRules) (enforced, shadow *rbacv3.RBAC) {
	all := entriesOf(in)
	denied := ofMatches(all.Deny)
	var fromDenied []*rbacv3.Principal // clients that from denies
	for _, r := range in.Rules {
		if decisionOf(r) == deny {
			fromDenied = append(fromDenied, ofSubset(mesh, r.Subset))
		}
	}
	if in.Overflow { // the clients that from denies are not completely known
		all.Allow, all.AllowWithShadowDeny = nil, nil
	}
	allowed, counted := split(mesh, principalRules(in))
	excluded := slices.Concat(denied, fromDenied)
	allowed = append(except(allowed, denied), except(ofMatches(all.Allow), excluded)...)
	counted = append(except(counted, denied), except(ofMatches(all.AllowWithShadowDeny), excluded)...)
	return filters(allowed, counted)
}

// ofMatches returns the principals of clients that match, without duplicates. It omits matches with
// a server name: none of them holds at an ExternalService, whose server name is no host name.
func ofMatches(list []resource.ClientMatch) []*rbacv3.Principal {
	var out []*rbacv3.Principal
	known := map[resource.SpiffeIDMatch]bool{}
	for _, m := range list {
		id := m.SpiffeID
		if id == nil || m.SNI != nil || known[*id] {
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

// except excludes clients from principals. If there are any to exclude, the result is one
// principal.
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
