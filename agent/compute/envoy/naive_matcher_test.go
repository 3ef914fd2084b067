package envoy_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// outcome evaluates a part of a filter_chain_matcher for a connection. It returns a chain's name,
// or false for no match. Like the naive chain selection in this package, the functions here follow
// only Envoy's documentation: each part is drawn both as a message and as an equivalent Go
// function.
type outcome func(*match.Seen) (chain string, ok bool)

// drawnMatcher is a matcher as a message and as a function.
type drawnMatcher struct {
	message *xdsmatcherv3.Matcher
	says    outcome
}

// choice is a branch of a matcher as a message and as a function.
type choice struct {
	on   *xdsmatcherv3.Matcher_OnMatch
	says outcome
}

// drawChoice draws a branch to a chain, which may not exist, or to a nested matcher, which may have
// no match.
func drawChoice(t *rapid.T, depth int) choice {
	if depth > 0 && rapid.IntRange(0, 2).Draw(t, "goes on") == 0 {
		m := drawMatcher(t, depth-1)
		return choice{nested(m.message), m.says}
	}
	name := fmt.Sprint("c", rapid.IntRange(0, 5).Draw(t, "to"))
	return choice{toChain(name), func(*match.Seen) (string, bool) { return name, true }}
}

// firstOf returns the first match in the list.
func firstOf(s *match.Seen, list ...outcome) (string, bool) {
	for _, says := range list {
		if says == nil {
			continue
		}
		if name, ok := says(s); ok {
			return name, true
		}
	}
	return "", false
}

// someInputs lists matcher inputs as messages, and their values for a connection. "" is no value.
var someInputs = []struct {
	message proto.Message
	gives   func(*match.Seen) string
	values  []string
}{
	{&networkv3.DestinationPortInput{}, func(s *match.Seen) string { return fmt.Sprint(s.Dst.Port()) },
		[]string{"80", "443", "3306", "0443"}},
	{&networkv3.SourcePortInput{}, func(s *match.Seen) string { return fmt.Sprint(s.Src.Port()) },
		[]string{"1000", "2000"}},
	{&networkv3.TransportProtocolInput{}, func(s *match.Seen) string { return s.Transport },
		[]string{"tls", "raw_buffer"}},
	{&networkv3.ServerNameInput{}, func(s *match.Seen) string { return s.ServerName },
		[]string{"a.com", "x.a.com", "*.a.com"}},
	{&networkv3.ApplicationProtocolInput{}, func(s *match.Seen) string {
		if len(s.Protocols) == 0 {
			return ""
		}
		return "'" + strings.Join(s.Protocols, "','") + "'"
	}, []string{"'h2'", "'h2','http/1.1'", "h2"}},
}

func drawMatcher(t *rapid.T, depth int) drawnMatcher {
	var m drawnMatcher
	switch rapid.SampledFrom([]string{"list", "exact", "ranges", "names"}).Draw(t, "kind") {
	case "list":
		m = drawList(t, depth)
	case "exact":
		m = drawExact(t, depth)
	case "ranges":
		m = drawRanges(t, depth)
	default:
		m = drawNames(t, depth)
	}
	if rapid.Bool().Draw(t, "otherwise") {
		found, c := m.says, drawChoice(t, depth)
		m.message.OnNoMatch = c.on
		m.says = func(s *match.Seen) (string, bool) { return firstOf(s, found, c.says) }
	}
	return m
}

// drawExact draws an exact match map.
func drawExact(t *rapid.T, depth int) drawnMatcher {
	input := rapid.SampledFrom(someInputs).Draw(t, "input")
	to, says := map[string]*xdsmatcherv3.Matcher_OnMatch{}, map[string]outcome{}
	for _, v := range input.values {
		if rapid.Bool().Draw(t, "has "+v) || len(to) == 0 {
			c := drawChoice(t, depth)
			to[v], says[v] = c.on, c.says
		}
	}
	return drawnMatcher{exact(input.message, to),
		func(s *match.Seen) (string, bool) { return firstOf(s, says[input.gives(s)]) }}
}

// drawList draws a list of predicates that are evaluated in order.
func drawList(t *rapid.T, depth int) drawnMatcher {
	var entries []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher
	var says []outcome
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		p, holds := drawPredicate(t, 2)
		c := drawChoice(t, depth)
		entries = append(entries, entry(p, c.on))
		says = append(says, func(s *match.Seen) (string, bool) {
			if !holds(s) {
				return "", false
			}
			return c.says(s)
		})
	}
	return drawnMatcher{listOf(entries...), func(s *match.Seen) (string, bool) { return firstOf(s, says...) }}
}

func drawPredicate(t *rapid.T, depth int) (*xdsmatcherv3.Matcher_MatcherList_Predicate, func(*match.Seen) bool) {
	kind := "single"
	if depth > 0 {
		kind = rapid.SampledFrom([]string{"single", "single", "and", "or", "not"}).Draw(t, "predicate")
	}
	if kind == "single" {
		input := rapid.SampledFrom(someInputs).Draw(t, "input")
		value := rapid.SampledFrom(input.values).Draw(t, "value")
		return single(input.message, equals(value)), func(s *match.Seen) bool { return input.gives(s) == value }
	}
	a, holdsA := drawPredicate(t, depth-1)
	if kind == "not" {
		return &xdsmatcherv3.Matcher_MatcherList_Predicate{
				MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: a},
			},
			func(s *match.Seen) bool { return !holdsA(s) }
	}
	b, holdsB := drawPredicate(t, depth-1)
	both := &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{
		Predicate: []*xdsmatcherv3.Matcher_MatcherList_Predicate{a, b},
	}
	if kind == "and" {
		return &xdsmatcherv3.Matcher_MatcherList_Predicate{
				MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{AndMatcher: both},
			},
			func(s *match.Seen) bool { return holdsA(s) && holdsB(s) }
	}
	return &xdsmatcherv3.Matcher_MatcherList_Predicate{
			MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{OrMatcher: both},
		},
		func(s *match.Seen) bool { return holdsA(s) || holdsB(s) }
}

