// Package trafficpermission implements MeshTrafficPermission: which clients may reach an inbound.
//
// It guards only filter chains that verify client certificates of the mesh, because other clients
// cannot be identified. Such a chain admits only clients that a policy admits, so a mesh with mTLS
// and without permissions denies all requests.
package trafficpermission

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin. The policies in the RBAC filters also have this name.
const Kind = "MeshTrafficPermission"

// Names of Envoy's filters.
const (
	FilterHTTP    = "envoy.filters.http.rbac"
	FilterNetwork = "envoy.filters.network.rbac"
)

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtrafficpermissions", "mtp", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			From:      toolkit.Clients(),
			NewConf:   func() resource.Conf { return new(Conf) },
			NoMatches: "the clients are selected in default, by the matches of allow, allowWithShadowDeny, and deny",
			Rules:     true, NewRuleConf: func() resource.Conf { return new(RuleConf) },
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
		Decide:  decide,
		Filters: []string{FilterHTTP, FilterNetwork},
		Suggest: suggest(legacy),
		Apply:   apply,
		Guard:   guardOutside(legacy),
	}
}

// enableMTLS returns the remedy for a mesh without mTLS.
func enableMTLS(m *resource.Mesh) string {
	if m.MTLS != nil && len(m.MTLS.Backends) > 0 {
		return "set mtls.enabledBackend of the Mesh, for example to " + m.MTLS.Backends[0].Name
	}
	return "enable mtls of the Mesh"
}

// apply guards every chain that verifies client certificates and that no legacy kind guards.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if c.Last && rules != nil && len(rules.From) > 0 && c.View.Spec.MTLSEnabled() == nil {
		toolkit.WarnPolicies(c, rules.Policies,
			"this permission is not enforced: mesh %s has no mTLS; %s", c.View.Name, enableMTLS(c.View.Spec))
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		warnOpen(c, rules, l)
		for _, ch := range l.Chains {
			if ch.TLS && !slices.ContainsFunc(ch.Network, func(e draft.Extension) bool { return e.Name == FilterNetwork }) {
				in := rules.Inbound(l.Inbound)
				if !byServerName(in) {
					if !guard(c.View.Name, in, l, ch) {
						closeAtOnce(d, ch)
					}
					continue
				}
				admits, err := guardByServerName(in, l, ch)
				if err != nil { // impossible for valid rules
					toolkit.WarnPolicies(c, rules.Policies, "inbound %d admits no client, because its rules cannot be encoded: %v",
						l.Port, err)
					admits = guard(c.View.Name, nil, l, ch)
				}
				if !admits {
					closeAtOnce(d, ch)
				}
			}
		}
	}
}

// warnOpen warns that an inbound also accepts plain text, for which rules are not enforced.
func warnOpen(c *policy.Context, rules *policy.KindRules, l *draft.Listener) {
	plain := func(ch *draft.Chain) bool { return !ch.TLS }
	if c.View.Spec.MTLSEnabled() == nil || rules.Inbound(l.Inbound) == nil || !slices.ContainsFunc(l.Chains, plain) {
		return
	}
	toolkit.WarnPolicies(c, rules.Policies,
		"inbound %d also accepts plain text (mode PERMISSIVE), so this permission applies "+
			"only to clients with a certificate of the mesh; to deny others, set mode STRICT in the Mesh or a MeshTLS",
		l.Port)
}

// guard restricts a chain to the clients that rules, which may be nil, admit. It reports whether
// any client can be admitted.
func guard(mesh string, rules *policy.InboundRules, l *draft.Listener, ch *draft.Chain) bool {
	var enforced, shadow *rbacv3.RBAC
	switch {
	case rules == nil:
		enforced, shadow = fromRules(mesh, nil)
	case len(rules.Entries) > 0:
		enforced, shadow = withRules(mesh, rules)
	default:
		enforced, shadow = fromRules(mesh, principalRules(rules))
	}
	if ch.HTTP == nil {
		GuardConnections(l, ch, enforced, shadow)
		return len(enforced.Policies) > 0
	}
	f := draft.Extension{Name: FilterHTTP, Message: &httprbacv3.RBAC{Rules: enforced, ShadowRules: shadow}}
	ch.HTTP.Filters = slices.Concat([]draft.Extension{f}, ch.HTTP.Filters)
	return len(enforced.Policies) > 0
}

// closeAtOnce makes a chain that admits no client connect to no server. Envoy's filter decides on
// the client's first byte, and Envoy connects to the server before, so the client could otherwise
// receive data from a server that speaks first.
func closeAtOnce(d *draft.Draft, ch *draft.Chain) {
	tcp, ok := proto.Clone(ch.TCP).(*tcpv3.TcpProxy)
	if !ok || ch.TCP == nil {
		return
	}
	tcp.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: toolkit.ClusterEmpty}
	ch.TCP = tcp
	toolkit.AddEmptyCluster(d, Kind)
}

