package envoy_test

import (
	"net/netip"
	"testing"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	ipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/ip/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

func nested(m *xdsmatcherv3.Matcher) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Matcher{Matcher: m}}
}

func otherwise(m *xdsmatcherv3.Matcher, chain string) *xdsmatcherv3.Matcher {
	m.OnNoMatch = toChain(chain)
	return m
}

func single(input proto.Message, value *xdsmatcherv3.StringMatcher) *xdsmatcherv3.Matcher_MatcherList_Predicate {
	return &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
			SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
				Input:   typedExtension("input", input),
				Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: value},
			},
		}}
}

func entry(p *xdsmatcherv3.Matcher_MatcherList_Predicate,
	on *xdsmatcherv3.Matcher_OnMatch) *xdsmatcherv3.Matcher_MatcherList_FieldMatcher {
	return &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{Predicate: p, OnMatch: on}
}

func listOf(entries ...*xdsmatcherv3.Matcher_MatcherList_FieldMatcher) *xdsmatcherv3.Matcher {
	return &xdsmatcherv3.Matcher{
		MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: &xdsmatcherv3.Matcher_MatcherList{Matchers: entries}},
	}
}

func equals(s string) *xdsmatcherv3.StringMatcher {
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: s}}
}

func ips(ranges ...any) *xdsmatcherv3.IPMatcher {
	m := &xdsmatcherv3.IPMatcher{}
	for i := 0; i < len(ranges); i += 3 {
		p := netip.MustParsePrefix(ranges[i].(string))
		m.RangeMatchers = append(m.RangeMatchers, &xdsmatcherv3.IPMatcher_IPRangeMatcher{
			Ranges:  []*xdscorev3.CidrRange{xdsRange(p.Addr().String(), uint32(p.Bits()))},
			OnMatch: ranges[i+1].(*xdsmatcherv3.Matcher_OnMatch), Exclusive: ranges[i+2].(bool),
		})
	}
	return m
}

