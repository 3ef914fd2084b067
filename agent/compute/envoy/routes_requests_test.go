package envoy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// inbound returns a listener with one HTTP filter chain.
func inbound(m *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: "in", Address: address("10.0.0.1", 80),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{filter("hcm", m)}}}}
}

var toInbound = &match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort("10.0.0.2:1000"),
	First: match.HTTP11}

// TestRequests checks the processing of requests by an HTTP connection manager.
func TestRequests(t *testing.T) {
	deny := allowAll()
	deny.Action = rbacv3.RBAC_DENY
	denying := httpFilter("rbac", &httprbacv3.RBAC{Rules: deny})
	byHost := func(edit func(*hcmv3.HttpConnectionManager)) *hcmv3.HttpConnectionManager {
		m := manager(host("a", "c", "a.com"), host("b", "none", "b.com"))
		if edit != nil {
			edit(m)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		manager *hcmv3.HttpConnectionManager
		req     match.Request
		outcome match.Outcome
		at      match.Level
		status  uint32
		flag    string
	}{
		{"forwarded", byHost(nil), match.Request{Host: "a.com"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"no host", byHost(nil), match.Request{Host: "c.com"}, match.NoHost, match.LevelVirtualHost, 404, "NR"},
		{"no cluster", byHost(nil), match.Request{Host: "b.com"}, match.NoCluster, match.LevelCluster, 503, "NC"},
		{"the port is stripped", byHost(func(m *hcmv3.HttpConnectionManager) { m.StripMatchingHostPort = true }),
			match.Request{Host: "a.com:80"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"another port is not", byHost(func(m *hcmv3.HttpConnectionManager) { m.StripMatchingHostPort = true }),
			match.Request{Host: "a.com:81"}, match.NoHost, match.LevelVirtualHost, 404, "NR"},
		{"a dot behind the host", byHost(func(m *hcmv3.HttpConnectionManager) { m.StripTrailingHostDot = true }),
			match.Request{Host: "a.com."}, match.Forwarded, match.LevelCluster, 0, ""},
		{"denied", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.HttpFilters = append([]*hcmv3.HttpFilter{denying}, m.HttpFilters...)
		}), match.Request{Host: "a.com"}, match.Denied, match.LevelHTTPFilter, 403, "UAEX"},
		{"denied before there is a host", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.HttpFilters = append([]*hcmv3.HttpFilter{denying}, m.HttpFilters...)
		}), match.Request{Host: "c.com"}, match.Denied, match.LevelHTTPFilter, 403, "UAEX"},
		{"off for the route", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.HttpFilters = append([]*hcmv3.HttpFilter{denying}, m.HttpFilters...)
			m.GetRouteConfig().VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{
				"rbac": pack(&routev3.FilterConfig{Disabled: true}),
			}
		}), match.Request{Host: "a.com"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"off, but for the route", byHost(func(m *hcmv3.HttpConnectionManager) {
			off := httpFilter("rbac", &httprbacv3.RBAC{Rules: deny})
			off.Disabled = true
			m.HttpFilters = append([]*hcmv3.HttpFilter{off}, m.HttpFilters...)
			m.GetRouteConfig().VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{
				"rbac": pack(&httprbacv3.RBACPerRoute{Rbac: &httprbacv3.RBAC{Rules: deny}}),
			}
		}), match.Request{Host: "a.com"}, match.Denied, match.LevelHTTPFilter, 403, "UAEX"},
		{"off", byHost(func(m *hcmv3.HttpConnectionManager) {
			off := httpFilter("rbac", &httprbacv3.RBAC{Rules: deny})
			off.Disabled = true
			m.HttpFilters = append([]*hcmv3.HttpFilter{off}, m.HttpFilters...)
		}), match.Request{Host: "a.com"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"other rules for the route", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.HttpFilters = append([]*hcmv3.HttpFilter{denying}, m.HttpFilters...)
			m.GetRouteConfig().VirtualHosts[0].Routes[0].TypedPerFilterConfig = map[string]*anypb.Any{
				"rbac": pack(&httprbacv3.RBACPerRoute{Rbac: &httprbacv3.RBAC{Rules: allowAll()}}),
			}
		}), match.Request{Host: "a.com"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"dots in the path", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.NormalizePath = wrapperspb.Bool(true)
			m.GetRouteConfig().VirtualHosts[0].Routes[0].Match = regexPath("/b")
		}), match.Request{Host: "a.com", Path: "/a/%2e%2E/./b?x"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"slashes in the path", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.MergeSlashes = true
			m.GetRouteConfig().VirtualHosts[0].Routes[0].Match = regexPath("/a/b")
		}), match.Request{Host: "a.com", Path: "///a//b"}, match.Forwarded, match.LevelCluster, 0, ""},
		{"no route", byHost(func(m *hcmv3.HttpConnectionManager) {
			m.GetRouteConfig().VirtualHosts[0].Routes[0].Match = regexPath("/x")
		}), match.Request{Host: "a.com", Path: "/y"}, match.NoRoute, match.LevelRoute, 404, "NR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := match.Open(snapshot(t, inbound(c.manager), originalDst("c")), nil).Request(toInbound, &c.req)
			if got.Outcome != c.outcome || got.At != c.at || got.Status != c.status || got.Flag != c.flag || got.Reason == "" {
				t.Errorf("%v at %v, %d %s (%s), want %v at %v, %d %s\n%+v", got.Outcome, got.At, got.Status, got.Flag, got.Reason,
					c.outcome, c.at, c.status, c.flag, got.Steps)
			}
		})
	}
}

