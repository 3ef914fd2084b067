package policy

import (
	"cmp"
	"maps"
	"slices"
)

// Ordered returns the rules for the clients of an inbound in the form in which Kuma shows them:
// groups of items that can apply to one client are combined separately, so several rules may hold
// the same client. They decide the same as Rules. Each call computes them.
func (in *InboundRules) Ordered() []*Rule {
	var out []*Rule
	known := map[string]bool{}
	for _, group := range cliques(in.items) {
		tags := valuesOf(group)
		if combinations(tags) > maxRules {
			return in.Rules
		}
		combine(group, tags, nil, func(s Subset, of []item) {
			if k := s.Key(); !known[k] && len(out) < maxRules {
				known[k] = true
				out = append(out, merge(s, of))
			}
		})
	}
	if len(out) == maxRules {
		return in.Rules
	}
	slices.SortStableFunc(out, func(a, b *Rule) int { return cmp.Compare(b.Subset.positive(), a.Subset.positive()) })
	return out
}

// Overlaps reports whether a client can be a member of both subsets.
func (s Subset) Overlaps(o Subset) bool {
	for _, t := range s {
		for _, u := range o {
			if t.Key != u.Key {
				continue
			}
			if !t.Not && !u.Not && t.Value != u.Value || t.Not != u.Not && t.Value == u.Value {
				return false
			}
		}
	}
	return true
}

func (s Subset) Key() string {
	var b []byte
	for _, t := range s {
		b = append(append(b, t.Key...), 0)
		if t.Not {
			b = append(b, '!')
		}
		b = append(append(b, t.Value...), 0)
	}
	return string(b)
}

// cliques returns the maximal groups of items that can all apply to one client, each in item order.
func cliques(items []item) [][]item {
	var everyone, rest []item
	for _, it := range items {
		if len(it.subset) == 0 {
			everyone = append(everyone, it)
		} else {
			rest = append(rest, it)
		}
	}
	var groups [][]item
	for _, group := range byCommonTag(rest) {
		groups = append(groups, maximal(group)...)
	}
	if len(groups) == 0 && len(everyone) > 0 {
		return [][]item{everyone}
	}
	order := make(map[Origin]int, len(items))
	for i := range items {
		order[items[i].origin] = i
	}
	for i, g := range groups {
		g = slices.Concat(everyone, g)
		slices.SortStableFunc(g, func(a, b item) int { return order[a.origin] - order[b.origin] })
		groups[i] = g
	}
	return groups
}

// byCommonTag groups items that all name one tag by its value, and subdivides the groups by further
// tags.
func byCommonTag(items []item) [][]item {
	if len(items) == 0 {
		return nil
	}
	for _, t := range items[0].subset {
		byValue := map[string][]item{}
		for _, it := range items {
			v, ok := it.subset.get(t.Key)
			if !ok {
				byValue = nil
				break
			}
			byValue[v] = append(byValue[v], it)
		}
		if len(byValue) > 1 {
			var out [][]item
			for _, v := range slices.Sorted(maps.Keys(byValue)) {
				out = append(out, byCommonTag(byValue[v])...)
			}
			return out
		}
	}
	return [][]item{items}
}

// maximal returns the maximal cliques of compatible items, by the Bron–Kerbosch algorithm with a
// pivot (Algorithm 457). A list longer than maxPairs forms one group.
func maximal(items []item) [][]item {
	if len(items) > maxPairs {
		return [][]item{items}
	}
	meets := make([]uint64, len(items)) // by item: bit set of compatible items
	for i := range items {
		for j := range items {
			if i != j && items[i].subset.meets(items[j].subset) {
				meets[i] |= 1 << j
			}
		}
	}
	var out [][]item
	var grow func(in, may, not uint64)
	grow = func(in, may, not uint64) {
		if len(out) >= maxRules {
			return
		}
		if may == 0 && not == 0 {
			var g []item
			for i := range items {
				if in&(1<<i) != 0 {
					g = append(g, items[i])
				}
			}
			out = append(out, g)
			return
		}
		var pivot uint64
		for i := range items {
			if (may|not)&(1<<i) != 0 {
				pivot = meets[i]
				break
			}
		}
		for i := range items {
			bit := uint64(1) << i
			if may&bit == 0 || pivot&bit != 0 {
				continue
			}
			grow(in|bit, may&meets[i], not&meets[i])
			may &^= bit
			not |= bit
		}
	}
	all := ^uint64(0) >> (64 - len(items))
	grow(0, all, 0)
	return out
}
