//lint:file-ignore SA1019 deprecated fields that Envoy still accepts are evaluated

package envoy_test

import (
	"net/netip"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

func textIs(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func authenticated(name *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{
		Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: name}},
	}
}

func allowing(permission *rbacv3.Permission, principal *rbacv3.Principal) *rbacv3.RBAC {
	rules := allowAll()
	if permission != nil {
		rules.Policies["p"].Permissions = []*rbacv3.Permission{permission}
	}
	if principal != nil {
		rules.Policies["p"].Principals = []*rbacv3.Principal{principal}
	}
	return rules
}

// TestRBAC checks which clients and requests the rules allow.
func TestRBAC(t *testing.T) {
	seen := &match.Seen{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort("10.1.0.2:1000"),
		Direct: netip.MustParseAddrPort("10.2.0.3:2000"), ServerName: "a.com"}
	web := &match.Peer{URIs: []string{"spiffe://mesh/web", "kuma://version/v1"}, DNS: []string{"web.mesh"},
		Subject: "CN=web"}
	get := &match.Request{Host: "a.com", Path: "/x?y", Headers: []match.Header{{Name: "X-A", Value: "1"}}}
	principals := func(list ...*rbacv3.Principal) *rbacv3.Principal_Set { return &rbacv3.Principal_Set{Ids: list} }
	anyone := &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	not := func(p *rbacv3.Principal) *rbacv3.Principal {
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
	}
	metadata := &rbacv3.Principal{
		Identifier: &rbacv3.Principal_Metadata{Metadata: &matcherv3.MetadataMatcher{Filter: "x"}},
	}
	header := &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: &routev3.HeaderMatcher{Name: "x-a",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: textIs("1")}}}}
	for _, c := range []struct {
		name    string
		rules   *rbacv3.RBAC
		peer    *match.Peer
		tls     bool
		req     *match.Request
		allowed bool
		known   bool
	}{
		{"no rules", nil, nil, false, nil, true, true},
		{"no policies", &rbacv3.RBAC{}, nil, false, nil, false, true},
		{"no policies to deny by", &rbacv3.RBAC{Action: rbacv3.RBAC_DENY}, nil, false, nil, true, true},
		{"a log", &rbacv3.RBAC{Action: rbacv3.RBAC_LOG}, nil, false, nil, true, true},
		{"anyone", allowAll(), nil, false, nil, true, true},
		{"a URI", allowing(nil, authenticated(textIs("spiffe://mesh/web"))), web, true, nil, true, true},
		{"the second URI", allowing(nil, authenticated(textIs("kuma://version/v1"))), web, true, nil, true, true},
		{"a DNS name", allowing(nil, authenticated(textIs("web.mesh"))), web, true, nil, true, true},
		{"the subject", allowing(nil, authenticated(textIs("CN=web"))), web, true, nil, true, true},
		{"another URI", allowing(nil, authenticated(textIs("spiffe://mesh/api"))), web, true, nil, false, true},
		{"without TLS", allowing(nil, authenticated(textIs("spiffe://mesh/web"))), web, false, nil, false, true},
		{"anyone with TLS", allowing(nil, authenticated(nil)), nil, true, nil, true, true},
		{"anyone with TLS, without", allowing(nil, authenticated(nil)), nil, false, nil, false, true},
		{"not a URI", allowing(nil, not(authenticated(textIs("spiffe://mesh/api")))), web, true, nil, true, true},
		{"and", allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{
			AndIds: principals(authenticated(textIs("spiffe://mesh/web")), authenticated(textIs("kuma://version/v2"))),
		}}), web, true, nil, false, true},
		{"or", allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: principals(
			authenticated(textIs("x")), authenticated(textIs("kuma://version/v1")))}}), web, true, nil, true, true},
		{"the source",
			allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: cidr("10.1.0.0/16")}}), nil, false,
			nil, true, true},
		{"the peer of the socket",
			allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: cidr("10.1.0.0/16")}}),
			nil, false, nil, false, true},
		{"a header", allowing(nil, header), nil, false, get, true, true},
		{"a header of a connection", allowing(nil, header), nil, false, nil, false, true},
		{"the destination",
			allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: cidr("10.0.0.1")}}, nil), nil,
			false, nil, true, true},
		{"the port", allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: 81}}, nil), nil,
			false, nil, false, true},
		{"a range of ports", allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPortRange{
			DestinationPortRange: &typev3.Int32Range{Start: 80, End: 81},
		}}, nil), nil, false, nil, true, true},
		{"the end of a range of ports", allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPortRange{
			DestinationPortRange: &typev3.Int32Range{Start: 79, End: 80},
		}}, nil), nil, false, nil, false, true},
		{"the path of a connection", allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{
			UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: textIs("/")}},
		}}, nil), nil, false, nil, false, true},
		{"the server name",
			allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: textIs("a.com")}},
				nil), nil, true, nil, true, true},
		{"the path without the query", allowing(&rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{
			UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: textIs("/x")}},
		}}, nil), nil, false, get, true, true},
		{"metadata", allowing(nil, metadata), nil, false, nil, false, false},
		{"not metadata", allowing(nil, not(metadata)), nil, false, nil, false, false},
		{"metadata or anyone",
			allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: principals(metadata, anyone)}}), nil,
			false, nil, true, true},
		{"metadata and nobody",
			allowing(nil, &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: principals(metadata, not(anyone))}}),
			nil, false, nil, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := match.EvaluateRBAC(c.rules, seen, c.peer, c.tls, c.req)
			if got.Allowed != c.allowed || got.Known != c.known {
				t.Errorf("%+v, want allowed %v, known %v", got, c.allowed, c.known)
			}
		})
	}
	two := allowAll()
	two.Policies["a"], two.Policies["0"] = two.Policies["p"], allowing(nil, not(anyone)).Policies["p"]
	if got := match.EvaluateRBAC(two, seen, nil, false, nil); got.Policy != "a" {
		t.Errorf("the policy that decides is %q, want the first one by name that fits, a", got.Policy)
	}
	deny := allowAll()
	deny.Action = rbacv3.RBAC_DENY
	if got := match.EvaluateRBAC(deny, seen, nil, false, nil); got.Allowed || got.Policy != "p" {
		t.Errorf("deny: %+v", got)
	}
}