// TestMatchers checks the evaluation of matcher trees. A branch without a result falls through to
// the next one.
func TestMatchers(t *testing.T) {
	ip, sni, port := &networkv3.DestinationIPInput{}, &networkv3.ServerNameInput{}, &networkv3.DestinationPortInput{}
	empty := ports("2", "never")
	keepMatching := toChain("kept")
	keepMatching.KeepMatching = true
	names := &xdsmatcherv3.ServerNameMatcher{DomainMatchers: []*xdsmatcherv3.ServerNameMatcher_DomainMatcher{
		{Domains: []string{"a.com"}, OnMatch: nested(empty)}, {Domains: []string{"*.a.com"}, OnMatch: toChain("sub")},
		{Domains: []string{"*.com"}, OnMatch: toChain("com")}, {Domains: []string{"*"}, OnMatch: toChain("star")},
	}}
	prefix := func(to map[string]*xdsmatcherv3.Matcher_OnMatch) *xdsmatcherv3.Matcher {
		m := exact(sni, nil)
		m.GetMatcherTree().TreeType = &xdsmatcherv3.Matcher_MatcherTree_PrefixMatchMap{
			PrefixMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{Map: to},
		}
		return m
	}
	inRange := single(ip, nil)
	inRange.GetSinglePredicate().Matcher = &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{
		CustomMatch: typedExtension("ip", &ipv3.Ip{StatPrefix: "x", CidrRanges: parseAll("10.0.0.0/8")}),
	}
	strange := single(ip, nil)
	strange.GetSinglePredicate().Matcher = &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{
		CustomMatch: typedExtension("x", wrapperspb.String("x")),
	}
	and := &xdsmatcherv3.Matcher_MatcherList_Predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{
			Predicate: []*xdsmatcherv3.Matcher_MatcherList_Predicate{inRange, single(port, equals("443"))},
		}}}
	notAnd := &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: and},
	}
	noSNI := &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: single(sni, equals("x"))},
	}
	for _, c := range []struct {
		name    string
		matcher *xdsmatcherv3.Matcher
		dst     string
		sni     string
		want    string // "" for the default chain, "closed" for no chain
	}{
		{"a port", ports("443", "one"), "10.0.0.1:443", "", "one"},
		{"another port", ports("443", "one"), "10.0.0.1:80", "", ""},
		{"otherwise", otherwise(ports("443", "one"), "two"), "10.0.0.1:80", "", "two"},
		{"no such chain, and no default", ports("443", "gone"), "10.0.0.1:443", "", "closed"},
		{"a subtree that finds nothing",
			otherwise(exact(port, map[string]*xdsmatcherv3.Matcher_OnMatch{"443": nested(empty)}), "two"),
			"10.0.0.1:443", "", "two"},
		{"the longest range", custom(ip, ips("10.0.0.0/8", toChain("one"), false, "10.1.0.0/16", toChain("two"), false)),
			"10.1.0.1:1", "", "two"},
		{"a shorter range", custom(ip, ips("10.0.0.0/8", toChain("one"), false, "10.1.0.0/16", nested(empty), false)),
			"10.1.0.1:1", "", "one"},
		{"an exclusive range is not fallen back to",
			custom(ip, ips("10.0.0.0/8", toChain("one"), true, "10.1.0.0/16", nested(empty), false)), "10.1.0.1:1", "", ""},
		{"an exclusive range that is the longest", custom(ip, ips("10.0.0.0/8", toChain("one"), true)),
			"10.1.0.1:1", "", "one"},
		{"no range", custom(ip, ips("10.0.0.0/8", toChain("one"), false)), "11.1.0.1:1", "", ""},
		{"the exact name leads nowhere, a shorter one does not fit but .com does",
			custom(sni, names), "1.1.1.1:1", "a.com", "com"},
		{"a longer wildcard", custom(sni, names), "1.1.1.1:1", "x.y.a.com", "sub"},
		{"any name", custom(sni, names), "1.1.1.1:1", "b.org", "star"},
		{"no name", otherwise(custom(sni, names), "none"), "1.1.1.1:1", "", "none"},
		{"the longest prefix", prefix(map[string]*xdsmatcherv3.Matcher_OnMatch{"a": toChain("one"), "ab": toChain("two")}),
			"1.1.1.1:1", "abc", "two"},
		{"a shorter prefix", prefix(map[string]*xdsmatcherv3.Matcher_OnMatch{"a": toChain("one"), "ab": nested(empty)}),
			"1.1.1.1:1", "abc", "one"},
		{"the first entry of a list", listOf(entry(single(port, equals("443")), toChain("one")),
			entry(single(port, equals("443")), toChain("two"))), "1.1.1.1:443", "", "one"},
		{"the second", listOf(entry(single(port, equals("80")), toChain("one")),
			entry(single(port, equals("443")), toChain("two"))), "1.1.1.1:443", "", "two"},
		{"and", listOf(entry(and, toChain("one"))), "10.0.0.1:443", "", "one"},
		{"and, in part", listOf(entry(and, toChain("one"))), "10.0.0.1:80", "", ""},
		{"not", listOf(entry(notAnd, toChain("one"))), "10.0.0.1:80", "", "one"},
		{"a missing input fits nothing, and so its contrary fits", listOf(entry(noSNI, toChain("one"))),
			"10.0.0.1:80", "", "one"},
		{"a matcher that is not known", listOf(entry(strange, toChain("one")),
			entry(single(port, equals("443")), toChain("two"))), "1.1.1.1:443", "", "two"},
		{"an input that is not known", listOf(entry(single(wrapperspb.String("x"), equals("443")), toChain("one"))),
			"1.1.1.1:443", "", ""},
		{"keep matching", listOf(entry(single(port, equals("443")), keepMatching),
			entry(single(port, equals("443")), toChain("two"))), "1.1.1.1:443", "", "two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := passthrough()
			l.FilterChainMatcher = c.matcher
			for _, name := range []string{"one", "two", "sub", "com", "star", "none", "kept", "never"} {
				l.FilterChains = append(l.FilterChains,
					&listenerv3.FilterChain{Name: name, Filters: []*listenerv3.Filter{tcpProxy("c")}})
			}
			l.DefaultFilterChain = &listenerv3.FilterChain{Name: "", Filters: []*listenerv3.Filter{tcpProxy("c")}}
			first := match.PlainBytes
			if c.sni != "" {
				first = match.TLSHello
			}
			m := match.NewListener(l).Find(&match.Conn{Dst: netip.MustParseAddrPort(c.dst), First: first, SNI: c.sni})
			got := m.Chain.GetName()
			if m.Outcome == match.NoChain {
				got = "closed"
			}
			if got != c.want || got == "" && m.Index != match.DefaultIndex {
				t.Errorf("%v %q (%d), want %q", m.Outcome, got, m.Index, c.want)
			}
			traced := match.Open(snapshot(t, l, originalDst("c")), nil).Connection(through(c.dst, first, c.sni))
			if (traced.Outcome == match.NoChain) != (c.want == "closed") ||
				traced.Outcome == match.Forwarded && findStep(traced, match.LevelMatcher) == nil {
				t.Errorf("explained as %+v", traced)
			}
		})
	}
}
