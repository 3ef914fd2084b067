package envoy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// checkChains checks how a listener tells its filter chains apart.
func checkChains(s *subject, m *listenerv3.Listener) {
	chains := m.GetFilterChains()
	for i, c := range chains {
		match := c.GetFilterChainMatch()
		at := part("filterChains", i, "filterChainMatch")
		if match.GetAddressSuffix() != "" || match.GetSuffixLen() != nil {
			s.report(6, Reject, at+"/addressSuffix", "Envoy does not implement address_suffix and suffix_len: use prefix_ranges")
		}
		if m.GetFilterChainMatcher() == nil {
			checkMatch(s, match, at)
		}
	}
	if m.GetFilterChainMatcher() != nil {
		checkChainMatcher(s, m)
		return
	}
	if len(chains) < 2 && !mayCollideAlone(chains) {
		return
	}
	index := indexChains(chains)
	for _, c := range index.conflicts {
		second := part("filterChains", c.second, "filterChainMatch")
		others := []string{part("filterChains", c.first, "filterChainMatch")}
		a, b := chains[c.first], chains[c.second]
		switch {
		case c.first == c.second:
			s.report(4, Reject, second, "filter chain %q asks twice for %s: remove one", clip.Value(chainName(b, c.second)), c.leaf)
		case proto.Equal(a.GetFilterChainMatch(), b.GetFilterChainMatch()):
			s.reportWith(others, 3, Reject, second, "filter chains %q and %q ask for the same, %s: keep one",
				clip.Value(chainName(a, c.first)), clip.Value(chainName(b, c.second)), c.leaf)
		default:
			s.reportWith(others, 4, Reject, second, "filter chains %q and %q both ask for %s: keep it in one",
				clip.Value(chainName(a, c.first)), clip.Value(chainName(b, c.second)), c.leaf)
		}
	}
	if index.full() {
		s.report(4, Surprise, "filterChains", "the filter chains ask for more than %d combinations: what lies beyond is not checked", MaxLeaves)
	}
	if len(index.conflicts) == 0 {
		for _, f := range findShadows(m, index) {
			s.reportWith(f.Others, f.Rule, Surprise, f.At, "%s", f.Message)
		}
	}
}

// mayCollideAlone reports whether a chain could ask for one thing twice.
func mayCollideAlone(chains []*listenerv3.FilterChain) bool {
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
			s.report(5, Reject, at+"/serverNames/"+strconv.Itoa(i), "server name %q has a * that is not a whole first label: write *.example.com, or leave server_names out for any", clip.Value(name))
		case strings.Contains(rest, "*"):
			s.report(5, Surprise, at+"/serverNames/"+strconv.Itoa(i), "server name %q has a second *, which no name fits", clip.Value(name))
		}
	}
}

// checkRanges checks CIDR ranges, by the rule about them in that place.
func checkRanges(s *subject, rule int, ranges []*corev3.CidrRange, at string) {
	for i, r := range ranges {
		if !plainRange(r) {
			checkRange(s, rule, r, at+"/"+strconv.Itoa(i))
		}
	}
}

// plainRange reports whether there is nothing to say about a range. There can be very many of them.
func plainRange(r *corev3.CidrRange) bool {
	p, err := parseRange(r)
	return err == nil && r.GetPrefixLen() != nil && int(r.GetPrefixLen().GetValue()) <= p.Addr().BitLen()
}

func checkRange(s *subject, rule int, r *corev3.CidrRange, at string) {
	p, err := parseRange(r)
	switch length := r.GetPrefixLen(); {
	case err != nil:
		s.report(rule, Reject, at+"/addressPrefix", "%v", err)
	case length == nil:
		s.report(rule, Surprise, at+"/prefixLen", "without a length Envoy reads %s as all addresses: give it one", clip.Value(r.GetAddressPrefix()))
	case int(length.GetValue()) > p.Addr().BitLen():
		s.report(rule, Surprise, at+"/prefixLen", "a length of %d is read as %d, the whole address %s", length.GetValue(), p.Addr().BitLen(), p.Addr())
	}
}

// checkChainMatcher checks a listener whose filter chains are chosen by a matcher.
func checkChainMatcher(s *subject, m *listenerv3.Listener) {
	names := map[string]int{}
	for i, c := range m.GetFilterChains() {
		at := part("filterChains", i, "name")
		first, twice := names[c.GetName()]
		switch {
		case c.GetName() == "":
			s.report(8, Reject, at, "a filter chain that a matcher chooses needs a name")
		case twice:
			s.reportWith([]string{part("filterChains", first, "name")}, 8, Reject, at, "filter chain name %q is taken: names are unique where a matcher chooses by them", clip.Value(c.GetName()))
		default:
			names[c.GetName()] = i
		}
	}
	at := "filterChainMatcher"
	inspectMatcher(m.GetFilterChainMatcher(), 0, func(input *anypb.Any) {
		name, is := strings.CutPrefix(input.GetTypeUrl(), networkInputs)
		if _, known := networkInputNames[name]; (!is || !known) && !strings.HasPrefix(input.GetTypeUrl(), commonInputs) {
			s.report(32, Reject, at, "%s is no input of connections: give one of a type in %s*", shortURL(input.GetTypeUrl()), strings.TrimPrefix(networkInputs, typePrefix))
		}
	}, func(action *anypb.Any) {
		name, ok := chainNameOf(action)
		if !ok {
			s.report(33, Reject, at, "the action is %s: a filter chain is named by a google.protobuf.StringValue", shortURL(action.GetTypeUrl()))
		} else if _, exists := names[name]; !exists {
			s.report(9, Unusable, at, "the matcher leads to the filter chain %q, which does not exist: its connections are closed, without the default chain", clip.Value(name))
		}
	}, func(input *anypb.Any, key string) {
		if strings.HasSuffix(input.GetTypeUrl(), "PortInput") {
			if n, err := strconv.ParseUint(key, 10, 16); err != nil || strconv.FormatUint(n, 10) != key {
				s.report(38, Surprise, at, "no port is written %q: ports are compared as text, in decimal without zeros in front", clip.Value(key))
			}
		}
	})
}