// guardOutside guards destinations outside the mesh. The policies that select an ExternalService's
// tags apply to it. Policies cannot select a MeshExternalService; only the Mesh can forbid these.
func guardOutside(legacy []policy.LegacyKind) func(o *policy.Outside, l *draft.Listener, ch *draft.Chain) {
	return func(o *policy.Outside, l *draft.Listener, ch *draft.Chain) {
		if o.Kind == mesh.KindMeshExternalService {
			if o.View.ForbidsMeshExternalServices() {
				guard(o.View.Name, nil, l, ch)
			}
			return
		}
		for i := range legacy {
			if f := legacy[i].Guard; f != nil && f(o, l, ch) {
				return
			}
		}
		guard(o.View.Name, o.Rules.Kind(Kind).Inbound(0), l, ch)
	}
}

// GuardConnections inserts an RBAC filter for connections as the first filter of a chain.
func GuardConnections(l *draft.Listener, ch *draft.Chain, enforced, shadow *rbacv3.RBAC) {
	f := draft.Extension{Name: FilterNetwork, Message: &netrbacv3.RBAC{
		Rules: enforced, ShadowRules: shadow, StatPrefix: toolkit.StatName(l.Message.GetName()) + ".", // Envoy adds no dot
	}}
	ch.Network = slices.Concat([]draft.Extension{f}, ch.Network)
}

// Conf is the action for a group of clients.
type Conf struct {
	Action Action `json:"action,omitempty"`
}

// Action is the action for a group of clients, in the current spelling or that of Kuma 2.0.
type Action string

// decision is the meaning of an action.
type decision int

const (
	deny decision = iota
	allow
	allowShadowDeny // allow, and count as denied
)

// decision parses the action. It returns false if the action is unknown.
func (a Action) decision() (decision, bool) {
	switch a {
	case "Allow", "ALLOW", "allow":
		return allow, true
	case "Deny", "DENY", "deny":
		return deny, true
	case "AllowWithShadowDeny", "ALLOW_WITH_SHADOW_DENY", "allow_with_shadow_deny", "allowWithShadowDeny":
		return allowShadowDeny, true
	}
	return deny, false
}

// Validate checks that the action is known.
func (c *Conf) Validate(v *resource.Validator) {
	if _, ok := c.Action.decision(); !ok {
		v.Field("action").OneOf(string(c.Action), "Allow", "Deny", "AllowWithShadowDeny")
	}
}

// fromRules returns the enforced rules, and the shadow rules that only count, or nil if there are
// none. Clients without a rule are denied.
func fromRules(mesh string, rules []*policy.Rule) (enforced, shadow *rbacv3.RBAC) {
	return filters(split(mesh, rules))
}

// split returns the principals that rules allow, and those that they allow but count as denied.
func split(mesh string, rules []*policy.Rule) (allowed, counted []*rbacv3.Principal) {
	for _, r := range rules {
		switch decisionOf(r) {
		case allow:
			allowed = append(allowed, ofSubset(mesh, r.Subset))
		case allowShadowDeny:
			counted = append(counted, ofSubset(mesh, r.Subset))
		}
	}
	return allowed, counted
}

// filters converts principals to enforced and shadow rules.
func filters(allowed, counted []*rbacv3.Principal) (enforced, shadow *rbacv3.RBAC) {
	enforced = RBAC(rbacv3.RBAC_ALLOW, Kind, slices.Concat(allowed, counted))
	if len(counted) > 0 {
		shadow = RBAC(rbacv3.RBAC_DENY, Kind, counted)
	}
	return enforced, shadow
}

// RBAC returns rules that apply an action to all requests of some principals. Envoy rejects a
// policy without principals, so the result then has no policy.
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

// ofSubset returns the principal of clients with all tags of a subset.
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

// All returns the principal of clients that match all given principals; all clients if there are
// none.
func All(ids []*rbacv3.Principal) *rbacv3.Principal {
	switch len(ids) {
	case 0:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	case 1:
		return ids[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: ids}}}
}

// OfTag returns the principal of clients whose certificate has a tag: the service is a SPIFFE ID,
// and every other tag is a separate URI.
func OfTag(mesh, key, value string) *rbacv3.Principal {
	name := "kuma://" + key + "/" + value
	if key == resource.TagService {
		name = "spiffe://" + mesh + "/" + value
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{
		PrincipalName: toolkit.Exactly(name),
	}}}
}

// maxCompared limits the number of rules of each form that are compared with those of the other.
const maxCompared = 256

// principalRules returns the rules of an inbound in the form that is converted to principals.
//
// Envoy combines principals with OR: a client is admitted if one of them matches. In Kuma's form of
// the rules two rules can match one client. If one of them denies what the other allows, Envoy
// would admit a denied client: for example, an item for all clients and two items that each deny a
// service would deny none. Therefore principalRules returns Kuma's form, and thus the same bytes as
// Kuma, only if no client gets more access than the rules grant, and the disjoint form otherwise.
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

// better reports whether a client with one decision gets more by another rule that also matches it:
// admission, or being counted as denied.
func better(other, decided decision) bool {
	return decided == deny && other != deny || decided == allow && other == allowShadowDeny
}
