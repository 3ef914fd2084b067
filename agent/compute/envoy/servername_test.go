package envoy_test

import (
	"net/netip"
	"testing"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	netstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	sslv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/ssl/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// terminating returns an inbound that terminates TLS. Its network filters precede the connection
// manager.
func terminating(t *testing.T, m *hcmv3.HttpConnectionManager, filters ...*listenerv3.Filter) *match.Config {
	l := inbound(m)
	l.ListenerFilters = []*listenerv3.ListenerFilter{listenerFilter("tls_inspector", &tlsinspectorv3.TlsInspector{})}
	l.FilterChains[0].Filters = append(filters, l.FilterChains[0].Filters...)
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.DownstreamTlsContext{})}}
	return match.Open(snapshot(t, l, originalDst("one"), originalDst("two")), nil)
}

// overTLS returns a connection to the inbound.
func overTLS(sni string, uris ...string) *match.Conn {
	return &match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort("10.0.0.2:1000"),
		First: match.TLSHello, Within: match.HTTP11, SNI: sni, Peer: &match.Peer{URIs: uris}}
}

// TestServerNameRoutes checks routes by filter state that contains the requested server name.
func TestServerNameRoutes(t *testing.T) {
	const key, name = "nearside.requested_server_name", "%REQUESTED_SERVER_NAME%"
	state := func(key, format string, handshake bool) *listenerv3.Filter {
		values := []*statev3.FilterStateValue{{
			Key: &statev3.FilterStateValue_ObjectKey{ObjectKey: key}, FactoryKey: "envoy.string",
			Value: &statev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: format}}}}},
		}}
		if handshake {
			return filter("state", &netstatev3.Config{OnDownstreamTlsHandshake: values})
		}
		return filter("state", &netstatev3.Config{OnNewConnection: values})
	}
	h := host("h", "two", "*")
	narrow := proto.Clone(h.Routes[0]).(*routev3.Route)
	narrow.GetRoute().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: "one"}
	narrow.Match.FilterState = []*matcherv3.FilterStateMatcher{{Key: key,
		Matcher: &matcherv3.FilterStateMatcher_StringMatch{StringMatch: textIs("a.com")}}}
	h.Routes = append([]*routev3.Route{narrow}, h.Routes...)
	for _, c := range []struct {
		name    string
		filters []*listenerv3.Filter
		sni     string
		cluster string
	}{
		{"the name", []*listenerv3.Filter{state(key, name, false)}, "a.com", "one"},
		{"in upper case", []*listenerv3.Filter{state(key, name, false)}, "A.COM", "one"},
		{"another name", []*listenerv3.Filter{state(key, name, false)}, "b.com", "two"},
		{"no name", []*listenerv3.Filter{state(key, name, false)}, "", "two"},
		{"no filter", nil, "a.com", "two"},
		{"another key", []*listenerv3.Filter{state("other", name, false)}, "a.com", "two"},
		{"another value", []*listenerv3.Filter{state(key, "a.com", false)}, "b.com", "two"},
		{"after the handshake", []*listenerv3.Filter{state(key, name, true)}, "a.com", "two"},
	} {
		got := terminating(t, manager(h), c.filters...).Request(overTLS(c.sni), &match.Request{Host: "x"})
		if len(got.Targets) != 1 || got.Targets[0].Cluster != c.cluster {
			t.Errorf("%s: %v to %+v, want %s: %s", c.name, got.Outcome, got.Targets, c.cluster, got.Reason)
		}
	}
}

// TestServerNameFaults checks a fault in an ExtensionWithMatcher, which all requests skip that are
// not for one server name.
func TestServerNameFaults(t *testing.T) {
	other := &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{
			NotMatcher: single(&networkv3.ServerNameInput{}, equals("a.com"))},
	}
	m := manager(host("h", "one", "*"))
	m.HttpFilters = append([]*hcmv3.HttpFilter{httpFilter("fault", &matchingv3.ExtensionWithMatcher{
		ExtensionConfig: &corev3.TypedExtensionConfig{Name: "fault", TypedConfig: pack(&faultv3.HTTPFault{
			Abort: &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: 418},
				Percentage: &typev3.FractionalPercent{Numerator: 100}}})},
		XdsMatcher: listOf(entry(other, toAction(&skipv3.SkipFilter{}))),
	})}, m.HttpFilters...)
	for sni, status := range map[string]uint32{"a.com": 418, "b.com": 0, "": 0} {
		if got := terminating(t, m).Request(overTLS(sni), &match.Request{Host: "x"}); got.Status != status {
			t.Errorf("%q: %v with status %d, want %d: %s", sni, got.Outcome, got.Status, status, got.Reason)
		}
	}
}

// TestServerNameRBAC checks matchers of RBAC filters by server name and by the URIs of a
// certificate, for requests and connections.
func TestServerNameRBAC(t *testing.T) {
	action := func(name string, a rbacv3.RBAC_Action) *xdsmatcherv3.Matcher_OnMatch {
		return toAction(&rbacv3.Action{Name: name, Action: a})
	}
	both := &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
			AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{
				Predicate: []*xdsmatcherv3.Matcher_MatcherList_Predicate{
					single(&networkv3.ServerNameInput{}, equals("a.com")),
					single(&sslv3.UriSanInput{}, equals("spiffe://m/web,kuma://team/x")),
				}}},
	}
	rules := listOf(entry(single(&networkv3.ServerNameInput{}, equals("no.com")), action("deny", rbacv3.RBAC_DENY)),
		entry(both, action("allow", rbacv3.RBAC_ALLOW)))
	open := listOf(entry(single(&networkv3.ServerNameInput{}, equals("no.com")), action("deny", rbacv3.RBAC_DENY)))
	open.OnNoMatch = action("others", rbacv3.RBAC_ALLOW)
	for _, c := range []struct {
		name    string
		matcher *xdsmatcherv3.Matcher
		sni     string
		uris    []string
		policy  string
		allowed bool
	}{
		{"both", rules, "a.com", []string{"spiffe://m/web", "kuma://team/x"}, "allow", true},
		{"another certificate", rules, "a.com", []string{"spiffe://m/web"}, "", false},
		{"another name", rules, "b.com", []string{"spiffe://m/web", "kuma://team/x"}, "", false},
		{"a denied name", rules, "no.com", []string{"spiffe://m/web", "kuma://team/x"}, "deny", false},
		{"no name", rules, "", []string{"spiffe://m/web", "kuma://team/x"}, "", false},
		{"denied, otherwise open", open, "no.com", nil, "deny", false},
		{"otherwise open", open, "b.com", nil, "others", true},
	} {
		m := manager(host("h", "one", "*"))
		plain := terminating(t, m, filter("rbac", &netrbacv3.RBAC{StatPrefix: "x", Matcher: c.matcher})).
			Request(overTLS(c.sni, c.uris...), &match.Request{Host: "x"})
		m.HttpFilters = append([]*hcmv3.HttpFilter{httpFilter("rbac", &httprbacv3.RBAC{Matcher: c.matcher})},
			m.HttpFilters...)
		http := terminating(t, m).Request(overTLS(c.sni, c.uris...), &match.Request{Host: "x"})
		for _, got := range []*match.Trace{plain, http} {
			if (got.Outcome == match.Forwarded) != c.allowed || got.Policy != c.policy {
				t.Errorf("%s: %v by %q, want allowed %t by %q: %s", c.name, got.Outcome, got.Policy, c.allowed, c.policy,
					got.Reason)
			}
		}
	}
}

// toAction returns the end of a matcher.
func toAction(m proto.Message) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: "action", TypedConfig: pack(m)}}}
}
