package envoy_test

import (
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func parseAll(prefixes ...string) []*corev3.CidrRange {
	var out []*corev3.CidrRange
	for _, p := range prefixes {
		out = append(out, cidr(p))
	}
	return out
}

func TestVirtualHosts(t *testing.T) {
	hosts := [][]string{{"a.com", "A.org"}, {"*.a.com"}, {"*-x.a.com"}, {"a.*"}, {"a.com:8080"}, {"*"}, {"[::1]:80"}}
	rc := &routev3.RouteConfiguration{}
	for i, d := range hosts {
		rc.VirtualHosts = append(rc.VirtualHosts, host(fmt.Sprint(i), "c", d...))
	}
	r := match.NewRoutes(rc)
	rc2 := &routev3.RouteConfiguration{VirtualHosts: rc.VirtualHosts, IgnorePortInHostMatching: true}
	ignoring := match.NewRoutes(rc2)
	for host, want := range map[string][2]int{
		"a.com": {0, 0}, "A.COM": {0, 0}, "a.org": {0, 0}, "x.a.com": {1, 1}, "y-x.a.com": {2, 2}, "a.net": {3, 3},
		"a.": {5, 5}, ".a.com": {5, 5}, "a.com:8080": {4, 0}, "a.com:80": {3, 0}, "x.a.com:80": {5, 1}, "b.de": {5, 5},
		"[::1]:80": {6, 5}, "": {match.NoIndex, match.NoIndex},
	} {
		got, _ := r.FindHost(host)
		ignoringPort, _ := ignoring.FindHost(host)
		if [2]int{got, ignoringPort} != want {
			t.Errorf("%q: virtual host %d, ignoring the port %d, want %v", host, got, ignoringPort, want)
		}
	}
	only := match.NewRoutes(&routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{host("x", "c", "*")}})
	if got, _ := only.FindHost(""); got != 0 {
		t.Errorf("with one virtual host for all, no Host comes to %d", got)
	}
}

