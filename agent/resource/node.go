package resource

import (
	"fmt"
	"strconv"
	"strings"
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

// parseError is a document that could not be read as a tree.
type parseError struct {
	line   int // in the chunk, 1-based; 0 when not known
	reason string
}

func (e *parseError) Error() string { return e.reason }

// lineOf returns the line of the deepest node that exists on a field path.
func (n *node) lineOf(path string) int {
	line := n.line
	for path != "" && n != nil {
		var next *node
		if path[0] == '[' {
			end := closing(path)
			if end < 0 {
				return line
			}
			inner := path[1:end]
			path = strings.TrimPrefix(path[end+1:], ".")
			if strings.HasPrefix(inner, `"`) {
				next, line = n.step(unquote(inner), line)
			} else {
				var i int
				if _, err := fmt.Sscanf(inner, "%d", &i); err != nil || i < 0 || i >= len(n.items) {
					return line
				}
				next = n.items[i]
				line = next.line
			}
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			name := path[:end]
			path = strings.TrimPrefix(path[end:], ".")
			next, line = n.step(name, line)
		}
		n = next
	}
	return line
}

func (n *node) step(key string, line int) (*node, int) {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return n.pairs[i].value, n.pairs[i].line
		}
	}
	return nil, line
}

// closing returns the index of the bracket that closes path[0], or -1.
func closing(path string) int {
	quoted := false
	for i := 1; i < len(path); i++ {
		switch {
		case quoted && path[i] == '\\':
			i++
		case path[i] == '"':
			quoted = !quoted
		case path[i] == ']' && !quoted:
			return i
		}
	}
	return -1
}

// unquote undoes the quoting of Validator.Key.
func unquote(s string) string {
	u, err := strconv.Unquote(s)
	if err != nil {
		return s
	}
	return u
}