// commonInputs is the package of inputs that are there for connections and requests.
const commonInputs = typePrefix + "envoy.extensions.matching.common_inputs."

// inspectMatcher calls functions with the inputs, actions and exact keys of a matcher.
func inspectMatcher(m *xdsmatcherv3.Matcher, depth int, input func(*anypb.Any), action func(*anypb.Any), key func(*anypb.Any, string)) {
	if m == nil || depth > maxNesting {
		return
	}
	onMatch := func(o *xdsmatcherv3.Matcher_OnMatch) {
		if o.GetAction() != nil {
			action(o.GetAction().GetTypedConfig())
		}
		inspectMatcher(o.GetMatcher(), depth+1, input, action, key)
	}
	onMatch(m.GetOnNoMatch())
	var predicate func(p *xdsmatcherv3.Matcher_MatcherList_Predicate, depth int)
	predicate = func(p *xdsmatcherv3.Matcher_MatcherList_Predicate, depth int) {
		if p == nil || depth > maxNesting {
			return
		}
		if single := p.GetSinglePredicate(); single != nil {
			input(single.GetInput().GetTypedConfig())
		}
		for _, q := range p.GetOrMatcher().GetPredicate() {
			predicate(q, depth+1)
		}
		for _, q := range p.GetAndMatcher().GetPredicate() {
			predicate(q, depth+1)
		}
		predicate(p.GetNotMatcher(), depth+1)
	}
	for _, f := range m.GetMatcherList().GetMatchers() {
		predicate(f.GetPredicate(), depth)
		onMatch(f.GetOnMatch())
	}
	tree := m.GetMatcherTree()
	if tree == nil {
		return
	}
	input(tree.GetInput().GetTypedConfig())
	for _, children := range []map[string]*xdsmatcherv3.Matcher_OnMatch{tree.GetExactMatchMap().GetMap(), tree.GetPrefixMatchMap().GetMap()} {
		for _, k := range slices.Sorted(maps.Keys(children)) {
			onMatch(children[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(tree.GetExactMatchMap().GetMap())) {
		key(tree.GetInput().GetTypedConfig(), k)
	}
	if custom, err := tree.GetCustomMatch().GetTypedConfig().UnmarshalNew(); err == nil {
		switch custom := custom.(type) {
		case *xdsmatcherv3.IPMatcher:
			for _, r := range custom.GetRangeMatchers() {
				onMatch(r.GetOnMatch())
			}
		case *xdsmatcherv3.ServerNameMatcher:
			for _, d := range custom.GetDomainMatchers() {
				onMatch(d.GetOnMatch())
			}
		}
	}
}

// checkIPMatcher checks a matcher of address ranges.
func checkIPMatcher(s *subject, m *xdsmatcherv3.IPMatcher) {
	seen := map[string]string{}
	for i, r := range m.GetRangeMatchers() {
		for j, c := range r.GetRanges() {
			at := part("rangeMatchers", i, "ranges", strconv.Itoa(j))
			p, err := parsePrefix(c.GetAddressPrefix(), c.GetPrefixLen().GetValue())
			if err != nil {
				s.report(36, Reject, at, "%v", err)
				continue
			}
			if first, twice := seen[p.String()]; twice {
				s.reportWith([]string{first}, 36, Reject, at, "the range %s stands twice", p)
			} else {
				seen[p.String()] = at
			}
		}
	}
}

// checkServerNameMatcher checks a matcher of server names.
func checkServerNameMatcher(s *subject, m *xdsmatcherv3.ServerNameMatcher) {
	seen := map[string]string{}
	for i, d := range m.GetDomainMatchers() {
		for j, name := range d.GetDomains() {
			at := part("domainMatchers", i, "domains", strconv.Itoa(j))
			if first, twice := seen[name]; twice {
				s.reportWith([]string{first}, 37, Reject, at, "the domain %q stands twice", clip.Value(name))
			} else {
				seen[name] = at
			}
			rest := strings.TrimPrefix(name, "*.")
			if name != "*" && (rest == "" || strings.Contains(rest, "*")) {
				s.report(37, Reject, at, "%q is no domain: write example.com, *.example.com or *", clip.Value(name))
			}
		}
	}
}
