package resource

import (
	"slices"
	"strings"
)

// restore puts the secrets of the stored resource in the places of their marks. A mark keeps a
// secret where it stands at the same place as in the shown form: the same field, of items of lists
// the same name. Marks for which that holds nothing stay, and are faults where a secret is wanted.
func (d *decoder) restore(h *header) {
	if d.stored == nil || !carriesMark(h.spec) {
		return
	}
	old := d.stored(h.key)
	if old == nil {
		return
	}
	shown, _, err := marshalSpec(old.Spec, false)
	if err != nil {
		return
	}
	real, _, err := marshalSpec(old.Spec, true)
	if err != nil {
		return
	}
	if s, r := parseText(string(shown)), parseText(string(real)); s != nil && r != nil {
		h.spec = restored(h.spec, r, hideKeys(s))
	}
}

// carriesMark reports whether a tree holds a mark, alone or inside of a text.
func carriesMark(n *node) bool {
	return n.kind == nodeString && strings.Contains(n.text, Redacted) ||
		slices.ContainsFunc(n.items, carriesMark) ||
		slices.ContainsFunc(n.pairs, func(p pair) bool { return carriesMark(p.value) })
}

// restored returns a tree with the real values where it has marks that the shown tree has too.
func restored(n, real, shown *node) *node {
	switch {
	case real == nil || shown == nil || !carriesMark(n):
	case n.kind == nodeMapping && real.kind == nodeMapping && shown.kind == nodeMapping:
		return n.mapped(func(key string) func(*node) *node {
			return func(v *node) *node { return restored(v, real.get(key), shown.get(key)) }
		})
	case n.kind == nodeList && real.kind == nodeList && shown.kind == nodeList && len(real.items) == len(shown.items):
		at := counterparts(n.items, shown.items)
		out := *n
		out.items = slices.Clone(n.items)
		for i, j := range at {
			if j >= 0 {
				out.items[i] = restored(n.items[i], real.items[j], shown.items[j])
			}
		}
		return &out
	case n.kind != nodeString || shown.kind != nodeString || !strings.Contains(shown.text, Redacted):
	case strings.TrimSpace(n.text) == strings.TrimSpace(shown.text):
		out := *real
		out.line = n.line
		return &out
	case real.kind == nodeString:
		return restoredText(n, real, shown)
	}
	return n
}

// restoredText restores inside of a text that was changed beside its secrets. A text about
// something of another name is another text.
func restoredText(n, real, shown *node) *node {
	given, was, seen := parseText(n.text), parseText(real.text), parseText(shown.text)
	if given == nil || was == nil || seen == nil || identity(given) != identity(seen) {
		return n
	}
	after := restored(given, was, seen)
	if after == given {
		return n
	}
	return &node{kind: nodeString, line: n.line, size: n.size, text: indented(after)}
}

// counterparts returns for each item of a list the place of the item of another list that it is the
// new form of, -1 for none: the one of its name, or without one the one that is equal, or else the
// one in the same place of a list that is as long.
func counterparts(items, among []*node) []int {
	known := func(n *node) (word string, named bool) {
		if name := identity(n); name != "" {
			return name, true
		}
		return string(canonical(n)), false
	}
	places := map[string][]int{} // of the items with that word, in order
	nameless := make([]bool, len(among))
	for j, it := range among {
		word, named := known(it)
		places[word], nameless[j] = append(places[word], j), !named
	}
	out := make([]int, len(items))
	for i, it := range items {
		out[i] = -1
		if word, _ := known(it); len(places[word]) > 0 {
			out[i], places[word] = places[word][0], places[word][1:]
			nameless[out[i]] = false // taken
		}
	}
	for i, it := range items {
		if len(items) == len(among) && out[i] < 0 && nameless[i] && identity(it) == "" {
			out[i] = i
		}
	}
	return out
}

// identity is what an item of a list is known by: its name, or the path of a JSON Patch; "" for
// none.
func identity(n *node) string {
	for _, key := range [...]string{"name", "path"} {
		if v := n.get(key); v != nil && v.kind == nodeString && !IsRedacted(v.text) {
			return key + "=" + v.text
		}
	}
	return ""
}
