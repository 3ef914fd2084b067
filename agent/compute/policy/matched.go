package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MatchRule is a rule for the clients that match Match; see [InboundRules].
type MatchRule struct {
	Match resource.ClientMatch
	Rule
}

// MatchConf is implemented by confs of rules that contain client matches.
type MatchConf interface {
	ClientMatches() []resource.ClientMatch
}

// maxMatched limits the distinct matches of one inbound.
const maxMatched = 256

// matched builds rules from the items with matches, and returns the items without. Exact matches
// come first, then prefixes, longest first. The rule of a match merges all items that apply to its
// clients; more specific items take precedence, and among equally specific ones the stronger policy
// does.
func (b *builder) matched(items []item) ([]*MatchRule, []item) {
	switch {
	case b.apart:
		return b.separate(items)
	case !slices.ContainsFunc(items, func(it item) bool { return len(it.matches) > 0 }):
		return nil, items
	}
	var rest, some []item
	var matches []resource.ClientMatch
	known := map[string]bool{}
	for _, it := range slices.Backward(items) { // strongest first, so that the limit drops the weakest
		if len(it.matches) == 0 {
			rest = append(rest, it)
			continue
		}
		some = append(some, it)
		for _, m := range it.matches {
			switch {
			case known[m.String()]:
			case len(matches) == maxMatched:
				b.warnf(it.origin.Policy, "rules[%d].matches: the policies of kind %s have more than %d matches at one inbound, "+
					"so some matches of this policy were dropped; use prefixes", it.origin.Item, b.k.Kind, maxMatched)
			default:
				known[m.String()] = true
				matches = append(matches, m)
			}
		}
	}
	slices.Reverse(rest)
	slices.Reverse(some)
	slices.SortFunc(matches, func(a, b resource.ClientMatch) int {
		return cmp.Or(specificity(&b)-specificity(&a), strings.Compare(a.String(), b.String()))
	})
	all := slices.DeleteFunc(slices.Clone(rest), func(it item) bool { return len(it.subset) > 0 })
	out := make([]*MatchRule, len(matches))
	for i := range matches {
		m := &matches[i]
		type ranked struct {
			item
			by int
		}
		var list []ranked
		for _, it := range all {
			list = append(list, ranked{it, 0})
		}
		for _, it := range some {
			best := 0
			for j := range it.matches {
				if it.matches[j].Covers(m) {
					best = max(best, specificity(&it.matches[j]))
				}
			}
			if best > 0 {
				list = append(list, ranked{it, best})
			}
		}
		slices.SortStableFunc(list, func(a, b ranked) int { return a.by - b.by })
		of := make([]item, len(list))
		for j := range list {
			of[j] = list[j].item
		}
		out[i] = &MatchRule{Match: *m, Rule: *merge(nil, of)}
	}
	return out, rest
}

// separate returns a rule for each match of the entries of rules, and the other items. As in Kuma,
// exact SPIFFE IDs come first, then prefixes, then server names, then rules for all clients.
func (b *builder) separate(items []item) (out []*MatchRule, rest []item) {
	for _, it := range slices.Backward(items) { // strongest first, so that the limit drops the weakest
		if !it.rules {
			rest = append(rest, it)
			continue
		}
		matches := it.matches
		if len(matches) == 0 {
			matches = []resource.ClientMatch{{}}
		}
		if len(out)+len(matches) > maxMatched {
			b.warnf(it.origin.Policy, "rules[%d].matches: the policies of kind %s have more than %d matches at one inbound, so "+
				"this rule was dropped; use prefixes", it.origin.Item, b.k.Kind, maxMatched)
			continue
		}
		for _, m := range slices.Backward(matches) {
			out = append(out, &MatchRule{Match: m, Rule: *merge(nil, []item{it})})
		}
	}
	slices.Reverse(rest)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b *MatchRule) int { return b.Match.Class() - a.Match.Class() })
	return out, rest
}

// specificity ranks matches: exact SPIFFE IDs above prefixes, long prefixes above short ones, and
// these above server names. It is always positive.
func specificity(m *resource.ClientMatch) (n int) {
	switch id := m.SpiffeID; {
	case id == nil:
	case id.Type == resource.MatchExact:
		n = 1 << 20 // more than the length of any value
	default:
		n = 2 * (1 + len(id.Value))
	}
	if m.SNI != nil {
		n++
	}
	return n
}

// warnForeign warns about matches that no certificate of the mesh can satisfy.
func (b *builder) warnForeign(it *item) {
	list := it.matches
	if c, ok := it.conf.(MatchConf); ok {
		list = c.ClientMatches()
	}
	prefix := resource.SPIFFEID(b.x.View.Name, "")
	for i := range list {
		m := list[i].SpiffeID
		if m == nil || strings.HasPrefix(m.Value, prefix) ||
			m.Type == resource.MatchPrefix && strings.HasPrefix(prefix, m.Value) {
			continue
		}
		b.warnf(it.origin.Policy, "rules[%d]: no client has a SPIFFE ID like %s; SPIFFE IDs in this mesh are %sSERVICE, "+
			"where SERVICE is the tag kuma.io/service", it.origin.Item, m.Value, prefix)
	}
}
