package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxBase bounds the name of a legacy policy in that of its successor, so that with what is added
// it is a name still.
const maxBase = 180

// nameUnits gives units the names of their policies, with what tells those of one policy apart.
func nameUnits(units []*Unit) {
	of := map[*resource.Resource]int{}
	for _, u := range units {
		of[u.Policy]++
	}
	for _, u := range units {
		u.base = clip(u.Policy.Name, maxBase)
		if of[u.Policy] > 1 {
			u.base += "-" + Slug(u.Match)
		}
	}
}

// Slug writes tags as a part of a name: the service first, then the other values by their keys.
func Slug(tags map[string]string) string {
	var parts []string
	if s := tags[resource.TagService]; s != "" {
		parts = append(parts, s)
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if k != resource.TagService {
			parts = append(parts, tags[k])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, strings.Join(parts, "-"))
	if word = strings.Trim(clip(word, 48), "-"); word == "" {
		return "x"
	}
	return word
}

// clip cuts a name so that what is left is one.
func clip(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.TrimRight(s, "-._")
}

// noPrefix leaves names as they are.
func noPrefix(int) string { return "" }

// byRank puts a digit before names: 1 for the strongest.
func byRank(units []*Unit) func(int) string {
	var ranks []rank
	for _, u := range units {
		ranks = append(ranks, u.rank)
	}
	ranks = slices.Compact(ranks) // units are sorted by it
	return func(i int) string {
		return number(len(ranks)-slices.Index(ranks, units[i].rank), len(ranks))
	}
}

// byPlace numbers the names: 1 for the strongest.
func byPlace(units []*Unit) func(int) string {
	return func(i int) string { return number(len(units)-i, len(units)) }
}

// number writes n with as many digits as the largest has, so that the alphabet orders numbers.
func number(n, largest int) string {
	return fmt.Sprintf("%0*d-", len(strconv.Itoa(largest)), n)
}

// names gives each unit a name of its own that is free. They are given in the order of the
// strength, so that the same units have the same names.
func (in *MigrateInput) names(units []*Unit, prefix func(int) string, kinds []string) {
	used := map[string]bool{}
	for i, u := range slices.Backward(units) {
		u.Name = in.freeName(prefix(i)+u.base, used, kinds)
	}
}

// FreeName returns a name for a new policy of a kind: base, or else base with a number.
func (in *MigrateInput) FreeName(kind, base string, used map[string]bool) string {
	return in.freeName(clip(base, maxBase), used, []string{kind})
}

func (in *MigrateInput) freeName(base string, used map[string]bool, kinds []string) string {
	name := base
	taken := func(kind string) bool { return in.Taken != nil && in.Taken(kind, name) }
	for n := 2; used[name] || slices.ContainsFunc(kinds, taken); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	used[name] = true
	return name
}
