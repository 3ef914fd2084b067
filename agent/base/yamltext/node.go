package yamltext

import (
	"fmt"
	"slices"
	"strconv"
)

// Kind is the kind of a node.
type Kind int

// The kinds of nodes.
const (
	Scalar Kind = iota
	Mapping
	Sequence
)

// Node is a value of a document, with aliases and merge keys resolved.
type Node struct {
	Kind  Kind
	Tag   string  // short tag of a scalar: !!str, !!int, !!float, !!bool, !!null, ...
	Value string  // of a scalar
	Line  int     // 1-based; 0 for an inserted node
	Keys  []Key   // of a mapping, in the order of the text; inserted ones come first
	Items []*Node // of a sequence

	at       int // offset in the text, with anchor and tag; -1 for an inserted node
	first    int // offset of the first entry of a block mapping in the text; -1 without one
	flow     bool
	style    scalarStyle
	explicit bool   // a mapping whose first key has the indicator ?
	shared   string // how the node is reached if not directly, such as "the alias *base"
	bare     bool   // null without any text, such as "labels:"
	replaced bool   // the text of a scalar is to be replaced
	leading  int    // number of inserted keys, or of items before the first one of the text
	tail     *Node  // last value in the text of a collection
}

// Key is an entry of a mapping.
type Key struct {
	Name  string
	Value *Node
	at    int // offset of the key
	line  int
}

type scalarStyle int

const (
	plain scalarStyle = iota
	quoted
	block
	aliased // *NAME, also for collections
)

// Get returns the value of a key, or nil. The first one of duplicate keys counts.
func (n *Node) Get(name string) *Node {
	if n == nil || n.Kind != Mapping {
		return nil
	}
	for i := range n.Keys {
		if n.Keys[i].Name == name {
			return n.Keys[i].Value
		}
	}
	return nil
}

// Text returns the value of a string, or "".
func (n *Node) Text() string {
	if n == nil || n.Kind != Scalar || n.Tag != tagString {
		return ""
	}
	return n.Value
}

// IsNull reports whether the node is absent or null.
func (n *Node) IsNull() bool { return n == nil || n.Kind == Scalar && n.Tag == tagNull }

// Item returns the item of a sequence at a decimal index, or nil.
func (n *Node) Item(index string) *Node {
	i, err := strconv.Atoi(index)
	if n == nil || n.Kind != Sequence || err != nil || i < 0 || i >= len(n.Items) {
		return nil
	}
	return n.Items[i]
}

// Duplicate returns a key that a mapping below n has twice, with its line, or "".
func (n *Node) Duplicate() (key string, line int) {
	seen := make(map[string]bool, len(n.Keys))
	for _, k := range n.Keys {
		if seen[k.Name] {
			return k.Name, k.line
		}
		seen[k.Name] = true
		if key, line = k.Value.Duplicate(); key != "" {
			return key, line
		}
	}
	for _, it := range n.Items {
		if key, line = it.Duplicate(); key != "" {
			return key, line
		}
	}
	return "", 0
}

// An EditError says why a node cannot be edited in the text.
type EditError struct {
	Line   int
	Reason string
}

// Error returns the reason.
func (e *EditError) Error() string { return e.Reason }

func (n *Node) refuse(format string, args ...any) error {
	return &EditError{Line: n.Line, Reason: fmt.Sprintf(format, args...)}
}

// editable returns an error if edits of n would change other values, too.
func (n *Node) editable(k Kind) error {
	switch {
	case n.shared != "":
		return n.refuse("this value comes from %s, and a change would affect other values: write it out here", n.shared)
	case n.IsNull():
		return n.refuse("this value is null, and must be %s: write one, or remove the key", k)
	case n.Kind != k:
		return n.refuse("this value is %s, and must be %s", n.Kind, k)
	}
	return nil
}

// String returns the kind as messages name it.
func (k Kind) String() string {
	return [...]string{"a scalar", "a mapping", "a list"}[k]
}

// NewMapping returns an empty mapping, to be inserted.
func NewMapping() *Node { return &Node{Kind: Mapping, at: -1, first: -1} }

// NewSequence returns an empty list, to be inserted.
func NewSequence() *Node { return &Node{Kind: Sequence, at: -1, first: -1} }

// AddKey adds a key that the mapping does not have. Keys that are added later follow it.
func (n *Node) AddKey(name string, value *Node) error {
	if n.replaceable() {
		n.become(Mapping)
	}
	if err := n.editable(Mapping); err != nil {
		return err
	}
	if n.Get(name) != nil {
		return n.refuse("the key %q exists already", name)
	}
	if n.explicit {
		return n.refuse("the mapping uses explicit keys (?), before which no key can be added: write KEY: VALUE")
	}
	if n.at < 0 { // all its keys are inserted
		n.leading = len(n.Keys)
	}
	n.Keys = slices.Insert(n.Keys, n.leading, Key{Name: name, Value: value, at: -1})
	n.leading++
	return nil
}

// Prepend adds an item before the first one.
func (n *Node) Prepend(value *Node) error {
	if n.replaceable() {
		n.become(Sequence)
	}
	if err := n.editable(Sequence); err != nil {
		return err
	}
	n.Items = slices.Insert(n.Items, 0, value)
	n.leading++
	return nil
}

// Append adds an item after the last one.
func (n *Node) Append(value *Node) error {
	if n.replaceable() {
		n.become(Sequence)
	}
	if err := n.editable(Sequence); err != nil {
		return err
	}
	n.Items = append(n.Items, value)
	return nil
}

// replaceable reports whether n can become a mapping or a list by insertions.
func (n *Node) replaceable() bool { return n.bare && n.shared == "" && n.Kind == Scalar }

func (n *Node) become(k Kind) { n.Kind, n.Tag = k, "" }

// SetScalar replaces a scalar. This is the only edit that replaces text.
func (n *Node) SetScalar(value *Node) error {
	if err := n.editable(Scalar); err != nil {
		return err
	}
	if value.Kind != Scalar || n.style == block || n.replaceable() {
		return n.refuse("only a scalar on one line can be replaced, by another one")
	}
	n.Tag, n.Value, n.replaced = value.Tag, value.Value, true
	return nil
}

// equal compares two values. The order of keys has no meaning.
func equal(a, b *Node) bool {
	if a.Kind != b.Kind || len(a.Keys) != len(b.Keys) || len(a.Items) != len(b.Items) {
		return false
	}
	if a.Kind == Scalar {
		return a.Tag == b.Tag && a.Value == b.Value
	}
	for i := range a.Items {
		if !equal(a.Items[i], b.Items[i]) {
			return false
		}
	}
	inOrder := true
	for i, k := range a.Keys {
		if inOrder = k.Name == b.Keys[i].Name; !inOrder {
			break
		}
	}
	if inOrder { // the usual case, without an index
		for i, k := range a.Keys {
			if !equal(k.Value, b.Keys[i].Value) {
				return false
			}
		}
		return true
	}
	first := a.index()
	other := b.index()
	for name, v := range first {
		if w := other[name]; w == nil || !equal(v, w) {
			return false
		}
	}
	return len(first) == len(other)
}

// index returns the values of a mapping by key. The first one of duplicate keys counts.
func (n *Node) index() map[string]*Node {
	out := make(map[string]*Node, len(n.Keys))
	for _, k := range n.Keys {
		if _, twice := out[k.Name]; !twice {
			out[k.Name] = k.Value
		}
	}
	return out
}
