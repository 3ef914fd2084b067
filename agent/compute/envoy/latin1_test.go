package envoy_test

import (
	"net/netip"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestRegexOfBytes checks that since Envoy 1.39 a regular expression matches the bytes of a value,
// and before that its characters (measured with Envoy 1.36.2 and 1.40.0). For an unknown version it
// matches characters.
func TestRegexOfBytes(t *testing.T) {
	for _, c := range []struct {
		pattern, value    string
		characters, bytes bool
	}{
		{"a.c", "abc", true, true},
		{"a.c", "aéc", true, false},
		{"a..c", "aéc", false, true},
		{"a[^b]+c", "aéc", true, true},
		{"aé?c", "ac", true, false},
		{"a(é)?c", "ac", true, true},
		{"aéc", "aéc", true, true},
		{`a\xc3\xa9c`, "aéc", false, true},
		{`a\x{e9}c`, "aéc", true, false},
		{"(?i)aéc", "aÉc", true, false},
		{`\Qaéc`, "aéc", true, true},
	} {
		for version, want := range map[string]bool{
			"":       c.characters,
			"1.36.2": c.characters,
			"1.38.9": c.characters,
			"1.39.0": c.bytes,
			"1.40.0": c.bytes,
		} {
			l := secondListener("in", address("10.0.0.1", 80))
			m := manager(&routev3.VirtualHost{Name: "a", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
					Headers: []*routev3.HeaderMatcher{{Name: "x-a",
						HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
							MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: c.pattern}},
						}}}}},
				Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 299}},
			}}})
			l.FilterChains[0].Filters = []*listenerv3.Filter{filter("hcm", m)}
			facts := &finding.Facts{}
			if version != "" {
				facts.Build = &finding.Build{Version: finding.ParseVersion(version)}
			}
			got := match.Open(snapshot(t, l), facts).Request(&match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"),
				Src: netip.MustParseAddrPort("10.9.9.9:40000"), First: match.HTTP11},
				&match.Request{Host: "a", Path: "/", Headers: []match.Header{{Name: "x-a", Value: c.value}}})
			if has := got.Status == 299; has != want {
				t.Errorf("Envoy %q: %s and %s: %v, want %v (%s)", version, c.pattern, c.value, has, want, got.Reason)
			}
		}
	}
}
