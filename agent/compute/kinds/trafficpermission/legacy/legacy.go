// Package legacy implements TrafficPermission, which MeshTrafficPermission replaces: its effect and
// migration.
//
// Only the strongest TrafficPermission of an inbound applies. For HTTP it guards connections, not
// requests.
package legacy

import (
	"encoding/json"
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "TrafficPermission"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-permissions", "", resource.LegacyShape{}),
		ReplacedBy: []string{trafficpermission.Kind},
		Inbound:    true,
		Apply:      apply,
		Guard:      guardOutside,
		Migrate:    migrate,
	}
}

// apply guards the chains of inbounds that a policy selects. The plugin guards the others.
func apply(c *policy.Context, d *draft.Draft) {
	for l := range toolkit.Listeners(d, draft.Inbound) {
		policies := c.Rules.LegacyInbound(kind, l.Inbound)
		if len(policies) == 0 {
			continue
		}
		enforced := rbac(policies[0])
		for _, ch := range l.Chains {
			if ch.TLS {
				trafficpermission.GuardConnections(l, ch, enforced, nil)
			}
		}
	}
}

// guardOutside guards a destination outside the mesh if a policy selects it.
func guardOutside(o *policy.Outside, l *draft.Listener, ch *draft.Chain) bool {
	policies := o.Rules.LegacyInbound(kind, 0)
	if len(policies) > 0 {
		trafficpermission.GuardConnections(l, ch, rbac(policies[0]), nil)
	}
	return len(policies) > 0
}

// rbac returns the enforced rules of a policy. Their policy name is the name of the resource.
func rbac(p *resource.Resource) *rbacv3.RBAC {
	var list []*rbacv3.Principal
	if spec, ok := p.Spec.(*resource.LegacyPolicy); ok {
		for i := range spec.Sources {
			list = append(list, ofSelector(p.Mesh, spec.Sources[i].Match))
		}
	}
	return trafficpermission.RBAC(rbacv3.RBAC_ALLOW, p.Name, list)
}

// ofSelector returns the principal of clients with all tags of a selector; "*" matches any value.
func ofSelector(mesh string, match map[string]string) *rbacv3.Principal {
	var ids []*rbacv3.Principal
	for _, k := range slices.Sorted(maps.Keys(match)) {
		if match[k] != "*" {
			ids = append(ids, trafficpermission.OfTag(mesh, k, match[k]))
		}
	}
	return trafficpermission.All(ids)
}

// migrate returns a MeshTrafficPermission for each TrafficPermission. Only the strongest
// TrafficPermission of an inbound applies, whereas MeshTrafficPermissions are merged. Therefore a
// policy that takes precedence over others first denies all clients.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := successor.NewPlan(in, successor.PlanOptions{
		Kinds: []string{trafficpermission.Kind}, Inbound: true,
		SupersededBy: toolkit.SupersededByAny(in, trafficpermission.Kind),
	})
	out := policy.Migration{Without: plan.Without, Changes: changes()}
	for _, u := range plan.Units {
		spec := &resource.Policy{TargetRef: &u.Target}
		clients := admitted(u.Policy.Spec.(*resource.LegacyPolicy).Sources)
		if len(u.Weaker) > 0 && len(clients[0]) > 0 {
			spec.From = append(spec.From,
				resource.PolicyItem{TargetRef: successor.ClientTarget(nil), Conf: &trafficpermission.Conf{Action: "Deny"}})
			successor.AddNote(&u.Notes, "it denies all clients before it allows some, which overrides weaker policies: "+
				"a permission that is added later must be stronger to have an effect here")
		}
		for _, c := range clients {
			spec.From = append(spec.From,
				resource.PolicyItem{TargetRef: successor.ClientTarget(c), Conf: &trafficpermission.Conf{Action: "Allow"}})
		}
		if in.Index.View.Spec.MTLSEnabled() == nil {
			successor.AddNote(&u.Notes, "the mesh has no mTLS, so neither this policy nor the legacy one is enforced")
		}
		out.Policies = append(out.Policies, policy.Migrated{Kind: trafficpermission.Kind, Name: u.Name,
			From: []resource.Key{u.Policy.Key}, Notes: u.Notes, Spec: spec})
	}
	return out
}