// TestRequestPlaces checks that a trace names the parts of the config that decide by their
// position, and routes from RDS by their own resource.
func TestRequestPlaces(t *testing.T) {
	got := match.Open(snapshot(t, inbound(manager(host("x", "c", "x"), host("a", "c", "a.com"))), originalDst("c")), nil).
		Request(toInbound, &match.Request{Host: "a.com"})
	if step := findStep(got, match.LevelRoute); step == nil || step.Choice != "#0" {
		t.Errorf("a route without a name is called %+v", step)
	}
	if step := findStep(got, match.LevelChain); step == nil || step.Choice != "#0" {
		t.Errorf("a filter chain without a name is called %+v", step)
	}
	if want := "/filterChains/0/filters/0/typedConfig/routeConfig/virtualHosts/1/routes/0"; got.Route == nil ||
		got.Route.Pointer != want || got.Route.Resource != "in" {
		t.Errorf("the route is %+v, want %s", got.Route, want)
	}
	m := manager()
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r", ConfigSource: ads}}
	routes := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{host("a", "c", "*")}}
	got = match.Open(snapshot(t, inbound(m), routes, originalDst("c")), nil).Request(toInbound,
		&match.Request{Host: "a.com"})
	if got.Route == nil || got.Route.Pointer != "/virtualHosts/0/routes/0" || got.Route.Resource != "r" ||
		got.Outcome != match.Forwarded {
		t.Errorf("by RDS: %v, the route is %+v", got.Outcome, got.Route)
	}
	got = match.Open(snapshot(t, inbound(m), originalDst("c")), nil).Request(toInbound, &match.Request{Host: "a.com"})
	if got.Outcome != match.NoHost {
		t.Errorf("without the routes: %v", got.Outcome)
	}
	if step := findStep(got, match.LevelRoute); step != nil {
		t.Errorf("without the routes a route is chosen: %+v", step)
	}
	got = match.Open(snapshot(t, inbound(m)), nil).Connection(toInbound)
	if got.Outcome != match.Accepted {
		t.Errorf("without a request: %v", got.Outcome)
	}
	secure := *toInbound
	secure.First = match.TLSHello
	if got := match.Open(snapshot(t, inbound(m)), nil).Connection(&secure); got.Outcome != match.Broken ||
		!strings.Contains(got.Reason, "TLS") {
		t.Errorf("TLS to a plain filter chain: %v (%s)", got.Outcome, got.Reason)
	}
}

// TestWhyHosts checks that a trace explains why each other virtual host is not chosen.
func TestWhyHosts(t *testing.T) {
	m := manager(host("all", "c", "*"), host("exact", "c", "a.b.com"), host("suffix", "c", "x.com", "*.b.com"),
		host("prefix", "c", "a.*"), host("other", "c", "c.com", "*.c.com", "d.*"))
	got := match.Open(snapshot(t, inbound(m), originalDst("c")), nil).Request(toInbound, &match.Request{Host: "A.b.com"})
	want := []match.Eliminated{
		{Name: "all", Why: "fits with *, but a.b.com is more specific and final"},
		{Name: "suffix", Why: "fits with *.b.com, but a.b.com is more specific and final"},
		{Name: "prefix", Why: "fits with a.*, but a.b.com is more specific and final"},
		{Name: "other", Why: "wants c.com, *.c.com, d.*"},
	}
	step := findStep(got, match.LevelVirtualHost)
	if step == nil || step.Choice != "exact" || step.Note != "by domain a.b.com" || !slices.Equal(step.Eliminated, want) {
		t.Errorf("%+v", step)
	}
}