// drawRanges draws an IPMatcher. It evaluates the ranges that contain the address from the longest
// to the shortest. An exclusive range counts only if it is the longest.
func drawRanges(t *rapid.T, depth int) drawnMatcher {
	type branch struct {
		prefix    netip.Prefix
		exclusive bool
		says      outcome
	}
	var list []branch
	message := &xdsmatcherv3.IPMatcher{}
	for _, text := range []string{
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "2001:db8::/32", "2001:db8::1/128", "::/0",
	} {
		if !rapid.Bool().Draw(t, text) {
			continue
		}
		b := branch{prefix: netip.MustParsePrefix(text), exclusive: rapid.IntRange(0, 3).Draw(t, "exclusive") == 0}
		c := drawChoice(t, depth)
		b.says = c.says
		list = append(list, b)
		message.RangeMatchers = append(message.RangeMatchers, &xdsmatcherv3.IPMatcher_IPRangeMatcher{
			Ranges: []*xdscorev3.CidrRange{xdsRange(b.prefix.Addr().String(), uint32(b.prefix.Bits()))}, OnMatch: c.on,
			Exclusive: b.exclusive,
		})
	}
	return drawnMatcher{custom(&networkv3.DestinationIPInput{}, message), func(s *match.Seen) (string, bool) {
		var holding []branch
		for _, b := range list {
			if b.prefix.Contains(s.Dst.Addr()) {
				holding = append(holding, b)
			}
		}
		slices.SortFunc(holding, func(a, b branch) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
		var asked []outcome
		for i, b := range holding {
			if i == 0 || !b.exclusive {
				asked = append(asked, b.says)
			}
		}
		return firstOf(s, asked...)
	}}
}

// drawNames draws a ServerNameMatcher. It evaluates the exact name, then wildcards from the longest
// to the shortest, then "*". A connection without a server name or without TLS matches none of
// them. With an encrypted hello, the name is that of the outer hello.
func drawNames(t *rapid.T, depth int) drawnMatcher {
	message := &xdsmatcherv3.ServerNameMatcher{}
	to := map[string]outcome{}
	for _, domain := range []string{"a.com", "x.a.com", "*.a.com", "*.x.a.com", "*.com", "*"} {
		if !rapid.Bool().Draw(t, domain) {
			continue
		}
		c := drawChoice(t, depth)
		to[domain] = c.says
		message.DomainMatchers = append(message.DomainMatchers,
			&xdsmatcherv3.ServerNameMatcher_DomainMatcher{Domains: []string{domain}, OnMatch: c.on})
	}
	return drawnMatcher{custom(&networkv3.ServerNameInput{}, message), func(s *match.Seen) (string, bool) {
		if s.ServerName == "" {
			return "", false
		}
		fitting := []string{s.ServerName}
		for domain := range to {
			if strings.HasPrefix(domain, "*.") && strings.HasSuffix(s.ServerName, domain[1:]) {
				fitting = append(fitting, domain)
			}
		}
		slices.SortFunc(fitting[1:], func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		var asked []outcome
		for _, domain := range append(fitting, "*") {
			asked = append(asked, to[domain])
		}
		return firstOf(s, asked...)
	}}
}

// TestMatcherEqualsNaive compares the engine with the functions of random matchers for random
// connections: 60,000 in the 100 cases.
func TestMatcherEqualsNaive(t *testing.T) {
	var compared, named, unnamed int
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			m := drawMatcher(t, 2)
			l := passthrough()
			l.FilterChainMatcher = m.message
			for i := range 5 { // c5 does not exist
				l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{Name: fmt.Sprint("c", i)})
			}
			if rapid.Bool().Draw(t, "default") {
				l.DefaultFilterChain = &listenerv3.FilterChain{Name: "default"}
			}
			listener := match.NewListener(l)
			for range 30 {
				s := drawSeen(t)
				got := listener.FindSeen(s)
				want, index := "", match.NoIndex
				switch name, ok := m.says(s); {
				case ok:
					// If the named chain does not exist, the connection is closed, even if there is
					// a default chain.
					if index = slices.IndexFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool {
						return c.Name == name
					}); index >= 0 {
						want, named = name, named+1
					}
				case l.DefaultFilterChain != nil:
					want, index = "default", match.DefaultIndex
				}
				if s.ServerName == "" {
					unnamed++
				}
				compared++
				if got.Index != index || got.Chain.GetName() != want {
					t.Fatalf("%+v: the engine takes %d %q, the text %d %q\n%v", s, got.Index, got.Chain.GetName(), index,
						want, m.message)
				}
			}
		}
	})
	if named*10 < compared || unnamed*20 < compared {
		t.Fatalf("of %d connections %d found a chain, %d had no server name: the random cases say nothing",
			compared, named, unnamed)
	}
}
