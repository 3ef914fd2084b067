package trafficpermission

import (
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// policyName is the name of the one policy in the RBAC filters of MeshTrafficPermission. Those of TrafficPermission
// have the name of the resource.
const policyName = kind

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
	enforced = rbacOf(rbacv3.RBAC_ALLOW, policyName, slices.Concat(allowed, counted))
	if len(counted) > 0 {
		shadow = rbacOf(rbacv3.RBAC_DENY, policyName, counted)
	}
	return enforced, shadow
}

// fromLegacy makes what the filters enforce by a TrafficPermission; nil for none.
func fromLegacy(p *resource.Resource) *rbacv3.RBAC {
	if p == nil {
		return rbacOf(rbacv3.RBAC_ALLOW, "", nil)
	}
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return rbacOf(rbacv3.RBAC_ALLOW, "", nil)
	}
	list := make([]*rbacv3.Principal, len(spec.Sources))
	for i := range spec.Sources {
		list[i] = ofSelector(p.Mesh, spec.Sources[i].Match)
	}
	return rbacOf(rbacv3.RBAC_ALLOW, p.Name, list)
}

// rbacOf applies an action to principals, whatever they ask for. A policy without principals is one that Envoy
// rejects, so there is none.
func rbacOf(action rbacv3.RBAC_Action, name string, list []*rbacv3.Principal) *rbacv3.RBAC {
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
		ids[i] = ofTag(mesh, t.Key, t.Value)
		if t.Not {
			ids[i] = &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: ids[i]}}
		}
	}
	return all(ids)
}

// ofSelector is the principal of clients with all the tags of a legacy selector; "*" stands for any value.
func ofSelector(mesh string, match map[string]string) *rbacv3.Principal {
	var ids []*rbacv3.Principal
	for _, k := range slices.Sorted(maps.Keys(match)) {
		if match[k] != "*" {
			ids = append(ids, ofTag(mesh, k, match[k]))
		}
	}
	return all(ids)
}

func all(ids []*rbacv3.Principal) *rbacv3.Principal {
	switch len(ids) {
	case 0:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	case 1:
		return ids[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: ids}}}
}

// ofTag is the principal of clients whose certificate has the name of a tag: the service is a SPIFFE id, and every
// other tag a URI of its own.
func ofTag(mesh, key, value string) *rbacv3.Principal {
	name := "kuma://" + key + "/" + value
	if key == resource.TagService {
		name = "spiffe://" + mesh + "/" + value
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{
		PrincipalName: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
	}}}
}
