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

// Source is one source of a source-destination policy.
type Source struct {
	Policy *resource.Resource
	Index  int // in spec.sources
	Match  map[string]string
}

// Sources returns the sources of policies in order of decreasing precedence: those with the most
// tags first. Sources with equally many keep the order of the policies, and of the document. It
// skips resources that are not source-destination policies.
func Sources(policies []*resource.Resource) []Source {
	var out []Source
	for p, spec := range resource.Specs[*resource.LegacyPolicy](policies) {
		for i := range spec.Sources {
			out = append(out, Source{p, i, spec.Sources[i].Match})
		}
	}
	slices.SortStableFunc(out, func(a, b Source) int { return TagsOf(b.Match).Compare(TagsOf(a.Match)) })
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
