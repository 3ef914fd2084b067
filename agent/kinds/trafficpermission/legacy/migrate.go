package legacy

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/kinds/trafficpermission"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// migrate makes a MeshTrafficPermission of each TrafficPermission. Of TrafficPermissions the strongest alone says who
// may reach an inbound, while MeshTrafficPermissions are merged: one that takes precedence over others denies everybody first.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := in.Plan(policy.PlanOptions{
		Kinds: []string{trafficpermission.Kind}, Inbound: true, SupersededBy: toolkit.SupersededByAny(in, trafficpermission.Kind),
	})
	out := policy.Migration{Without: plan.Without, Changes: changes()}
	for _, u := range plan.Units {
		spec := &resource.Policy{TargetRef: &u.Target}
		clients := admitted(u.Policy.Spec.(*resource.LegacyPolicy).Sources)
		if len(u.Weaker) > 0 && len(clients[0]) > 0 {
			spec.From = append(spec.From, resource.PolicyItem{TargetRef: policy.ClientTarget(nil), Conf: &trafficpermission.Conf{Action: "Deny"}})
			policy.AddNote(&u.Notes, "it denies everybody before it allows some, so that what weaker policies allow does not count: a permission that is added later must be stronger, or it has no effect here")
		}
		for _, c := range clients {
			spec.From = append(spec.From, resource.PolicyItem{TargetRef: policy.ClientTarget(c), Conf: &trafficpermission.Conf{Action: "Allow"}})
		}
		if in.Index.View.Spec.MTLSEnabled() == nil {
			policy.AddNote(&u.Notes, "the mesh has no mTLS, so neither this policy nor the legacy one is enforced")
		}
		out.Policies = append(out.Policies, policy.Migrated{Kind: trafficpermission.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes, Spec: spec})
	}
	return out
}

// admitted returns the tags of the clients that sources are about, the fewest first, without those that others cover.
// A tag with any value asks for nothing, as in the filters of TrafficPermission.
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
			return j != i && policy.Covers(o, tags) && (len(o) < len(tags) || j < i)
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

// changes explains what MeshTrafficPermission writes otherwise than TrafficPermission.
func changes() []policy.Change {
	const (
		chain   = "Listener/*/filterChains/*/filters/"
		network = chain + trafficpermission.FilterNetwork
		manager = chain + "envoy.filters.network.http_connection_manager/typedConfig/httpFilters/" + trafficpermission.FilterHTTP
		named   = "the permission goes by the name " + trafficpermission.Kind + " in the filter, no longer by that of the TrafficPermission"
		moved   = "requests of HTTP are guarded one by one: who is refused gets 403 where the connection was closed"
	)
	return []policy.Change{
		{Path: network, Before: policy.Any, Why: moved},
		{Path: manager, After: policy.Any, Why: moved},
		{Path: network + "/typedConfig/rules/policies", Before: policy.Any, After: policy.Any, Same: true, Why: named, If: admitSame},
	}
}
