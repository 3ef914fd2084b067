package secret

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Restore replaces marks by secrets. The tree n is an edited document whose redacted and real forms
// are given. A mark is replaced if it has the same position as in the redacted form: the same
// field, and in lists an item of the same name. Other marks remain, and are faults where a secret
// is required.
func Restore(n *strict.Node, shown, real []byte) *strict.Node {
	if s, r := parse(string(shown)), parse(string(real)); s != nil && r != nil {
		return restored(n, r, hideKeys(s))
	}
	return n
}

// CarriesMark reports whether a tree contains a mark, as a value or within a text.
func CarriesMark(n *strict.Node) bool {
	return n.Kind == strict.String && strings.Contains(n.Text, Redacted) ||
		slices.ContainsFunc(n.Items, CarriesMark) ||
		slices.ContainsFunc(n.Pairs, func(p strict.Pair) bool { return CarriesMark(p.Value) })
}

// restored returns a tree with real values for the marks that the redacted tree has too.
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

// restoredText restores secrets within a text that was edited elsewhere. A text for an item of
// another name counts as another text.
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

// counterparts returns, for each item of a list, the index of the item in another list that it
// replaces, or -1. Items correspond by name. Without names, equal items correspond, and then items
// at the same index if the lists have equal length.
func counterparts(items, among []*strict.Node) []int {
	known := func(n *strict.Node) (word string, named bool) {
		if name := identity(n); name != "" {
			return name, true
		}
		return string(n.Canonical()), false
	}
	places := map[string][]int{} // indices of the items with that identity, in order
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

// identity returns the key of a list item: its name, or the path of a JSON Patch; may be "".
func identity(n *strict.Node) string {
	for _, key := range [...]string{"name", "path"} {
		if v := n.Get(key); v != nil && v.Kind == strict.String && !IsRedacted(v.Text) {
			return key + "=" + v.Text
		}
	}
	return ""
}
