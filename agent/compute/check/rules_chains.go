package check

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// checkChains checks that a listener can distinguish its filter chains.
func checkChains(s *subject, m *listenerv3.Listener) {
	chains := m.GetFilterChains()
	for i, c := range chains {
		match := c.GetFilterChainMatch()
		at := finding.Item("filterChains", i, "filterChainMatch")
		if match.GetAddressSuffix() != "" || match.GetSuffixLen() != nil {
			s.report(6, finding.Reject, at+"/addressSuffix",
				"Envoy does not implement address_suffix and suffix_len: use prefix_ranges")
		}
		if m.GetFilterChainMatcher() == nil {
			checkMatch(s, match, at)
		}
	}
	if m.GetFilterChainMatcher() != nil {
		checkChainMatcher(s, m)
		return
	}
	if len(chains) < 2 && !mayCollideWithin(chains) {
		return
	}
	index := match.IndexChains(chains)
	for _, c := range index.Conflicts {
		second := finding.Item("filterChains", c.Second, "filterChainMatch")
		others := []string{finding.Item("filterChains", c.First, "filterChainMatch")}
		a, b := chains[c.First], chains[c.Second]
		switch {
		case c.First == c.Second:
			s.report(4, finding.Reject, second, "filter chain %q matches %s twice: remove one",
				clip.Value(match.ChainName(b, c.Second)), c.Leaf)
		case proto.Equal(a.GetFilterChainMatch(), b.GetFilterChainMatch()):
			s.reportWith(others, 3, finding.Reject, second, "filter chains %q and %q match the same connections, %s: keep one",
				clip.Value(match.ChainName(a, c.First)), clip.Value(match.ChainName(b, c.Second)), c.Leaf)
		default:
			s.reportWith(others, 4, finding.Reject, second, "filter chains %q and %q both match %s: keep it in one",
				clip.Value(match.ChainName(a, c.First)), clip.Value(match.ChainName(b, c.Second)), c.Leaf)
		}
	}
	if index.Full() {
		s.report(4, finding.Warning, "filterChains",
			"the filter chains match more than %d combinations: the rest is not checked", match.MaxLeaves)
	}
	if len(index.Conflicts) == 0 {
		for _, f := range match.FindShadows(m, index) {
			s.reportWith(f.Others, f.Rule, finding.Warning, f.At, "%s", f.Message)
		}
	}
}

// mayCollideWithin reports whether a single chain could match the same thing twice.
func mayCollideWithin(chains []*listenerv3.FilterChain) bool {
	for _, c := range chains {
		m := c.GetFilterChainMatch()
		if len(m.GetPrefixRanges()) > 1 || len(m.GetServerNames()) > 1 || len(m.GetApplicationProtocols()) > 1 ||
			len(m.GetDirectSourcePrefixRanges()) > 1 || len(m.GetSourcePrefixRanges()) > 1 || len(m.GetSourcePorts()) > 1 {
			return true
		}
	}
	return false
}

// checkMatch checks the values of one filter_chain_match.
func checkMatch(s *subject, m *listenerv3.FilterChainMatch, at string) {
	checkRanges(s, 7, m.GetPrefixRanges(), at+"/prefixRanges")
	checkRanges(s, 7, m.GetSourcePrefixRanges(), at+"/sourcePrefixRanges")
	checkRanges(s, 7, m.GetDirectSourcePrefixRanges(), at+"/directSourcePrefixRanges")
	for i, name := range m.GetServerNames() {
		rest, wildcard := strings.CutPrefix(name, "*.")
		switch {
		case !wildcard && strings.Contains(name, "*"):
			s.report(5, finding.Reject, at+"/serverNames/"+strconv.Itoa(i), "server name %q has a * that is not a whole first "+
				"label: write *.example.com, or leave server_names out for any", clip.Value(name))
		case strings.Contains(rest, "*"):
			s.report(5, finding.Warning, at+"/serverNames/"+strconv.Itoa(i),
				"server name %q has a second *, so it never matches", clip.Value(name))
		}
	}
}

// checkRanges checks CIDR ranges and reports faults under the given rule.
func checkRanges(s *subject, rule int, ranges []*corev3.CidrRange, at string) {
	for i, r := range ranges {
		if !plainRange(r) {
			checkRange(s, rule, r, at+"/"+strconv.Itoa(i))
		}
	}
}

// plainRange reports whether a range is valid and canonical. It is a fast path for long lists.
func plainRange(r *corev3.CidrRange) bool {
	p, err := syntax.ParseRange(r)
	return err == nil && r.GetPrefixLen() != nil && int(r.GetPrefixLen().GetValue()) <= p.Addr().BitLen()
}

func checkRange(s *subject, rule int, r *corev3.CidrRange, at string) {
	p, err := syntax.ParseRange(r)
	switch length := r.GetPrefixLen(); {
	case err != nil:
		s.report(rule, finding.Reject, at+"/addressPrefix", "%v", err)
	case length == nil:
		s.report(rule, finding.Warning, at+"/prefixLen",
			"%s has no prefix_len, so Envoy reads it as all addresses: set prefix_len", clip.Value(r.GetAddressPrefix()))
	case int(length.GetValue()) > p.Addr().BitLen():
		s.report(rule, finding.Warning, at+"/prefixLen", "Envoy reads the prefix length %d as %d, the whole address %s",
			length.GetValue(), p.Addr().BitLen(), p.Addr())
	}
}

