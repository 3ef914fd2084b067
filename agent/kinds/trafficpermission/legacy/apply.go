// Package legacy is TrafficPermission, which MeshTrafficPermission replaces: its effect and its migration.
//
// The strongest TrafficPermission about an inbound says alone who may reach it. HTTP is guarded by its connections, not
// by its requests.
package legacy

import (
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/kinds/trafficpermission"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "TrafficPermission"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-permissions", "", resource.LegacyShape{}),
		ReplacedBy: []string{trafficpermission.Kind},
		Inbound:    true,
		Apply:      apply,
		Migrate:    migrate,
	}
}

// apply guards the chains of inbounds that some policy is about. The others are the plugin's.
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

// rbac makes what the filters enforce. The policy in them has the name of the resource.
func rbac(p *resource.Resource) *rbacv3.RBAC {
	var list []*rbacv3.Principal
	if spec, ok := p.Spec.(*resource.LegacyPolicy); ok {
		for i := range spec.Sources {
			list = append(list, ofSelector(p.Mesh, spec.Sources[i].Match))
		}
	}
	return trafficpermission.RBAC(rbacv3.RBAC_ALLOW, p.Name, list)
}

// ofSelector is the principal of clients with all the tags of a selector; "*" stands for any value.
func ofSelector(mesh string, match map[string]string) *rbacv3.Principal {
	var ids []*rbacv3.Principal
	for _, k := range slices.Sorted(maps.Keys(match)) {
		if match[k] != "*" {
			ids = append(ids, trafficpermission.OfTag(mesh, k, match[k]))
		}
	}
	return trafficpermission.All(ids)
}
