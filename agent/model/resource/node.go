package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/base/clip"
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

// node is one value of a document with its place. A YAML alias shares the node of its anchor, so
// the tree is a graph without cycles; builders bound its size with all aliases expanded.
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
	return short(n.text)
}

const maxShown = 80

func short(s string) string { return clip.Text(s, maxShown) }

func quote(s string) string { return fmt.Sprintf("%q", short(s)) }

// stepPattern is a step of a field path: a quoted key, a name or an index.
var stepPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^.\[\]"]+`)

// lineOf returns the line of the deepest node that exists on a field path, as [Validator] writes
// it.
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

// jsonParser reads JSON (RFC 8259) into nodes. Machines write JSON, and reading it directly is
// several times faster than reading it as the YAML that it also is. What it cannot read is left to
// the YAML parser and its messages.
type jsonParser struct {
	src    []byte
	dec    *json.Decoder
	pos    int // as far as lines are counted
	line   int
	depth  int
	limit  int // of depth
	budget int // nodes
}

// parseJSON reads one value at the start of src. It returns nil when src does not begin with valid
// JSON within the limits, else the value and the number of bytes and lines it took.
func parseJSON(src []byte, line int, lim Limits, budget int) (n *node, used int, lastLine int) {
	if n, used, lastLine = parsePlainJSON(src, line, lim, budget); n != nil {
		return n, used, lastLine
	}
	return parseAnyJSON(src, line, lim, budget)
}

// parseAnyJSON is parseJSON for what is not plain.
func parseAnyJSON(src []byte, line int, lim Limits, budget int) (n *node, used int, lastLine int) {
	p := jsonParser{src: src, dec: json.NewDecoder(bytes.NewReader(src)), line: line, limit: lim.Depth, budget: budget}
	p.dec.UseNumber()
	if n = p.value(p.token()); n == nil {
		return nil, 0, line
	}
	return n, p.pos, p.line
}

// token returns the next token, nil at the end and for what is not JSON. Null is a value of its
// own.
func (p *jsonParser) token() json.Token {
	t, err := p.dec.Token()
	end := int(p.dec.InputOffset())
	p.line += bytes.Count(p.src[p.pos:end], []byte("\n"))
	if p.pos = end; err != nil {
		return nil
	}
	if t == nil {
		return nodeNull
	}
	return t
}

func (p *jsonParser) value(t json.Token) *node {
	p.budget--
	p.depth++
	defer func() { p.depth-- }()
	if p.budget < 0 || p.depth > p.limit {
		return nil
	}
	n := &node{line: p.line, size: 1}
	switch t := t.(type) {
	case json.Delim:
		return p.collection(n, t)
	case string:
		// A replacement character may stand for what is not UTF-8.
		n.kind, n.text = nodeString, t
		if strings.ContainsRune(t, utf8.RuneError) {
			return nil
		}
	case bool:
		n.kind, n.text = nodeBool, strconv.FormatBool(t)
	case nodeKind:
		n.kind = t
	case json.Number:
		return p.number(n, string(t))
	default:
		return nil
	}
	return n
}

func (p *jsonParser) collection(n *node, open json.Delim) *node {
	n.kind = nodeList
	if open == '{' {
		n.kind = nodeMapping
	}
	for {
		t := p.token()
		if t == json.Delim('}') || t == json.Delim(']') {
			return n
		}
		key, line := "", p.line
		if n.kind == nodeMapping {
			var ok bool
			if key, ok = t.(string); !ok || strings.ContainsRune(key, utf8.RuneError) {
				return nil
			}
			t = p.token()
		}
		v := p.value(t)
		if v == nil {
			return nil
		}
		if n.kind == nodeMapping {
			n.pairs = append(n.pairs, pair{key: key, line: line, value: v})
		} else {
			n.items = append(n.items, v)
		}
		n.size += v.size
	}
}

func (p *jsonParser) number(n *node, text string) *node {
	if n.setInt(text) {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return nil
	}
	n.setFloat(f)
	return n
}
