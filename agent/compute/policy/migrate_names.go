package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxBase limits the length of a legacy policy's name in its successor's name, so that the result
// is still valid with a prefix or suffix.
const maxBase = 180

// nameUnits sets the base names of units. Units of the same policy get a suffix from their tags.
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

// Slug formats tags as part of a resource name: the service first, then the other values sorted by
// key.
func Slug(tags map[string]string) string {
	var words []string
	if s := tags[resource.TagService]; s != "" {
		words = append(words, s)
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if k != resource.TagService {
			words = append(words, tags[k])
		}
	}
	if len(words) == 0 {
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
	}, strings.Join(words, "-"))
	if word = strings.Trim(clip(word, 48), "-"); word == "" {
		return "x"
	}
	return word
}

// clip truncates a name so that the result is a valid name.
func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.TrimRight(s, "-._")
}

// byRank prefixes names with the number of their rank, 1 for the strongest.
func byRank(units []*Unit) func(int) string {
	var ranks []rank
	for _, u := range units {
		ranks = append(ranks, u.rank)
	}
	ranks = slices.Compact(ranks) // units are sorted by rank
	return func(i int) string {
		return number(len(ranks)-slices.Index(ranks, units[i].rank), len(ranks))
	}
}

// byPosition numbers the names, 1 for the strongest.
func byPosition(units []*Unit) func(int) string {
	return func(i int) string { return number(len(units)-i, len(units)) }
}

// number formats n with as many digits as largest has, so that names sort in numeric order.
func number(n, largest int) string {
	return fmt.Sprintf("%0*d-", len(strconv.Itoa(largest)), n)
}

// names gives each unit a unique, unused name. It assigns them from strongest to weakest, so that
// the same units always get the same names.
func (in *MigrateInput) names(units []*Unit, prefix func(int) string, kinds []string) {
	used := map[string]bool{}
	for i, u := range slices.Backward(units) {
		u.Name = in.freeName(prefix(i)+u.base, used, kinds)
	}
}

// FreeName returns an unused name for a new policy of a kind: base, with a number if necessary.
func (in *MigrateInput) FreeName(kind, base string, used map[string]bool) string {
	return in.freeName(clip(base, maxBase), used, []string{kind})
}

func (in *MigrateInput) freeName(base string, used map[string]bool, kinds []string) string {
	name := base
	taken := func(kind string) bool { return in.NameExists != nil && in.NameExists(kind, name) }
	for n := 2; used[name] || slices.ContainsFunc(kinds, taken); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	used[name] = true
	return name
}
