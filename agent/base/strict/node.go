package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Kind is the JSON type of a node. JSON and YAML documents have the same kinds of nodes.
type Kind uint8

// Kinds of nodes.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Mapping
)

// String returns the kind with its article, for messages.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a number", "a string", "a list", "a mapping"}[k]
}

// Node is a value of a document with its line. YAML aliases share the node of their anchor, so the
// tree is an acyclic graph. Parsers limit its size with aliases expanded.
type Node struct {
	Kind  Kind
	Line  int
	Size  int    // number of nodes including this one, with aliases expanded
	Text  string // of scalars: "true", a decimal number, or the string
	Pairs []Pair // of mappings, in document order
	Items []*Node
}

// Pair is an entry of a mapping.
type Pair struct {
	Key   string
	Line  int
	Value *Node
}

// Get returns the value of a key, or nil.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Pairs {
		if n.Pairs[i].Key == key {
			return n.Pairs[i].Value
		}
	}
	return nil
}

// Show formats a node for a message and shortens it.
func (n *Node) Show() string {
	switch n.Kind {
	case List, Mapping:
		return n.Kind.String()
	case String:
		return Quote(n.Text)
	case Null:
		return "null"
	}
	return Short(n.Text)
}

const maxShown = 80

// Short shortens text for a message.
func Short(s string) string { return clip.Text(s, maxShown) }

// Quote is [Short] in quotes.
func Quote(s string) string { return fmt.Sprintf("%q", Short(s)) }

// stepPattern matches a step of a field path: a quoted key, a name, or an index.
var stepPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^.\[\]"]+`)

// Steps returns the names, keys, and indexes of a field path.
func Steps(path string) []string {
	steps := stepPattern.FindAllString(path, -1)
	for i, step := range steps {
		if key, err := strconv.Unquote(step); err == nil {
			steps[i] = key
		}
	}
	return steps
}

// Find returns the node at a field path and the line of its key or item. If it does not exist, Find
// returns nil and the line of the deepest existing node on the path.
func (n *Node) Find(path string) (found *Node, line int) {
	line = n.Line
	for _, step := range Steps(path) {
		if at := slices.IndexFunc(n.Pairs, func(p Pair) bool { return p.Key == step }); at >= 0 {
			n, line = n.Pairs[at].Value, n.Pairs[at].Line
		} else if at, err := strconv.Atoi(step); err == nil && at >= 0 && at < len(n.Items) {
			n, line = n.Items[at], n.Items[at].Line
		} else {
			return nil, line
		}
	}
	return n, line
}

// LineOf returns the line of the deepest existing node on a field path.
func (n *Node) LineOf(path string) int {
	_, line := n.Find(path)
	return line
}

// Mapped returns a mapping or list with each value replaced by the result of the function. It
// returns the same node if nothing changes.
func (n *Node) Mapped(value func(key string, i int, v *Node) *Node) *Node {
	out := *n
	out.Pairs, out.Items = slices.Clone(n.Pairs), slices.Clone(n.Items)
	changed := false
	for i, p := range n.Pairs {
		out.Pairs[i].Value = value(p.Key, i, p.Value)
		changed = changed || out.Pairs[i].Value != p.Value
	}
	for i, it := range n.Items {
		out.Items[i] = value("", i, it)
		changed = changed || out.Items[i] != it
	}
	if !changed {
		return n
	}
	return &out
}

// Canonical returns a node as canonical JSON: sorted keys, no white space, no HTML escapes.
func (n *Node) Canonical() []byte {
	b, _ := MarshalJSON(n.plain(func(n *Node) any { return json.Number(n.Text) })) // cannot fail: a node has a JSON form
	return b
}

// JSON returns a tree as JSON in document order.
func (n *Node) JSON() []byte {
	var b bytes.Buffer
	n.write(&b)
	return b.Bytes()
}

func (n *Node) write(b *bytes.Buffer) {
	switch n.Kind {
	case Mapping:
		b.WriteByte('{')
		for i, p := range n.Pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			key, _ := MarshalJSON(p.Key)
			b.Write(key)
			b.WriteByte(':')
			p.Value.write(b)
		}
		b.WriteByte('}')
	case List:
		b.WriteByte('[')
		for i, it := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			it.write(b)
		}
		b.WriteByte(']')
	default:
		b.Write(n.Canonical())
	}
}

// plain converts a node to the types of encoding/json: map[string]any, []any, string, bool, nil,
// and the result of number.
func (n *Node) plain(number func(*Node) any) any {
	switch n.Kind {
	case String:
		return n.Text
	case Bool:
		return n.Text == "true"
	case Int, Float:
		return number(n)
	case List:
		out := make([]any, len(n.Items))
		for i, it := range n.Items {
			out[i] = it.plain(number)
		}
		return out
	case Mapping:
		out := make(map[string]any, len(n.Pairs))
		for _, p := range n.Pairs {
			out[p.Key] = p.Value.plain(number)
		}
		return out
	}
	return nil
}

// goNumber returns a number as int64, uint64, or float64.
func goNumber(n *Node) any {
	if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n.Text, 10, 64); err == nil {
		return u
	}
	f, _ := strconv.ParseFloat(n.Text, 64)
	return f
}

// setInt sets the canonical text of an integer. It returns false if text is not a 64-bit integer.
func (n *Node) setInt(text string) bool {
	n.Kind = Int
	if i, err := strconv.ParseInt(text, 0, 64); err == nil {
		n.Text = strconv.FormatInt(i, 10)
		return true
	}
	u, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 0, 64)
	n.Text = strconv.FormatUint(u, 10)
	return err == nil
}

// setFloat sets the canonical text of a float. A whole number that a float64 represents exactly
// becomes an integer.
func (n *Node) setFloat(f float64) {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n.Kind, n.Text = Int, strconv.FormatInt(int64(f), 10)
		return
	}
	n.Kind, n.Text = Float, strconv.FormatFloat(f, 'g', -1, 64)
}

// MarshalJSON is like json.Marshal without HTML escapes, so a < in a pattern remains readable.
func MarshalJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
