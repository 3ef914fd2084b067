package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Names of Envoy's filters.
const (
	nameHTTPRBAC    = "envoy.filters.http.rbac"
	nameNetworkRBAC = "envoy.filters.network.rbac"
)

// apply puts a guard in front of every chain whose peers are known.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if c.Last && rules != nil && len(rules.From) > 0 && c.View.Spec.MTLSEnabled() == nil {
		for _, p := range rules.Policies {
			c.Host.Warn(p.Key, "mesh %s has no mTLS, so clients cannot be told apart and nobody is kept out: enable mtls of the Mesh", c.View.Name)
		}
	}
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound || !slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool { return ch.TLS }) {
			continue
		}
		g := newGuard(c, rules, l)
		for _, ch := range l.Chains {
			if ch.TLS {
				g.put(ch)
			}
		}
	}
}

// guard is the permissions of one inbound.
type guard struct {
	stat             string
	enforced, shadow *rbacv3.RBAC
	// connections is true when HTTP is guarded by its connections too, as TrafficPermission has it, and not by its
	// requests. Where no policy says anything, nobody is admitted, and a request is told so.
	connections bool
}

func newGuard(c *policy.Context, rules *policy.KindRules, l *draft.Listener) *guard {
	g := &guard{stat: statName(l.Message.GetName()) + "."} // with the dot that Envoy does not add
	if in := rules.Inbound(l.Inbound); in != nil {
		g.enforced, g.shadow = fromRules(c.View.Name, written(in))
		return g
	}
	var strongest *resource.Resource
	if list := c.Rules.LegacyInbound(legacyKind, l.Inbound); len(list) > 0 {
		strongest, g.connections = list[0], true
	}
	g.enforced = fromLegacy(strongest)
	return g
}

// put makes the guard the first filter of a chain.
func (g *guard) put(ch *draft.Chain) {
	if ch.HTTP != nil && !g.connections {
		f := draft.Extension{Name: nameHTTPRBAC, Message: &httprbacv3.RBAC{Rules: g.enforced, ShadowRules: g.shadow}}
		ch.HTTP.Filters = slices.Concat([]draft.Extension{f}, ch.HTTP.Filters)
		return
	}
	f := draft.Extension{Name: nameNetworkRBAC, Message: &netrbacv3.RBAC{Rules: g.enforced, ShadowRules: g.shadow, StatPrefix: g.stat}}
	ch.Network = slices.Concat([]draft.Extension{f}, ch.Network)
}

// statName makes a name of a statistic: what is no letter or digit becomes an underscore.
func statName(s string) string {
	out := []byte(s)
	for i, c := range out {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			out[i] = '_'
		}
	}
	return string(out)
}