// TestRouteMatches checks which requests a route matches.
func TestRouteMatches(t *testing.T) {
	prefix := func(p string) *routev3.RouteMatch { return toCluster("", p, "c").Match }
	insensitive := prefix("/A")
	insensitive.CaseSensitive = wrapperspb.Bool(false)
	separated := func(p string) *routev3.RouteMatch {
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: p}}
	}
	path := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/a"}}
	with := func(edit func(*routev3.RouteMatch)) *routev3.RouteMatch {
		m := prefix("/")
		edit(m)
		return m
	}
	headerIs := func(h *routev3.HeaderMatcher) *routev3.RouteMatch {
		return with(func(m *routev3.RouteMatch) { m.Headers = []*routev3.HeaderMatcher{h} })
	}
	text := func(s string) *routev3.HeaderMatcher_StringMatch {
		return &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}},
		}
	}
	query := with(func(m *routev3.RouteMatch) {
		m.QueryParameters = []*routev3.QueryParameterMatcher{{Name: "q",
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "v"}},
			}}}
	})
	present := func(want bool) *routev3.RouteMatch {
		return with(func(m *routev3.RouteMatch) {
			m.QueryParameters = []*routev3.QueryParameterMatcher{{Name: "q",
				QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: want}}}
		})
	}
	for _, c := range []struct {
		name  string
		match *routev3.RouteMatch
		req   match.Request
		want  bool
	}{
		{"a prefix", prefix("/a"), match.Request{Path: "/ab?x"}, true},
		{"not a prefix", prefix("/a"), match.Request{Path: "/b?/a"}, false},
		{"the case of a prefix", prefix("/A"), match.Request{Path: "/ab"}, false},
		{"without regard to case", insensitive, match.Request{Path: "/ab"}, true},
		{"a path, the query aside", path, match.Request{Path: "/a?x=/"}, true},
		{"a longer path", path, match.Request{Path: "/a/"}, false},
		{"a regex on the whole path", regexPath("/a.*"), match.Request{Path: "/abc?x"}, true},
		{"a regex on a part of it", regexPath("a"), match.Request{Path: "/a"}, false},
		{"a separated prefix itself", separated("/a"), match.Request{Path: "/a?x"}, true},
		{"below a separated prefix", separated("/a"), match.Request{Path: "/a/b"}, true},
		{"beside a separated prefix", separated("/a"), match.Request{Path: "/ab"}, false},
		{"a header", headerIs(&routev3.HeaderMatcher{Name: "X-A", HeaderMatchSpecifier: text("1")}),
			match.Request{Headers: []match.Header{{Name: "x-a", Value: "1"}}}, true},
		{"a header twice", headerIs(&routev3.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: text("1,2")}),
			match.Request{Headers: []match.Header{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}}}, true},
		{"no header", headerIs(&routev3.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: text("1")}), match.Request{}, false},
		{"no header, inverted", headerIs(&routev3.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: text("1"),
			InvertMatch: true}), match.Request{}, false},
		{"no header, inverted, taken as empty", headerIs(&routev3.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: text("1"),
			InvertMatch: true, TreatMissingHeaderAsEmpty: true}), match.Request{}, true},
		{"another header, inverted", headerIs(&routev3.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: text("1"),
			InvertMatch: true}), match.Request{Headers: []match.Header{{Name: "x-a", Value: "2"}}}, true},
		{"presence", headerIs(&routev3.HeaderMatcher{Name: "x-a",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}), match.Request{}, false},
		{"absence", headerIs(&routev3.HeaderMatcher{Name: "x-a",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: false}}), match.Request{}, true},
		{"presence, inverted", headerIs(&routev3.HeaderMatcher{Name: "x-a",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}, InvertMatch: true}),
			match.Request{}, true},
		{"a range", headerIs(&routev3.HeaderMatcher{Name: "n",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: 1, End: 3}}}),
			match.Request{Headers: []match.Header{{Name: "n", Value: "2"}}}, true},
		{"the end of a range", headerIs(&routev3.HeaderMatcher{Name: "n",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: 1, End: 3}}}),
			match.Request{Headers: []match.Header{{Name: "n", Value: "3"}}}, false},
		{"the method", headerIs(&routev3.HeaderMatcher{Name: ":method", HeaderMatchSpecifier: text("POST")}),
			match.Request{Method: "POST"}, true},
		{"the host", headerIs(&routev3.HeaderMatcher{Name: ":authority", HeaderMatchSpecifier: text("a.com")}),
			match.Request{}, true},
		{"a query parameter", query, match.Request{Path: "/?a=1&q=value#x"}, true},
		{"the second of its name", query, match.Request{Path: "/?q=x&q=v"}, false},
		{"no query parameter", query, match.Request{Path: "/?a=q"}, false},
		{"presence of one", present(true), match.Request{Path: "/?q"}, true},
		{"absence of one", present(false), match.Request{Path: "/?q"}, false},
		{"gRPC", with(func(m *routev3.RouteMatch) { m.Grpc = &routev3.RouteMatch_GrpcRouteMatchOptions{} }),
			match.Request{Headers: []match.Header{{Name: "content-type", Value: "application/grpc+proto"}}}, true},
		{"not gRPC", with(func(m *routev3.RouteMatch) { m.Grpc = &routev3.RouteMatch_GrpcRouteMatchOptions{} }),
			match.Request{Headers: []match.Header{{Name: "content-type", Value: "application/grpcx"}}}, false},
		{"a cookie", with(func(m *routev3.RouteMatch) {
			m.Cookies = []*routev3.CookieMatcher{{Name: "c",
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "v"}}}}
		}), match.Request{Headers: []match.Header{{Name: "cookie", Value: `a=b; c="v"`}}}, true},
		{"a fraction", with(func(m *routev3.RouteMatch) {
			m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 10}}
		}), match.Request{Roll: 109}, true},
		{"the rest", with(func(m *routev3.RouteMatch) {
			m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 10}}
		}), match.Request{Roll: 110}, false},
		{"no cookie", with(func(m *routev3.RouteMatch) {
			m.Cookies = []*routev3.CookieMatcher{{
				Name:        "c",
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "v"}},
				InvertMatch: true,
			}}
		}), match.Request{}, false},
		{"no client certificate", with(func(m *routev3.RouteMatch) {
			m.TlsContext = &routev3.RouteMatch_TlsContextMatchOptions{Presented: wrapperspb.Bool(true)}
		}), match.Request{}, false},
		{"no client certificate, and none is expected", with(func(m *routev3.RouteMatch) {
			m.TlsContext = &routev3.RouteMatch_TlsContextMatchOptions{Presented: wrapperspb.Bool(false),
				Validated: wrapperspb.Bool(false)}
		}), match.Request{}, true},
		{"no validated client certificate", with(func(m *routev3.RouteMatch) {
			m.TlsContext = &routev3.RouteMatch_TlsContextMatchOptions{Validated: wrapperspb.Bool(true)}
		}), match.Request{}, false},
		{"metadata", with(func(m *routev3.RouteMatch) {
			m.DynamicMetadata = []*matcherv3.MetadataMatcher{{Filter: "x"}}
		}), match.Request{}, false},
		{"CONNECT", &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_ConnectMatcher_{
			ConnectMatcher: &routev3.RouteMatch_ConnectMatcher{},
		}}, match.Request{Method: "CONNECT"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := toCluster("first", "/", "first")
			first.Match = c.match
			h := host("h", "rest", "*")
			h.Routes = append([]*routev3.Route{first}, h.Routes...)
			c.req.Host = "a.com"
			m := match.NewRoutes(&routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{h}}).Find(&c.req)
			if (m.Route == 0) != c.want || m.Outcome != match.Forwarded {
				t.Errorf("%v by route %d, want the first: %v", m.Outcome, m.Route, c.want)
			}
		})
	}
}

