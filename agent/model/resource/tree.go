package resource

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// check walks the whole tree once and reports what is wrong whatever its types: duplicate keys (the
// first one stays), nesting, NUL characters.
func (d *decoder) check(n *node, depth int) {
	if depth > d.lim.Depth {
		d.faultf(n.line, "nested too deeply (at most %d levels)", d.lim.Depth)
		n.kind, n.items, n.pairs = nodeNull, nil, nil
		return
	}
	switch n.kind {
	case nodeString:
		if strings.IndexByte(n.text, 0) >= 0 {
			what := n.show()
			if d.inSecret() {
				what = "the text"
			}
			d.faultf(n.line, "%s holds a NUL character; remove it", what)
		}
	case nodeList:
		for i, it := range n.items {
			d.index(i)
			d.check(it, depth+1)
			d.pop()
		}
	case nodeMapping:
		d.duplicates(n)
		for i := range n.pairs {
			p := &n.pairs[i]
			if strings.IndexByte(p.key, 0) >= 0 {
				d.faultf(p.line, "the key %s holds a NUL character; remove it", quote(p.key))
			}
			d.userField(p.key)
			d.check(p.value, depth+1)
			d.pop()
		}
	}
}

func (d *decoder) duplicates(n *node) {
	var seen map[string]int
	if len(n.pairs) > 16 {
		seen = make(map[string]int, len(n.pairs))
	}
	kept := n.pairs[:0:len(n.pairs)]
	for i := range n.pairs {
		p := n.pairs[i]
		first := 0
		if seen != nil {
			first = seen[p.key]
			if first == 0 {
				seen[p.key] = p.line
			}
		} else if j := slices.IndexFunc(kept, func(q pair) bool { return q.key == p.key }); j >= 0 {
			first = kept[j].line
		}
		if first != 0 {
			d.userField(p.key)
			d.faultf(p.line, "the key is given twice, first in line %d; remove one", first)
			d.pop()
			continue
		}
		kept = append(kept, p)
	}
	n.pairs = kept
}

// canonical returns a node as canonical JSON: keys sorted, no white space, no HTML escapes.
func canonical(n *node) []byte {
	b, _ := marshalValue(plain(n, func(n *node) any { return json.Number(n.text) })) // a node always has a JSON form
	return b
}

// plain returns a node as encoding/json would: map[string]any, []any, string, bool, nil, and what
// number returns.
func plain(n *node, number func(*node) any) any {
	switch n.kind {
	case nodeString:
		return n.text
	case nodeBool:
		return n.text == "true"
	case nodeInt, nodeFloat:
		return number(n)
	case nodeList:
		out := make([]any, len(n.items))
		for i, it := range n.items {
			out[i] = plain(it, number)
		}
		return out
	case nodeMapping:
		out := make(map[string]any, len(n.pairs))
		for i := range n.pairs {
			out[n.pairs[i].key] = plain(n.pairs[i].value, number)
		}
		return out
	}
	return nil
}

// goNumber returns a number as int64, uint64 or float64.
func goNumber(n *node) any {
	if i, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n.text, 10, 64); err == nil {
		return u
	}
	f, _ := strconv.ParseFloat(n.text, 64)
	return f
}

// Nearest returns the name that a misspelt one was likely meant to be, "" when none is near.
func Nearest(name string, names []string) string {
	if len(name) > 64 {
		return ""
	}
	best, bestDist := "", 1+max(1, len(name)/3)
	for _, n := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < bestDist {
			best, bestDist = n, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours between two
// names (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last[j-1]
			if a[i-1] != b[j-1] {
				cost++
			}
			row[j] = min(cost, row[j-1]+1, last[j]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
