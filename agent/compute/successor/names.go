package successor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// nameUnits sets the base names of units. Units of the same policy get a suffix from their tags.
func nameUnits(units []*Unit) {
	of := map[*resource.Resource]int{}
	for _, u := range units {
		of[u.Policy]++
	}
	for _, u := range units {
		u.base = policy.ClipName(u.Policy.Name, policy.MaxName)
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
	if word = strings.Trim(policy.ClipName(word, 48), "-"); word == "" {
		return "x"
	}
	return word
}

// byRank prefixes names with the number of their rank, 1 for the strongest.
func byRank(units []*Unit) func(int) string {
	var ranks []precedence.Tags
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
func names(in *policy.MigrateInput, units []*Unit, prefix func(int) string, kinds []string) {
	used := map[string]bool{}
	for i, u := range slices.Backward(units) {
		u.Name = in.FreeName(prefix(i)+u.base, used, kinds...)
	}
}
