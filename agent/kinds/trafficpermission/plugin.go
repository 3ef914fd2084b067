// Package trafficpermission is the plugin of MeshTrafficPermission: which clients may reach an inbound.
//
// It guards the filter chains whose peers have shown a certificate of the mesh, and no others: without one a client
// cannot be told. Such a chain admits nobody but those whom a policy admits, so a mesh with mTLS and without
// permissions is closed.
package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies. The policy in their RBAC filters has that name, too.
const Kind = "MeshTrafficPermission"

// Names of Envoy's filters.
const (
	FilterHTTP    = "envoy.filters.http.rbac"
	FilterNetwork = "envoy.filters.network.rbac"
)

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtrafficpermissions", "mtp", resource.PolicyShape{
			Top:     toolkit.Proxies(),
			From:    toolkit.Clients(),
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Admits: func(c resource.Conf) bool {
			conf, ok := c.(*Conf)
			if !ok {
				return false
			}
			d, known := conf.Action.decision()
			return known && d != deny
		},
		Filters: []string{FilterHTTP, FilterNetwork},
		Suggest: suggest(legacy),
		Apply:   apply,
		NoEffect: func(c *policy.Context, _ *resource.Resource) []policy.NoEffect {
			if c.View.Spec.MTLSEnabled() != nil {
				return nil
			}
			return []policy.NoEffect{{}}
		},
	}
}

// apply puts a guard in front of every chain whose peers are known and that no legacy kind guards.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if c.Last && rules != nil && len(rules.From) > 0 && c.View.Spec.MTLSEnabled() == nil {
		toolkit.WarnPolicies(c, rules.Policies, "this permission is not enforced: mesh %s has no mTLS; enable mtls of the Mesh", c.View.Name)
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		for _, ch := range l.Chains {
			if ch.TLS && !slices.ContainsFunc(ch.Network, func(e draft.Extension) bool { return e.Name == FilterNetwork }) {
				var list []*policy.Rule
				if in := rules.Inbound(l.Inbound); in != nil {
					list = principalRules(in)
				}
				enforced, shadow := fromRules(c.View.Name, list)
				if ch.HTTP == nil {
					GuardConnections(l, ch, enforced, shadow)
					continue
				}
				f := draft.Extension{Name: FilterHTTP, Message: &httprbacv3.RBAC{Rules: enforced, ShadowRules: shadow}}
				ch.HTTP.Filters = slices.Concat([]draft.Extension{f}, ch.HTTP.Filters)
			}
		}
	}
}

// GuardConnections makes an RBAC filter for connections the first filter of a chain.
func GuardConnections(l *draft.Listener, ch *draft.Chain, enforced, shadow *rbacv3.RBAC) {
	f := draft.Extension{Name: FilterNetwork, Message: &netrbacv3.RBAC{
		Rules: enforced, ShadowRules: shadow, StatPrefix: toolkit.StatName(l.Message.GetName()) + ".", // Envoy adds no dot
	}}
	ch.Network = slices.Concat([]draft.Extension{f}, ch.Network)
}