// admitted returns the tags of the clients that sources select, those with the fewest tags first,
// without redundant ones. "*" is no condition, as in the filters of TrafficPermission.
func admitted(sources []resource.LegacySelector) []map[string]string {
	var list []map[string]string
	for i := range sources {
		tags := map[string]string{}
		for k, v := range sources[i].Match {
			if v != "*" {
				tags[k] = v
			}
		}
		list = append(list, tags)
	}
	var out []map[string]string
	for i, tags := range list {
		covered := func(j int, o map[string]string) bool {
			return j != i && mesh.Contains(tags, o) && (len(o) < len(tags) || j < i)
		}
		found := false
		for j, o := range list {
			found = found || covered(j, o)
		}
		if !found {
			out = append(out, tags)
		}
	}
	slices.SortStableFunc(out, func(a, b map[string]string) int { return len(a) - len(b) })
	return out
}

// changes explains the differences between the config of MeshTrafficPermission and
// TrafficPermission.
func changes() []policy.Change {
	const (
		chain   = "Listener/*/filterChains/*/filters/"
		network = chain + trafficpermission.FilterNetwork
		manager = chain + "envoy.filters.network.http_connection_manager/typedConfig/httpFilters/" +
			trafficpermission.FilterHTTP
		named = "the permission in the filter is named " + trafficpermission.Kind + " instead of after the TrafficPermission"
		moved = "each HTTP request is checked: a denied client gets status 403 instead of a closed connection"
	)
	return []policy.Change{
		{Path: network, Before: policy.Any, Why: moved},
		{Path: manager, After: policy.Any, Why: moved},
		{Path: network + "/typedConfig/rules/policies", Before: policy.Any, After: policy.Any, Same: true, Why: named,
			If: admitSame},
	}
}

// maxNames limits the client names for which rules are compared exhaustively.
const maxNames = 12

// admitSame reports whether the policies of two RBAC filters admit the same clients, for each set
// of names that a certificate can have.
func admitSame(before, after any) bool {
	a, known := principals(before)
	b, alsoKnown := principals(after)
	var names []string
	for _, p := range slices.Concat(a, b) {
		known = namesIn(p, &names) && known
	}
	if !known || !alsoKnown || len(names) > maxNames {
		return false
	}
	for set := range 1 << len(names) {
		has := func(name string) bool { return set&(1<<slices.Index(names, name)) != 0 }
		holds := func(p *rbacv3.Principal) bool { return met(p, has) }
		if slices.ContainsFunc(a, holds) != slices.ContainsFunc(b, holds) {
			return false
		}
	}
	return true
}

// principals returns the principals of all policies of a filter, or false if they cannot be
// decoded.
func principals(policies any) ([]*rbacv3.Principal, bool) {
	var out []*rbacv3.Principal
	var m rbacv3.RBAC
	raw, err := json.Marshal(map[string]any{"policies": policies})
	if err != nil || protojson.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	for _, p := range m.Policies {
		out = append(out, p.Principals...)
	}
	return out, true
}

// namesIn collects the names that a principal requires. It returns false if the principal has a
// form that the filters do not use.
func namesIn(p *rbacv3.Principal, names *[]string) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return true
	case *rbacv3.Principal_Authenticated_:
		name := id.Authenticated.GetPrincipalName().GetExact()
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return name != ""
	case *rbacv3.Principal_NotId:
		return namesIn(id.NotId, names)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !namesIn(p, names) })
	}
	return false
}

// met reports whether a client with some names matches a principal.
func met(p *rbacv3.Principal, has func(string) bool) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Authenticated_:
		return has(id.Authenticated.GetPrincipalName().GetExact())
	case *rbacv3.Principal_NotId:
		return !met(id.NotId, has)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !met(p, has) })
	}
	return true // any
}
