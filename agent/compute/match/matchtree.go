package match

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	ipmatcherv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/ip/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// matchTree is a compiled xds.type.matcher.v3.Matcher: a list of predicates, or a lookup of one
// input. A part that cannot be compiled matches nothing.
type matchTree struct {
	list []matchEntry

	input    *anypb.Any
	kind     byte // of the lookup: 'e'xact, 'p'refix, 'i'p ranges, server 'n'ames; 0 for none
	children map[string]*onMatch
	longest  []string // sorted keys of children; prefixes by length, longest first
	ranges   []matchRange

	otherwise *onMatch
}

// matchEntry is an entry of a list.
type matchEntry struct {
	predicate *predicate
	on        *onMatch
}

// matchRange is a range of an IPMatcher. They are tried longest first, then in order.
type matchRange struct {
	prefix    netip.Prefix
	exclusive bool
	on        *onMatch
}

// onMatch is the result of a match: an action or a nested tree. One with keep_matching counts as no
// match.
type onMatch struct {
	action       *anypb.Any
	tree         *matchTree
	keepMatching bool
}

// predicate is a compiled predicate: one input with a matcher, or a combination of others.
type predicate struct {
	kind  byte // 's'ingle, 'a'nd, 'o'r, 'n'ot
	parts []*predicate
	input *anypb.Any
	value stringMatch
	// ranges belong to a matcher for IP addresses.
	ranges []netip.Prefix
	// unknown is the type of an unsupported matcher, which matches nothing.
	unknown string
}

// compileMatcher compiles a matcher. It returns nil for one that is nested too deep.
func compileMatcher(m *xdsmatcherv3.Matcher, depth int) *matchTree {
	if m == nil || depth > MaxNesting {
		return nil
	}
	t := &matchTree{otherwise: compileOnMatch(m.GetOnNoMatch(), depth)}
	for _, f := range m.GetMatcherList().GetMatchers() {
		t.list = append(t.list,
			matchEntry{compilePredicate(f.GetPredicate(), depth+1), compileOnMatch(f.GetOnMatch(), depth)})
	}
	tree := m.GetMatcherTree()
	t.input = tree.GetInput().GetTypedConfig()
	switch k := tree.GetTreeType().(type) {
	case *xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap:
		t.kind = 'e'
		t.addChildren(k.ExactMatchMap.GetMap(), depth)
	case *xdsmatcherv3.Matcher_MatcherTree_PrefixMatchMap:
		t.kind = 'p'
		t.addChildren(k.PrefixMatchMap.GetMap(), depth)
		slices.SortFunc(t.longest, func(a, b string) int { return len(b) - len(a) })
	case *xdsmatcherv3.Matcher_MatcherTree_CustomMatch:
		t.addCustom(k.CustomMatch, depth)
	}
	return t
}

func (t *matchTree) addChildren(m map[string]*xdsmatcherv3.Matcher_OnMatch, depth int) {
	t.children = make(map[string]*onMatch, len(m))
	for key, on := range m {
		t.children[key] = compileOnMatch(on, depth)
		t.longest = append(t.longest, key)
	}
	slices.Sort(t.longest)
}

// addCustom compiles matchers of IP ranges and of server names.
func (t *matchTree) addCustom(c *xdscorev3.TypedExtensionConfig, depth int) {
	m, err := c.GetTypedConfig().UnmarshalNew()
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *xdsmatcherv3.IPMatcher:
		t.kind = 'i'
		for _, r := range m.GetRangeMatchers() {
			on := compileOnMatch(r.GetOnMatch(), depth)
			for _, p := range r.GetRanges() {
				if prefix, err := syntax.ParsePrefix(p.GetAddressPrefix(), p.GetPrefixLen().GetValue()); err == nil {
					t.ranges = append(t.ranges, matchRange{prefix, r.GetExclusive(), on})
				}
			}
		}
		slices.SortStableFunc(t.ranges, func(a, b matchRange) int { return b.prefix.Bits() - a.prefix.Bits() })
	case *xdsmatcherv3.ServerNameMatcher:
		t.kind = 'n'
		t.children = map[string]*onMatch{}
		for _, d := range m.GetDomainMatchers() {
			on := compileOnMatch(d.GetOnMatch(), depth)
			for _, name := range d.GetDomains() {
				if _, twice := t.children[name]; !twice {
					t.children[name] = on
					t.longest = append(t.longest, name)
				}
			}
		}
		slices.Sort(t.longest)
	}
}

func compileOnMatch(m *xdsmatcherv3.Matcher_OnMatch, depth int) *onMatch {
	switch on := m.GetOnMatch().(type) {
	case *xdsmatcherv3.Matcher_OnMatch_Action:
		return &onMatch{action: on.Action.GetTypedConfig(), keepMatching: m.GetKeepMatching()}
	case *xdsmatcherv3.Matcher_OnMatch_Matcher:
		return &onMatch{tree: compileMatcher(on.Matcher, depth+1), keepMatching: m.GetKeepMatching()}
	}
	return nil
}

func compilePredicate(p *xdsmatcherv3.Matcher_MatcherList_Predicate, depth int) *predicate {
	if depth > MaxNesting {
		return &predicate{unknown: "deeply nested predicate"}
	}
	several := func(kind byte, list []*xdsmatcherv3.Matcher_MatcherList_Predicate) *predicate {
		out := &predicate{kind: kind}
		for _, q := range list {
			out.parts = append(out.parts, compilePredicate(q, depth+1))
		}
		return out
	}
	switch t := p.GetMatchType().(type) {
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher:
		return several('o', t.OrMatcher.GetPredicate())
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher:
		return several('a', t.AndMatcher.GetPredicate())
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher:
		return several('n', []*xdsmatcherv3.Matcher_MatcherList_Predicate{t.NotMatcher})
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_:
		return compileSingle(t.SinglePredicate)
	}
	return &predicate{unknown: "empty predicate"}
}

