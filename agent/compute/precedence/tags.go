package precedence

import (
	"cmp"

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
