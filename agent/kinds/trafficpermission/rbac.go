package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// fromRules makes what the filters enforce, and what they only count as denied: nil when nothing is. Clients of whom
// no rule speaks are denied, as are all when there are no rules.
func fromRules(mesh string, rules []*policy.Rule) (enforced, shadow *rbacv3.RBAC) {
	var allowed, counted []*rbacv3.Principal
	for _, r := range rules {
		switch decisionOf(r) {
		case allow:
			allowed = append(allowed, ofSubset(mesh, r.Subset))
		case allowShadowDeny:
			counted = append(counted, ofSubset(mesh, r.Subset))
		}
	}
	enforced = RBAC(rbacv3.RBAC_ALLOW, Kind, slices.Concat(allowed, counted))
	if len(counted) > 0 {
		shadow = RBAC(rbacv3.RBAC_DENY, Kind, counted)
	}
	return enforced, shadow
}

// RBAC applies an action to principals, whatever they ask for. A policy without principals is one that Envoy
// rejects, so there is none.
func RBAC(action rbacv3.RBAC_Action, name string, list []*rbacv3.Principal) *rbacv3.RBAC {
	out := &rbacv3.RBAC{Action: action}
	if len(list) > 0 {
		out.Policies = map[string]*rbacv3.Policy{name: {
			Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
			Principals:  list,
		}}
	}
	return out
}

// ofSubset is the principal of clients with all the tags of a subset.
func ofSubset(mesh string, s policy.Subset) *rbacv3.Principal {
	ids := make([]*rbacv3.Principal, len(s))
	for i, t := range s {
		ids[i] = OfTag(mesh, t.Key, t.Value)
		if t.Not {
			ids[i] = &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: ids[i]}}
		}
	}
	return All(ids)
}

// All is the principal of clients that are all of some principals; of all clients where there are none.
func All(ids []*rbacv3.Principal) *rbacv3.Principal {
	switch len(ids) {
	case 0:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	case 1:
		return ids[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: ids}}}
}

// OfTag is the principal of clients whose certificate has the name of a tag: the service is a SPIFFE id, and every
// other tag a URI of its own.
func OfTag(mesh, key, value string) *rbacv3.Principal {
	name := "kuma://" + key + "/" + value
	if key == resource.TagService {
		name = "spiffe://" + mesh + "/" + value
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{
		PrincipalName: toolkit.Exactly(name),
	}}}
}