func compileSingle(p *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate) *predicate {
	out := &predicate{kind: 's', input: p.GetInput().GetTypedConfig()}
	if p.GetCustomMatch() == nil {
		out.value = compileXDSString(p.GetValueMatch())
		return out
	}
	custom := p.GetCustomMatch().GetTypedConfig()
	var ip ipmatcherv3.Ip
	if err := custom.UnmarshalTo(&ip); err != nil {
		out.unknown = ShortURL(custom.GetTypeUrl())
		return out
	}
	out.ranges = syntax.ParseRanges(ip.GetCidrRanges())
	return out
}

// matchInputs returns the value of an input. ok is false if there is none, and known is false if
// this package cannot evaluate it.
type matchInputs interface {
	input(config *anypb.Any) (value string, ok, known bool)
}

// evaluate returns the action of a tree, or nil. If a nested tree finds nothing, its match counts
// as no match: evaluation continues with the next list entry, the next shorter prefix, range, or
// name, and then with on_no_match. Envoy before 1.35 stops there instead.
func (t *matchTree) evaluate(in matchInputs, step func(Step)) *anypb.Any {
	if t == nil {
		return nil
	}
	for i, e := range t.list {
		if e.predicate.holds(in) {
			if step != nil {
				step(Step{Level: LevelMatcher, Input: e.predicate.text(in), Choice: entryText(i)})
			}
			if a := e.on.evaluate(in, step); a != nil {
				return a
			}
		}
	}
	if len(t.list) > 0 && step != nil {
		s := Step{Level: LevelMatcher}
		for i := range t.list[:min(len(t.list), maxListed)] {
			s.Candidates = append(s.Candidates, entryText(i))
		}
		s.More = len(t.list) - len(s.Candidates)
		s.note("none of the entries leads to a filter chain")
		step(s)
	}
	if t.kind != 0 {
		if a := t.lookUp(in, step); a != nil {
			return a
		}
	}
	return t.otherwise.evaluate(in, step)
}

func (o *onMatch) evaluate(in matchInputs, step func(Step)) *anypb.Any {
	if o == nil || o.keepMatching {
		return nil
	}
	if o.action != nil {
		return o.action
	}
	return o.tree.evaluate(in, step)
}

func (t *matchTree) lookUp(in matchInputs, step func(Step)) *anypb.Any {
	value, ok, known := in.input(t.input)
	note := func(choice string) {
		if step == nil {
			return
		}
		s := Step{Level: LevelMatcher, Input: ShortURL(t.input.GetTypeUrl()), Candidates: t.candidates(), Choice: choice}
		switch {
		case ok:
			s.Input += " " + clip.Value(value)
		case !known:
			s.note("this input is not evaluated here")
		}
		step(s)
	}
	if ok {
		for choice, on := range t.fitting(value) {
			note(choice)
			if a := on.evaluate(in, step); a != nil || t.kind == 'e' {
				return a
			}
		}
	}
	note("")
	return nil
}

// fitting yields the matches of a value in evaluation order: prefixes and ranges longest first, an
// exclusive range only if it is the first one, and for names the exact one, then wildcards, then
// "*".
func (t *matchTree) fitting(value string) iter.Seq2[string, *onMatch] {
	return func(yield func(string, *onMatch) bool) {
		var keys []string
		switch t.kind {
		case 'e':
			keys = []string{value}
		case 'p':
			for _, p := range t.longest {
				if strings.HasPrefix(value, p) {
					keys = append(keys, p)
				}
			}
		case 'i':
			addr, err := netip.ParseAddr(value)
			first := true
			for _, r := range t.ranges {
				if err != nil || !r.prefix.Contains(addr) || r.exclusive && !first {
					continue
				}
				if first = false; !yield(r.prefix.String(), r.on) {
					return
				}
			}
		case 'n':
			if value == "" {
				return
			}
			if value[0] != '*' {
				keys = append(keys, value)
			}
			for i := range len(value) {
				if value[i] == '.' {
					keys = append(keys, "*"+value[i:])
				}
			}
			keys = append(keys, "*")
		}
		for _, k := range keys {
			if on, found := t.children[k]; found && !yield(k, on) {
				return
			}
		}
	}
}

// candidates returns the keys of the lookup, as many as a step lists.
func (t *matchTree) candidates() []string {
	out := slices.Clone(t.longest)
	for _, r := range t.ranges {
		out = append(out, r.prefix.String())
	}
	return out[:min(len(out), maxListed)]
}

// holds evaluates a predicate. An input without a value matches nothing.
func (p *predicate) holds(in matchInputs) bool {
	if p == nil || p.unknown != "" {
		return false
	}
	switch p.kind {
	case 'a':
		return !slices.ContainsFunc(p.parts, func(q *predicate) bool { return !q.holds(in) })
	case 'o':
		return slices.ContainsFunc(p.parts, func(q *predicate) bool { return q.holds(in) })
	case 'n':
		return !p.parts[0].holds(in)
	}
	value, ok, _ := in.input(p.input)
	if !ok {
		return false
	}
	if p.value.kind != 0 {
		return p.value.matches(value)
	}
	addr, err := netip.ParseAddr(value)
	return err == nil && slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
}

// text describes the input of a predicate.
func (p *predicate) text(in matchInputs) string {
	if p.kind != 's' {
		return "predicate"
	}
	value, _, _ := in.input(p.input)
	return ShortURL(p.input.GetTypeUrl()) + " " + clip.Value(value)
}