// TestNetworkRBAC checks that a network RBAC filter denies a connection before its bytes are read,
// and that shadow rules only add a note.
func TestNetworkRBAC(t *testing.T) {
	deny := allowAll()
	deny.Action = rbacv3.RBAC_DENY
	for name, c := range map[string]struct {
		rules, shadow *rbacv3.RBAC
		want          match.Outcome
		policy, note  string
	}{
		"allowed":           {allowAll(), nil, match.Forwarded, "p", ""},
		"denied":            {deny, nil, match.Denied, "p", ""},
		"no rule fits":      {&rbacv3.RBAC{}, nil, match.Denied, "", ""},
		"denied in shadow":  {allowAll(), deny, match.Forwarded, "p", "shadow rules would deny: policy p fits"},
		"nothing but shade": {nil, deny, match.Forwarded, "", "shadow rules would deny: policy p fits"},
	} {
		l := secondListener("l", address("10.0.0.1", 80))
		l.FilterChains[0].Filters = append([]*listenerv3.Filter{filter("rbac",
			&netrbacv3.RBAC{StatPrefix: "x", Rules: c.rules, ShadowRules: c.shadow})}, l.FilterChains[0].Filters...)
		got := match.Open(snapshot(t, l, originalDst("static")), nil).
			Connection(&match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80")})
		step := findStep(got, match.LevelNetworkFilter)
		if got.Outcome != c.want || got.Policy != c.policy || step == nil || step.Note != c.note {
			t.Errorf("%s: %v by %q, the step is %+v, want %v by %q and %q", name, got.Outcome, got.Policy, step, c.want,
				c.policy, c.note)
		}
	}
}
