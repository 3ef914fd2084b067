package secret

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Restore puts secrets in the places of their marks. The tree n is what came back of a document of
// which both the shown and the real form are given. A mark keeps a secret where it stands at the
// same place as in the shown form: the same field, of items of lists the same name. Marks for which
// that holds nothing stay, and are faults where a secret is wanted.
func Restore(n *strict.Node, shown, real []byte) *strict.Node {
	if s, r := parse(string(shown)), parse(string(real)); s != nil && r != nil {
		return restored(n, r, hideKeys(s))
	}
	return n
}

// CarriesMark reports whether a tree holds a mark, alone or inside of a text.
func CarriesMark(n *strict.Node) bool {
	return n.Kind == strict.String && strings.Contains(n.Text, Redacted) ||
		slices.ContainsFunc(n.Items, CarriesMark) ||
		slices.ContainsFunc(n.Pairs, func(p strict.Pair) bool { return CarriesMark(p.Value) })
}

// restored returns a tree with the real values where it has marks that the shown tree has too.
func restored(n, real, shown *strict.Node) *strict.Node {
	switch {
	case real == nil || shown == nil || !CarriesMark(n):
	case n.Kind == strict.Mapping && real.Kind == strict.Mapping && shown.Kind == strict.Mapping:
		return n.Mapped(func(key string, _ int, v *strict.Node) *strict.Node {
			return restored(v, real.Get(key), shown.Get(key))
		})
	case n.Kind == strict.List && real.Kind == strict.List && shown.Kind == strict.List &&
		len(real.Items) == len(shown.Items):
		at := counterparts(n.Items, shown.Items)
		out := *n
		out.Items = slices.Clone(n.Items)
		for i, j := range at {
			if j >= 0 {
				out.Items[i] = restored(n.Items[i], real.Items[j], shown.Items[j])
			}
		}
		return &out
	case n.Kind != strict.String || shown.Kind != strict.String || !strings.Contains(shown.Text, Redacted):
	case strings.TrimSpace(n.Text) == strings.TrimSpace(shown.Text):
		out := *real
		out.Line = n.Line
		return &out
	case real.Kind == strict.String:
		return restoredText(n, real, shown)
	}
	return n
}

// restoredText restores inside of a text that was changed beside its secrets. A text about
// something of another name is another text.
func restoredText(n, real, shown *strict.Node) *strict.Node {
	given, was, seen := parse(n.Text), parse(real.Text), parse(shown.Text)
	if given == nil || was == nil || seen == nil || identity(given) != identity(seen) {
		return n
	}
	after := restored(given, was, seen)
	if after == given {
		return n
	}
	return &strict.Node{Kind: strict.String, Line: n.Line, Size: n.Size, Text: indented(after)}
}

// counterparts returns for each item of a list the place of the item of another list that it is the
// new form of, -1 for none: the one of its name, or without one the one that is equal, or else the
// one in the same place of a list that is as long.
func counterparts(items, among []*strict.Node) []int {
	known := func(n *strict.Node) (word string, named bool) {
		if name := identity(n); name != "" {
			return name, true
		}
		return string(n.Canonical()), false
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
func identity(n *strict.Node) string {
	for _, key := range [...]string{"name", "path"} {
		if v := n.Get(key); v != nil && v.Kind == strict.String && !IsRedacted(v.Text) {
			return key + "=" + v.Text
		}
	}
	return ""
}