// checkChainMatcher checks a listener that chooses filter chains with a matcher.
func checkChainMatcher(s *subject, m *listenerv3.Listener) {
	names := map[string]int{}
	for i, c := range m.GetFilterChains() {
		at := finding.Item("filterChains", i, "name")
		first, twice := names[c.GetName()]
		switch {
		case c.GetName() == "":
			s.report(8, finding.Reject, at, "a filter chain that a matcher chooses needs a name")
		case twice:
			s.reportWith([]string{finding.Item("filterChains", first, "name")}, 8, finding.Reject, at,
				"filter chain name %q is used twice: names must be unique with filter_chain_matcher", clip.Value(c.GetName()))
		default:
			names[c.GetName()] = i
		}
	}
	at := "filterChainMatcher"
	inspectMatcher(m.GetFilterChainMatcher(), func(input *anypb.Any) {
		name, is := strings.CutPrefix(input.GetTypeUrl(), match.NetworkInputs)
		if _, known := match.NetworkInputNames[name]; (!is || !known) &&
			!strings.HasPrefix(input.GetTypeUrl(), commonInputs) {
			s.report(32, finding.Reject, at, "%s is not an input for connections: use a type in %s*",
				match.ShortURL(input.GetTypeUrl()), strings.TrimPrefix(match.NetworkInputs, envoy.TypePrefix))
		}
	}, func(action *anypb.Any) {
		name, ok := match.ChainNameOf(action)
		if !ok {
			s.report(33, finding.Reject, at, "the action is %s: name the filter chain with a google.protobuf.StringValue",
				match.ShortURL(action.GetTypeUrl()))
		} else if _, exists := names[name]; !exists {
			s.report(9, finding.Unusable, at, "the matcher selects filter chain %q, which does not exist: Envoy closes its "+
				"connections and does not use the default chain", clip.Value(name))
		}
	}, func(input *anypb.Any, key string) {
		if strings.HasSuffix(input.GetTypeUrl(), "PortInput") {
			if n, err := strconv.ParseUint(key, 10, 16); err != nil || strconv.FormatUint(n, 10) != key {
				s.report(38, finding.Warning, at,
					"%q is not a port: Envoy compares ports as text, in decimal without leading zeros", clip.Value(key))
			}
		}
	})
}

// commonInputs is the package of matcher inputs for both connections and requests.
const commonInputs = envoy.TypePrefix + "envoy.extensions.matching.common_inputs."

// inspectMatcher calls functions with the inputs, actions, and exact-match keys of a matcher and of
// its nested matchers. It ends at a message that cannot be decoded, which the walk reports.
func inspectMatcher(m *xdsmatcherv3.Matcher, input func(*anypb.Any), action func(*anypb.Any),
	key func(*anypb.Any, string)) {
	_ = protorange.Options{Stable: true}.Range(m.ProtoReflect(), func(p protopath.Values) error {
		v, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		switch m := v.Interface().(type) {
		case *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate:
			input(m.GetInput().GetTypedConfig())
		case *xdsmatcherv3.Matcher_OnMatch:
			if m.GetAction() != nil {
				action(m.GetAction().GetTypedConfig())
			}
		case *xdsmatcherv3.Matcher_MatcherTree:
			input(m.GetInput().GetTypedConfig())
			for _, k := range slices.Sorted(maps.Keys(m.GetExactMatchMap().GetMap())) {
				key(m.GetInput().GetTypedConfig(), k)
			}
		}
		return nil
	}, nil)
}

// checkIPMatcher checks a matcher of address ranges.
func checkIPMatcher(s *subject, m *xdsmatcherv3.IPMatcher) {
	for i, r := range m.GetRangeMatchers() {
		for j, c := range r.GetRanges() {
			if _, err := syntax.ParsePrefix(c.GetAddressPrefix(), c.GetPrefixLen().GetValue()); err != nil {
				s.report(36, finding.Reject, finding.Item("rangeMatchers", i, "ranges", strconv.Itoa(j)), "%v", err)
			}
		}
	}
}

// checkServerNameMatcher checks a matcher of server names.
func checkServerNameMatcher(s *subject, m *xdsmatcherv3.ServerNameMatcher) {
	seen := map[string]string{}
	for i, d := range m.GetDomainMatchers() {
		for j, name := range d.GetDomains() {
			at := finding.Item("domainMatchers", i, "domains", strconv.Itoa(j))
			if first, twice := seen[name]; twice {
				s.reportWith([]string{first}, 37, finding.Reject, at, "the domain %q is listed twice", clip.Value(name))
			} else {
				seen[name] = at
			}
			rest := strings.TrimPrefix(name, "*.")
			if name != "*" && (rest == "" || strings.Contains(rest, "*")) {
				s.report(37, finding.Reject, at, "%q is not a domain: use example.com, *.example.com, or *", clip.Value(name))
			}
		}
	}
}
