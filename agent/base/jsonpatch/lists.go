package jsonpatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// pair matches an item of the old list to an item of the new list, by index.
type pair struct{ a, b int }

// lists compares two lists. Operations are applied in order, so it first removes items from the
// end. Then it walks through the new list; all items before the current one are final.
func (d *differ) lists(a, b []any) (shared bool) {
	pairs := match(a, b)
	next := len(pairs) - 1
	for i := len(a) - 1; i >= 0; i-- {
		if next >= 0 && pairs[next].a == i {
			next--
			continue
		}
		d.out = append(d.out, Operation{Op: Remove, Path: d.join(strconv.Itoa(i))})
	}
	next = 0
	for j, y := range b {
		if next < len(pairs) && pairs[next].b == j {
			if d.in(strconv.Itoa(j), a[pairs[next].a], y) {
				shared = true
			}
			next++
			continue
		}
		d.out = append(d.out, Operation{Op: Add, Path: d.join(strconv.Itoa(j)), Value: y})
	}
	return shared
}

// match returns pairs of items that are in the same order in both lists.
func match(a, b []any) []pair {
	pairs := make([]pair, 0, min(len(a), len(b)))
	for len(pairs) < min(len(a), len(b)) && Equal(a[len(pairs)], b[len(pairs)]) {
		pairs = append(pairs, pair{len(pairs), len(pairs)})
	}
	head := len(pairs)
	tail := 0
	for tail < min(len(a), len(b))-head && Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	pairs = append(pairs, middle(a[head:len(a)-tail], b[head:len(b)-tail], head, a, b)...)
	for i := range tail {
		pairs = append(pairs, pair{len(a) - tail + i, len(b) - tail + i})
	}
	return pairs
}

// middle matches the items between the equal beginnings and ends; from is the index of the first of
// them. The complete lists decide which member identifies items.
func middle(a, b []any, from int, wholeA, wholeB []any) []pair {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	if x, y := names(wholeA, wholeB); x != nil {
		return shift(anchors(x[from:from+len(a)], y[from:from+len(b)]), from)
	}
	if len(a) == 1 && len(b) == 1 {
		return []pair{{from, from}} // equal to the result of the general case, without comparing contents
	}
	return shift(fill(anchors(contents(a), contents(b)), len(a), len(b)), from)
}

func shift(pairs []pair, by int) []pair {
	for i := range pairs {
		pairs[i].a += by
		pairs[i].b += by
	}
	return pairs
}

// names returns identifiers for the items of both lists: a string member that all items have and
// that is unique within each list. It returns nil if there is none.
func names(a, b []any) (x, y []string) {
	for _, key := range [...]string{"name", "id", "key", "type"} {
		if x = distinct(a, key); x != nil {
			if y = distinct(b, key); y != nil {
				return x, y
			}
		}
	}
	return nil, nil
}

// distinct returns a member of each item, or nil if an item has no such string or the values are
// not unique.
func distinct(list []any, key string) []string {
	out := make([]string, len(list))
	seen := make(map[string]bool, len(list))
	for i, v := range list {
		o, _ := plain(v).(map[string]any)
		s, ok := o[key].(string)
		if !ok || seen[s] {
			return nil
		}
		out[i], seen[s] = s, true
	}
	return out
}

// contents returns identifiers for items without a name: the content with a counter for equal
// items. If equal values have different text, the patch is longer but still correct.
func contents(list []any) []string {
	out := make([]string, len(list))
	seen := make(map[string]int, len(list))
	for i, v := range list {
		text, _ := json.Marshal(v) // values without a JSON form are not equal to anything
		out[i] = fmt.Sprintf("%d/%s", seen[string(text)], text)
		seen[string(text)]++
	}
	return out
}

// anchors matches items with equal IDs, as many as possible in the order of both lists: those on a
// longest increasing subsequence of positions. IDs must be unique within a list.
func anchors(a, b []string) []pair {
	position := make(map[string]int, len(b))
	for j, id := range b {
		position[id] = j
	}
	var common []pair
	for i, id := range a {
		if j, ok := position[id]; ok {
			common = append(common, pair{i, j})
		}
	}
	// ends[n] is the index in common of the smallest end of a sequence of n+1 pairs. before links
	// each pair to its predecessor.
	var ends []int
	before := make([]int, len(common))
	for i, p := range common {
		n, _ := slices.BinarySearchFunc(ends, p.b, func(e, b int) int { return common[e].b - b })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	out := make([]pair, len(ends))
	i := -1
	if len(ends) > 0 {
		i = ends[len(ends)-1]
	}
	for n := len(ends) - 1; n >= 0; n-- {
		out[n], i = common[i], before[i]
	}
	return out
}

// fill matches the remaining items between anchors in order, because they are probably changed
// versions of each other.
func fill(anchors []pair, a, b int) []pair {
	out := make([]pair, 0, min(a, b))
	i, j := 0, 0
	for _, p := range append(anchors, pair{a, b}) {
		for ; i < p.a && j < p.b; i, j = i+1, j+1 {
			out = append(out, pair{i, j})
		}
		if p.a < a {
			out = append(out, p)
		}
		i, j = p.a+1, p.b+1
	}
	return out
}
