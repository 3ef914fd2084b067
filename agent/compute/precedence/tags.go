package precedence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Tags is the rank of a selector of a source-destination policy (legacy): the number of tags that
// it names with a value, and with "*".
type Tags struct{ Exact, Any int }

// TagsOf returns the rank of a selector.
func TagsOf(match map[string]string) Tags {
	var t Tags
	for _, v := range match {
		if v == "*" {
			t.Any++
		} else {
			t.Exact++
		}
	}
	return t
}

// Add returns the rank of two selectors that both have to match.
func (t Tags) Add(o Tags) Tags { return Tags{t.Exact + o.Exact, t.Any + o.Any} }

// Compare orders ranks by increasing precedence: tags with a value count before those with "*".
func (t Tags) Compare(o Tags) int {
	return cmp.Or(cmp.Compare(t.Exact, o.Exact), cmp.Compare(t.Any, o.Any))
}

// Match returns the rank of a selector if it matches tags. A selector with kuma.io/service "*"
// also matches tags without a service.
func Match(want, have map[string]string) (Tags, bool) {
	for k, v := range want {
		h, ok := have[k]
		if v == "*" && !ok && k != resource.TagService || v != "*" && (!ok || h != v) {
			return Tags{}, false
		}
	}
	return TagsOf(want), true
}

// Best returns the highest rank of the selectors that match one of the tag sets.
func Best(selectors []resource.LegacySelector, sets []map[string]string) (best Tags, ok bool) {
	for i := range selectors {
		for _, tags := range sets {
			if tags == nil {
				continue
			}
			if t, matches := Match(selectors[i].Match, tags); matches && (!ok || t.Compare(best) > 0) {
				best, ok = t, true
			}
		}
	}
	return best, ok
}

// Sources are sources of one source-destination policy, in the order of the document.
type Sources struct {
	Policy    *resource.Resource
	Selectors []resource.LegacySelector
}

// SplitSources splits policies by source and orders the result by decreasing precedence: sources
// with the most tags first, then in the order of the policies. Sources of one policy that follow
// each other stay together. It skips resources that are not source-destination policies.
func SplitSources(policies []*resource.Resource) []Sources {
	type source struct {
		policy, index int
		rank          Tags
		selector      resource.LegacySelector
	}
	var all []source
	for i, p := range policies {
		spec, ok := p.Spec.(*resource.LegacyPolicy)
		for j := 0; ok && j < len(spec.Sources); j++ {
			all = append(all, source{i, j, TagsOf(spec.Sources[j].Match), spec.Sources[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b source) int { return b.rank.Compare(a.rank) })
	var out []Sources
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].policy == all[0].policy {
			n++
		}
		group := all[:n]
		slices.SortFunc(group, func(a, b source) int { return a.index - b.index })
		next := Sources{Policy: policies[group[0].policy]}
		for _, s := range group {
			next.Selectors = append(next.Selectors, s.selector)
		}
		out, all = append(out, next), all[n:]
	}
	return out
}

// BySources orders source-destination policies by decreasing rank of their most specific source,
// then by name. It is for kinds whose policies all apply, one after another.
func BySources(a, b *resource.Resource) int {
	return cmp.Or(highest(b).Compare(highest(a)), strings.Compare(a.Name, b.Name))
}

// highest returns the rank of the most specific source of a policy.
func highest(p *resource.Resource) (best Tags) {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	for i := 0; ok && i < len(spec.Sources); i++ {
		if t := TagsOf(spec.Sources[i].Match); t.Compare(best) > 0 {
			best = t
		}
	}
	return best
}
