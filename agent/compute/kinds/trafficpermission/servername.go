package trafficpermission

import (
	"regexp"
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	netinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	sslinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/ssl/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// byServerName reports whether rules of an inbound depend on the requested server name.
func byServerName(in *policy.InboundRules) bool {
	return in != nil && slices.ContainsFunc(in.Entries, func(r *policy.Rule) bool {
		c := toolkit.Conf[RuleConf](r)
		return c != nil && slices.ContainsFunc(c.ClientMatches(), func(m resource.ClientMatch) bool { return m.SNI != nil })
	})
}

// guardByServerName is like guard for rules that depend on the server name. Principals cannot have
// that condition, so the filter has a matcher instead of rules.
func guardByServerName(in *policy.InboundRules, l *draft.Listener, ch *draft.Chain) (admits bool, err error) {
	b := &matchers{}
	all := entriesOf(in)
	deny, counted := b.anyOf(all.Deny), b.anyOf(all.AllowWithShadowDeny)
	allow := b.anyOf(slices.Concat(all.Allow, all.AllowWithShadowDeny))
	enforced := b.list(rbacv3.RBAC_DENY, b.entry(deny, rbacv3.RBAC_DENY), b.entry(allow, rbacv3.RBAC_ALLOW))
	var shadow *xdsmatcherv3.Matcher
	if counted != nil {
		shadow = b.list(rbacv3.RBAC_ALLOW, b.entry(counted, rbacv3.RBAC_DENY))
	}
	if b.err == nil {
		b.inspectTLS(l.Message)
	}
	if b.err != nil {
		return false, b.err
	}
	if ch.HTTP == nil {
		f := draft.Extension{Name: FilterNetwork, Message: &netrbacv3.RBAC{
			Matcher: enforced, ShadowMatcher: shadow, StatPrefix: toolkit.StatName(l.Message.GetName()) + ".",
		}}
		ch.Network = slices.Concat([]draft.Extension{f}, ch.Network)
	} else {
		f := draft.Extension{Name: FilterHTTP, Message: &httprbacv3.RBAC{Matcher: enforced, ShadowMatcher: shadow}}
		ch.HTTP.Filters = slices.Concat([]draft.Extension{f}, ch.HTTP.Filters)
	}
	return allow != nil, nil
}

const nameInspector = "envoy.filters.listener.tls_inspector"

// inspectTLS adds the listener filter that reads the server name, unless the listener has it.
func (b *matchers) inspectTLS(l *listenerv3.Listener) {
	if slices.ContainsFunc(l.ListenerFilters,
		func(f *listenerv3.ListenerFilter) bool { return f.GetName() == nameInspector }) {
		return
	}
	l.ListenerFilters = append(slices.Clip(l.ListenerFilters), &listenerv3.ListenerFilter{Name: nameInspector,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: b.pack(nameInspector, &inspectorv3.TlsInspector{}).
			GetTypedConfig()}})
}

// matchers builds matchers, and records the first error.
type matchers struct{ err error }

func (b *matchers) pack(name string, m proto.Message) *xdscorev3.TypedExtensionConfig {
	a, err := draft.Extension{Name: name, Message: m}.Pack()
	if err != nil && b.err == nil {
		b.err = err
	}
	return &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: a}
}

type (
	onMatch   = xdsmatcherv3.Matcher_OnMatch
	predicate = xdsmatcherv3.Matcher_MatcherList_Predicate
	field     = xdsmatcherv3.Matcher_MatcherList_FieldMatcher
)

// list tries entries in order, and applies the last action to other clients. Nil entries are
// omitted.
func (b *matchers) list(otherwise rbacv3.RBAC_Action, entries ...*field) *xdsmatcherv3.Matcher {
	out := &xdsmatcherv3.Matcher{OnNoMatch: b.action("default", otherwise)}
	entries = slices.DeleteFunc(entries, func(f *field) bool { return f == nil })
	if len(entries) > 0 { // Envoy rejects an empty list
		list := &xdsmatcherv3.Matcher_MatcherList{Matchers: entries}
		out.MatcherType = &xdsmatcherv3.Matcher_MatcherList_{MatcherList: list}
	}
	return out
}

func (b *matchers) entry(p *predicate, action rbacv3.RBAC_Action) *field {
	if p == nil {
		return nil
	}
	return &field{Predicate: p, OnMatch: b.action(Kind, action)}
}

func (b *matchers) action(name string, action rbacv3.RBAC_Action) *onMatch {
	return &onMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
		Action: b.pack("envoy.filters.rbac.action", &rbacv3.Action{Name: name, Action: action}),
	}}
}

// anyOf returns a predicate that holds if one of the matches does, or nil if there are none.
func (b *matchers) anyOf(list []resource.ClientMatch) *predicate {
	var parts []*predicate
	for i := range list {
		var both []*predicate
		if id := list[i].SpiffeID; id != nil {
			both = append(both, b.single("envoy.matching.inputs.uri_san", &sslinputsv3.UriSanInput{}, inSANs(id)))
		}
		if sni := list[i].SNI; sni != nil {
			both = append(both, b.single("envoy.matching.inputs.server_name", &netinputsv3.ServerNameInput{},
				&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: sni.Value}}))
		}
		switch len(both) {
		case 1:
			parts = append(parts, both[0])
		case 2:
			parts = append(parts, &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
				AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: both},
			}})
		}
	}
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: parts},
	}}
}

func (b *matchers) single(name string, input proto.Message, value *xdsmatcherv3.StringMatcher) *predicate {
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input:   b.pack(name, input),
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: value},
		},
	}}
}

// inSANs matches the URIs of a certificate, which Envoy joins with commas. No URI of the mesh
// contains a comma, because tags and SPIFFE IDs cannot.
func inSANs(id *resource.SpiffeIDMatch) *xdsmatcherv3.StringMatcher {
	pattern := "(?:.*,)?" + regexp.QuoteMeta(id.Value)
	if id.Type == resource.MatchPrefix {
		pattern += ".*"
	} else {
		pattern += "(?:,.*)?"
	}
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_SafeRegex{
		SafeRegex: &xdsmatcherv3.RegexMatcher{
			EngineType: &xdsmatcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &xdsmatcherv3.RegexMatcher_GoogleRE2{}}, Regex: pattern,
		},
	}}
}