func TestRouteActions(t *testing.T) {
	vhost := func(edit func(*routev3.Route)) *match.Routes {
		h := host("h", "c", "*")
		edit(h.Routes[0])
		return match.NewRoutes(&routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{h}})
	}
	redirect := func(a *routev3.RedirectAction) func(*routev3.Route) {
		return func(r *routev3.Route) { r.Action = &routev3.Route_Redirect{Redirect: a} }
	}
	for _, c := range []struct {
		name     string
		edit     func(*routev3.Route)
		req      match.Request
		status   uint32
		location string
	}{
		{"a direct response", func(r *routev3.Route) {
			r.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 418}}
		}, match.Request{}, 418, ""},
		{"to https", redirect(&routev3.RedirectAction{SchemeRewriteSpecifier: &routev3.RedirectAction_HttpsRedirect{
			HttpsRedirect: true,
		}}), match.Request{Host: "a.com:80", Path: "/x?y"}, 301, "https://a.com/x?y"},
		{"to another port", redirect(&routev3.RedirectAction{PortRedirect: 8443, ResponseCode: routev3.RedirectAction_FOUND}),
			match.Request{Host: "a.com"}, 302, "http://a.com:8443/"},
		{"to another host and path", redirect(&routev3.RedirectAction{
			HostRedirect:         "b.com",
			PathRewriteSpecifier: &routev3.RedirectAction_PathRedirect{PathRedirect: "/p?q"},
			ResponseCode:         routev3.RedirectAction_TEMPORARY_REDIRECT,
		}), match.Request{Host: "a.com", Path: "/x?y"}, 307, "http://b.com/p?q"},
		{"a prefix in place of the one that matched", func(r *routev3.Route) {
			r.Match = &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/old"}}
			redirect(&routev3.RedirectAction{PathRewriteSpecifier: &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: "/new"},
				StripQuery: true})(r)
		}, match.Request{Host: "a.com", Path: "/old/x?y"}, 301, "http://a.com/new/x"},
		{"a regex", redirect(&routev3.RedirectAction{ResponseCode: routev3.RedirectAction_PERMANENT_REDIRECT,
			PathRewriteSpecifier: &routev3.RedirectAction_RegexRewrite{
				RegexRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "/v([0-9]+)"},
					Substitution: `/$\1`},
			}}), match.Request{Host: "a.com", Path: "/v1/x"}, 308, "http://a.com/$1/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vhost(c.edit).Find(&c.req)
			if m.Outcome != match.Answered || m.Status != c.status || m.Location != c.location {
				t.Errorf("%+v, want %d %q", m, c.status, c.location)
			}
		})
	}
	split := vhost(func(r *routev3.Route) {
		w := weighted(1, 3)
		w.WeightedClusters.Clusters[1].Name = "other"
		r.GetRoute().ClusterSpecifier = w
	})
	chosen := map[string]int{}
	for roll := range uint64(400) {
		m := split.Find(&match.Request{Roll: roll})
		if m.Total != 4 || len(m.Clusters) != 2 {
			t.Fatalf("%+v", m)
		}
		chosen[m.Clusters[slices.IndexFunc(m.Clusters, func(c match.WeightedCluster) bool { return c.Chosen })].Name]++
	}
	if chosen["static"] != 100 || chosen["other"] != 300 {
		t.Errorf("weights 1 and 3 came to %v", chosen)
	}
	byHeader := vhost(func(r *routev3.Route) {
		r.GetRoute().ClusterSpecifier = &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-to"}
	})
	if m := byHeader.Find(&match.Request{Headers: []match.Header{{Name: "X-To", Value: "there"}}}); m.Clusters[0].Name !=
		"there" {
		t.Errorf("by a header: %+v", m)
	}
	secure := host("h", "c", "*")
	secure.RequireTls = routev3.VirtualHost_ALL
	tls := match.NewRoutes(&routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{secure}})
	if m := tls.Find(&match.Request{Host: "a.com", Path: "/x"}); m.Location != "https://a.com/x" {
		t.Errorf("require_tls: %+v", m)
	}
	if m := tls.Find(&match.Request{Host: "a.com", Scheme: "https"}); m.Outcome != match.Forwarded {
		t.Errorf("require_tls on TLS: %+v", m)
	}
}
