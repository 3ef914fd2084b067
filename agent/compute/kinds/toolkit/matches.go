package toolkit

import (
	"regexp"
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	netstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// CertificateHeader holds the URIs of the client certificate in requests that an inbound receives.
// The inbound's connection manager overwrites the header sent by the client and omits it if there
// is no certificate. Each URI follows a semicolon, because the header begins with a hash.
const CertificateHeader = "x-forwarded-client-cert"

const (
	nameInspector = "envoy.filters.listener.tls_inspector"
	nameState     = "envoy.filters.network.set_filter_state"

	// stateServerName is the key of the filter state object with the requested server name.
	stateServerName = "nearside.requested_server_name"
	serverName      = "%REQUESTED_SERVER_NAME%"
)

// OfMatch returns matchers for requests of clients with the SPIFFE ID of m; none if m has none.
func OfMatch(m *resource.ClientMatch) []*routev3.HeaderMatcher {
	switch id := m.SpiffeID; {
	case id == nil:
		return nil
	case id.Type == resource.MatchPrefix:
		return []*routev3.HeaderMatcher{Header(CertificateHeader, &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Contains{Contains: ";URI=" + id.Value}})}
	default:
		return []*routev3.HeaderMatcher{Header(CertificateHeader, Regex(".*;URI="+regexp.QuoteMeta(id.Value)+"(;.*)?"))}
	}
}

// NarrowRoute restricts a route to the clients that match m. [RecordServerName] must record the
// server name if m has one.
func NarrowRoute(r *routev3.RouteMatch, m *resource.ClientMatch) {
	r.Headers = append(r.Headers, OfMatch(m)...)
	if m.SNI != nil {
		r.FilterState = append(r.FilterState, &matcherv3.FilterStateMatcher{Key: stateServerName,
			Matcher: &matcherv3.FilterStateMatcher_StringMatch{StringMatch: Exactly(m.SNI.Value)}})
	}
}

// DivideRoutes inserts n copies of the routes before the existing ones. edit changes the match and
// the action of a copy.
func DivideRoutes(h *draft.HTTP, n int, edit func(i int, r *routev3.Route)) {
	for _, host := range h.Routes.GetVirtualHosts() {
		out := make([]*routev3.Route, 0, len(host.Routes)*(n+1))
		for i := range n {
			for _, r := range host.Routes {
				if r.Match == nil {
					continue // matches no request
				}
				r = proto.Clone(r).(*routev3.Route)
				edit(i, r)
				out = append(out, r)
			}
		}
		host.Routes = append(out, host.Routes...)
	}
}

// RecordServerName makes the routes of the TLS chains of a listener see the server name that a
// client requests, if one of the rules matches it.
func RecordServerName(c *policy.Context, l *draft.Listener, rules []*policy.MatchRule) {
	if !inspectServerName(c, l, rules) {
		return
	}
	for _, ch := range l.Chains {
		if ch.HTTP == nil || !ch.TLS ||
			slices.ContainsFunc(ch.Network, func(f draft.Extension) bool { return f.Name == nameState }) {
			continue
		}
		ch.Network = slices.Concat([]draft.Extension{{Name: nameState, Message: &netstatev3.Config{
			OnNewConnection: []*statev3.FilterStateValue{{
				Key:        &statev3.FilterStateValue_ObjectKey{ObjectKey: stateServerName},
				FactoryKey: "envoy.string", ReadOnly: true, SkipIfEmpty: true,
				Value: &statev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
					Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
						Specifier: &corev3.DataSource_InlineString{InlineString: serverName}}},
				}},
			}},
		}}}, ch.Network)
	}
}

// inspectServerName adds a TLS inspector to a listener if one of the rules matches server names. It
// reports whether one does.
func inspectServerName(c *policy.Context, l *draft.Listener, rules []*policy.MatchRule) bool {
	byName := func(m *policy.MatchRule) bool { return m.Match.SNI != nil }
	if !slices.ContainsFunc(rules, byName) || !slices.ContainsFunc(l.Chains, withTLS) {
		return false
	}
	if slices.ContainsFunc(l.Message.ListenerFilters, func(f *listenerv3.ListenerFilter) bool {
		return f.GetName() == nameInspector
	}) {
		return true
	}
	inspector, err := draft.Extension{Name: nameInspector, Message: &inspectorv3.TlsInspector{}}.Pack()
	if err != nil {
		WarnOrigins(c, &rules[0].Rule, "matches by sni have no effect at inbound %d: %v", l.Port, err)
		return false
	}
	l.Message.ListenerFilters = append(slices.Clone(l.Message.ListenerFilters), &listenerv3.ListenerFilter{
		Name: nameInspector, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: inspector},
	})
	return true
}

func withTLS(ch *draft.Chain) bool { return ch.TLS }

// InspectServerName makes filters from [ForServerName] and conditions of access logs see the server
// name that a client requests, if one of the rules matches it.
func InspectServerName(c *policy.Context, l *draft.Listener, rules []*policy.MatchRule) {
	inspectServerName(c, l, rules)
}

// ForServerName returns an HTTP filter that is skipped for clients that do not request the server
// name of m; f itself if m has none.
func ForServerName(f draft.Extension, m *resource.ClientMatch) (draft.Extension, error) {
	if m.SNI == nil {
		return f, nil
	}
	packed, err := f.Pack()
	if err != nil {
		return f, err
	}
	input, err := anypb.New(&networkv3.ServerNameInput{})
	if err != nil {
		return f, err
	}
	skip, err := anypb.New(&skipv3.SkipFilter{})
	if err != nil {
		return f, err
	}
	wanted := &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
			SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
				Input: &xdscorev3.TypedExtensionConfig{Name: "envoy.matching.inputs.server_name", TypedConfig: input},
				Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{
					ValueMatch: &xdsmatcherv3.StringMatcher{
						MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: m.SNI.Value}},
				},
			},
		},
	}
	return draft.Extension{Name: f.Name, Message: &matchingv3.ExtensionWithMatcher{
		ExtensionConfig: &corev3.TypedExtensionConfig{Name: f.Name, TypedConfig: packed},
		XdsMatcher: &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherList_{
			MatcherList: &xdsmatcherv3.Matcher_MatcherList{Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{{
				Predicate: &xdsmatcherv3.Matcher_MatcherList_Predicate{
					MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: wanted}},
				OnMatch: &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
					Action: &xdscorev3.TypedExtensionConfig{Name: "skip", TypedConfig: skip}}},
			}}},
		}},
	}}, nil
}

// WarnNoMTLS warns that the matches of a kind's policies select no client, because the inbound does
// not accept mTLS.
func WarnNoMTLS(c *policy.Context, matched []*policy.MatchRule, l *draft.Listener) {
	if slices.ContainsFunc(l.Chains, withTLS) {
		return
	}
	for _, m := range matched {
		if m.Match != (resource.ClientMatch{}) {
			WarnOrigins(c, &m.Rule, "inbound %d does not accept mTLS, so clients have no SPIFFE ID and the "+
				"matches select none of them; enable mtls of the Mesh", l.Port)
		}
	}
}
