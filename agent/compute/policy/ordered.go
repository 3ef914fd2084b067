package policy

import (
	"cmp"
	"maps"
	"slices"
)

// Ordered returns the rules about the clients of an inbound in the form in which the reference
// shows them: groups of items that can all be about one client are combined by themselves, so that
// two rules may hold one client. What is decided for a client is the same as in Rules. It is made
// anew by each call.
func (in *InboundRules) Ordered() []*Rule {
	var out []*Rule
	known := map[string]bool{}
	for _, group := range cliques(in.items) {
		tags := valuesOf(group)
		if combinations(tags) > maxRules {
			return in.Rules
		}
		combine(group, tags, nil, func(s Subset, of []item) {
			if k := s.key(); !known[k] && len(out) < maxRules {
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

// Overlaps reports whether some client can be a member of both subsets.
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

func (s Subset) key() string {
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

// cliques returns the largest groups of items of which all can be about one client, each in the
// order of the items.
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
	for _, part := range byCommonTag(rest) {
		groups = append(groups, maximal(part)...)
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

// byCommonTag parts items that all name one tag by its value, and the parts again by another one.
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

// maximal returns the maximal cliques of items that meet (Bron and Kerbosch, Algorithm 457, with a
// pivot). A list that is too long for that is one group.
func maximal(items []item) [][]item {
	if len(items) > maxPairs {
		return [][]item{items}
	}
	meets := make([]uint64, len(items)) // by item: those that it meets, as bits
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
