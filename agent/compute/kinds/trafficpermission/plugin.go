// Package trafficpermission is the plugin of MeshTrafficPermission: which clients may reach an
// inbound.
//
// It guards the filter chains whose peers have shown a certificate of the mesh, and no others:
// without one a client cannot be told. Such a chain admits nobody but those whom a policy admits,
// so a mesh with mTLS and without permissions is closed.
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
			Top:       toolkit.Proxies(),
			From:      toolkit.Clients(),
			NewConf:   func() resource.Conf { return new(Conf) },
			NoMatches: "the clients are in default: allow, allowWithShadowDeny and deny have matches of their own",
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
		toolkit.WarnPolicies(c, rules.Policies,
			"this permission is not enforced: mesh %s has no mTLS; enable mtls of the Mesh", c.View.Name)
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		warnOpen(c, rules, l)
		for _, ch := range l.Chains {
			if ch.TLS && !slices.ContainsFunc(ch.Network, func(e draft.Extension) bool { return e.Name == FilterNetwork }) {
				if guard(c.View.Name, rules.Inbound(l.Inbound), l, ch) {
					continue
				}
				closeAtOnce(d, ch)
			}
		}
	}
}

// warnOpen tells that an inbound takes plain text beside mutual TLS, so that rules do not hold for
// all of its clients.
func warnOpen(c *policy.Context, rules *policy.KindRules, l *draft.Listener) {
	plain := func(ch *draft.Chain) bool { return !ch.TLS }
	if c.View.Spec.MTLSEnabled() == nil || rules.Inbound(l.Inbound) == nil || !slices.ContainsFunc(l.Chains, plain) {
		return
	}
	toolkit.WarnPolicies(c, rules.Policies, "inbound %d takes plain text too (mode PERMISSIVE): this permission holds "+
		"for clients with a certificate of the mesh alone; to keep others out, set mode STRICT in the Mesh or a MeshTLS",
		l.Port)
}

// guard admits to a chain whom rules, which may be nil, admit. It reports whether they admit
// anybody.
func guard(mesh string, rules *policy.InboundRules, l *draft.Listener, ch *draft.Chain) bool {
	var enforced, shadow *rbacv3.RBAC
	switch {
	case rules == nil:
		enforced, shadow = fromRules(mesh, nil)
	case len(rules.Apart) > 0:
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

// closeAtOnce makes a chain that admits nobody dial no server. Envoy's filter decides when the
// client's first byte comes, and the server is dialled before: one that speaks first would be heard
// until then.
func closeAtOnce(d *draft.Draft, ch *draft.Chain) {
	tcp, ok := proto.Clone(ch.TCP).(*tcpv3.TcpProxy)
	if !ok || ch.TCP == nil {
		return
	}
	tcp.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: toolkit.ClusterNobody}
	ch.TCP = tcp
	toolkit.AddNobody(d, Kind)
}

// guardOutside guards destinations outside of the mesh. Of an ExternalService the policies decide
// that are about its tags; of a MeshExternalService the Mesh does alone, since no policy can be
// about one.
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

// GuardConnections makes an RBAC filter for connections the first filter of a chain.
func GuardConnections(l *draft.Listener, ch *draft.Chain, enforced, shadow *rbacv3.RBAC) {
	f := draft.Extension{Name: FilterNetwork, Message: &netrbacv3.RBAC{
		Rules: enforced, ShadowRules: shadow, StatPrefix: toolkit.StatName(l.Message.GetName()) + ".", // Envoy adds no dot
	}}
	ch.Network = slices.Concat([]draft.Extension{f}, ch.Network)
}

// Conf says what happens to the connections and requests of a group of clients.
type Conf struct {
	Action Action `json:"action,omitempty"`
}

// Action is the decision about a group of clients, in the spelling of today or that of Kuma 2.0.
type Action string

// decision is what an action means.
type decision int

const (
	deny decision = iota
	allow
	allowShadowDeny // allow, and count as if denied
)

// decision reads the action; false when there is no such action.
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

// Validate checks that the action is there and known.
func (c *Conf) Validate(v *resource.Validator) {
	if _, ok := c.Action.decision(); !ok {
		v.Field("action").OneOf(string(c.Action), "Allow", "Deny", "AllowWithShadowDeny")
	}
}

// fromRules makes what the filters enforce, and what they only count as denied: nil when nothing
// is. Clients of whom no rule speaks are denied, as are all when there are no rules.
func fromRules(mesh string, rules []*policy.Rule) (enforced, shadow *rbacv3.RBAC) {
	return filters(split(mesh, rules))
}

// split returns the principals whom rules allow, and those whom they allow and count as denied.
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

// filters makes what is enforced and what is counted of principals.
func filters(allowed, counted []*rbacv3.Principal) (enforced, shadow *rbacv3.RBAC) {
	enforced = RBAC(rbacv3.RBAC_ALLOW, Kind, slices.Concat(allowed, counted))
	if len(counted) > 0 {
		shadow = RBAC(rbacv3.RBAC_DENY, Kind, counted)
	}
	return enforced, shadow
}

// RBAC applies an action to principals, whatever they ask for. A policy without principals is one
// that Envoy rejects, so there is none.
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

// All is the principal of clients that are all of some principals; of all clients where there are
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

// OfTag is the principal of clients whose certificate has the name of a tag: the service is a
// SPIFFE id, and every other tag a URI of its own.
func OfTag(mesh, key, value string) *rbacv3.Principal {
	name := "kuma://" + key + "/" + value
	if key == resource.TagService {
		name = "spiffe://" + mesh + "/" + value
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{
		PrincipalName: toolkit.Exactly(name),
	}}}
}

// maxCompared bounds how many rules of each form are held against those of the other.
const maxCompared = 256

// principalRules returns the rules of an inbound in the form in which they become principals.
//
// Envoy joins principals by or: a client is admitted when one of them holds it. Kuma's form of the
// rules lets two of them hold one client, and where one denies what another allows, Envoy would
// admit whom a policy denies: with an item for everybody and two that each deny a service, nobody
// is kept out. So its form is taken, and with it the bytes that Kuma sends, where no client comes
// off better than the rules have it; else the rules that are disjoint.
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

// better reports whether a client of whom a rule decides one thing gets something else by another
// rule that holds it too: admittance, or a denial in the count.
func better(other, own decision) bool {
	return own == deny && other != deny || own == allow && other == allowShadowDeny
}
