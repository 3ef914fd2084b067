package jsonpatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// pair is an item of the old list and the one of the new list that it becomes.
type pair struct{ a, b int }

// lists compares two lists. The operations are applied one after the other, so what is removed goes
// first, from the end; then the new list is walked from its beginning, and everything before the
// walker is as it shall be.
func (d *differ) lists(a, b []any) (kept bool) {
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
				kept = true
			}
			next++
			continue
		}
		d.out = append(d.out, Operation{Op: Add, Path: d.join(strconv.Itoa(j)), Value: y})
	}
	return kept
}

// match pairs the items of two lists in an order that both have.
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

// middle pairs what lies between the equal beginnings and ends; from is the index of its first
// item. The whole lists decide what the items are known by.
func middle(a, b []any, from int, wholeA, wholeB []any) []pair {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	if x, y := names(wholeA, wholeB); x != nil {
		return shift(anchors(x[from:from+len(a)], y[from:from+len(b)]), from)
	}
	if len(a) == 1 && len(b) == 1 {
		return []pair{{from, from}} // as what follows would find, without looking into them
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

// names returns what the items of both lists are known by: a member that all have as a string, of
// which no two of a list have the same. Nil when there is none.
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

// distinct returns a member of each item, nil where one has no such string or two have the same.
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

// contents returns what items without a name are known by: their content, and which one of several
// equal ones it is. Two forms of one value only make a patch longer.
func contents(list []any) []string {
	out := make([]string, len(list))
	seen := make(map[string]int, len(list))
	for i, v := range list {
		text, _ := json.Marshal(v) // what has no JSON form is equal to nothing
		out[i] = fmt.Sprintf("%d/%s", seen[string(text)], text)
		seen[string(text)]++
	}
	return out
}

// anchors pairs items with the same id, as many as can be paired in the order of both lists: of the
// items that both have, those on a longest increasing subsequence of their places. Ids are distinct
// within a list.
func anchors(a, b []string) []pair {
	place := make(map[string]int, len(b))
	for j, id := range b {
		place[id] = j
	}
	var common []pair
	for i, id := range a {
		if j, ok := place[id]; ok {
			common = append(common, pair{i, j})
		}
	}
	// ends[n] is the index in common of the smallest end of a sequence of n+1 pairs; before links each
	// pair to the one that it follows.
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

// fill pairs, between two anchors, the items that are left, in their order: they are taken for
// changed ones.
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
