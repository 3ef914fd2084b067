package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// nodeKind is the JSON type of a node; JSON and YAML documents become the same tree.
type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeBool
	nodeInt
	nodeFloat
	nodeString
	nodeList
	nodeMapping
)

func (k nodeKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a number", "a string", "a list", "a mapping"}[k]
}

// node is one value of a document with its place. A YAML alias shares the node of its anchor, so the tree is a graph
// without cycles; builders bound its size with all aliases expanded.
type node struct {
	kind  nodeKind
	line  int
	size  int    // nodes below and including this one, aliases expanded
	text  string // scalars: "true", a decimal number, the string
	pairs []pair // mappings, in document order
	items []*node
}

type pair struct {
	key   string
	line  int
	value *node
}

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return n.pairs[i].value
		}
	}
	return nil
}

// show quotes a node for a message, cut to a length that fits one.
func (n *node) show() string {
	switch n.kind {
	case nodeList, nodeMapping:
		return n.kind.String()
	case nodeString:
		return quote(n.text)
	case nodeNull:
		return "null"
	}
	return clip(n.text)
}

const maxShown = 80

func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

// stepPattern is a step of a field path: a quoted key, a name or an index.
var stepPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^.\[\]"]+`)

// lineOf returns the line of the deepest node that exists on a field path, as [Validator] writes it.
func (n *node) lineOf(path string) int {
	line := n.line
	for _, step := range stepPattern.FindAllString(path, -1) {
		if key, err := strconv.Unquote(step); err == nil {
			step = key
		}
		if at := slices.IndexFunc(n.pairs, func(p pair) bool { return p.key == step }); at >= 0 {
			n, line = n.pairs[at].value, n.pairs[at].line
		} else if at, err := strconv.Atoi(step); err == nil && at >= 0 && at < len(n.items) {
			n, line = n.items[at], n.items[at].line
		} else {
			break
		}
	}
	return line
}
