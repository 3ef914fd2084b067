package yamltext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

const (
	tagString = "!!str"
	tagNull   = "!!null"
	tagBool   = "!!bool"
	tagInt    = "!!int"
	tagFloat  = "!!float"
	tagMerge  = "!!merge"
)

// maxExpanded limits the nodes of one document that aliases and merge keys add, and maxDepth the
// levels.
const (
	maxExpanded = 100_000
	maxDepth    = 200
)

// File is the text of a stream of documents.
type File struct {
	text  []byte
	lines []int // offsets at which lines begin
	docs  []*yaml.Node
	json  *Node // tree of a JSON document
	roots map[int]*Node
}

// Parse parses a stream of YAML documents, or one JSON document.
func Parse(text []byte) (*File, *strict.Fault) {
	f := &File{text: text, lines: lineStarts(text), roots: map[int]*Node{}}
	if len(text) > 1 && (text[0] == 0xfe && text[1] == 0xff || text[0] == 0xff && text[1] == 0xfe) {
		return nil, &strict.Fault{Line: 1, Reason: "the text is UTF-16: convert it to UTF-8"}
	}
	if !utf8.Valid(text) {
		return nil, &strict.Fault{Line: f.invalidLine(), Reason: "the text is not valid UTF-8: convert it to UTF-8"}
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		if root, ok := f.parseJSON(); ok {
			f.json = root
			return f, nil
		}
	}
	if fault := f.parseYAML(); fault != nil {
		return nil, fault
	}
	return f, nil
}

func (f *File) parseYAML() (fault *strict.Fault) {
	// The library panics on its own errors and recovers only from those it knows.
	defer func() {
		if p := recover(); p != nil {
			fault = &strict.Fault{Line: 1, Reason: fmt.Sprintf("not valid YAML: %v", p)}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(f.text))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			fault := strict.YAMLFault(err, f.text)
			if start := f.lines[min(max(fault.Line, 1), len(f.lines))-1]; bytes.HasPrefix(
				bytes.TrimLeft(f.text[start:], " "), []byte("\t")) && !strings.Contains(fault.Reason, "indent with spaces") {
				fault.Reason += "; indent with spaces"
			}
			return fault
		}
		f.docs = append(f.docs, &doc)
	}
}

// invalidLine returns the line of the first byte that is not UTF-8.
func (f *File) invalidLine() int {
	rest := f.text
	for len(rest) > 0 {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			break
		}
		rest = rest[n:]
	}
	return bytes.Count(f.text[:len(f.text)-len(rest)], []byte("\n")) + 1
}

// lineStarts returns the offsets of lines, with the line breaks of YAML 1.1 that the parser counts.
func lineStarts(text []byte) []int {
	out := []int{0}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		out[0] = len("\ufeff") // the parser does not count the byte order mark as a column
	}
	for i := 0; i < len(text); i++ {
		if n := breakAt(text, i); n > 0 {
			i += n - 1
			out = append(out, i+1)
		}
	}
	return out
}

// breakAt returns the length of the line break at an offset, or 0.
func breakAt(text []byte, i int) int {
	switch c := text[i]; {
	case c == '\n':
		return 1
	case c == '\r':
		if i+1 < len(text) && text[i+1] == '\n' {
			return 2
		}
		return 1
	case c == 0xc2 && i+1 < len(text) && text[i+1] == 0x85:
		return 2
	case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && (text[i+2] == 0xa8 || text[i+2] == 0xa9):
		return 3
	}
	return 0
}

// offset returns the offset of a position of the parser, which counts characters.
func (f *File) offset(line, column int) int {
	if line < 1 || line > len(f.lines) {
		return len(f.text)
	}
	at := f.lines[line-1]
	for i := 1; i < column && at < len(f.text); i++ {
		_, n := utf8.DecodeRune(f.text[at:])
		at += n
	}
	return at
}

// Len returns the number of documents, with those that are empty.
func (f *File) Len() int {
	if f.json != nil {
		return 1
	}
	return len(f.docs)
}

// IsJSON reports whether the text is one JSON document.
func (f *File) IsJSON() bool { return f.json != nil }

// Peek returns the value of a scalar of a document, such as "kind", without building its tree. It
// returns "" if the value is not a string that stands there directly.
func (f *File) Peek(doc int, key string) string {
	if f.json != nil {
		return f.json.Get(key).Text()
	}
	root := f.docs[doc]
	if root.Kind != yaml.DocumentNode || len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return ""
	}
	for c := root.Content[0].Content; len(c) > 1; c = c[2:] {
		if c[0].Kind == yaml.ScalarNode && c[0].Value == key && c[1].Kind == yaml.ScalarNode {
			return c[1].Value
		}
	}
	return ""
}

// Root returns the tree of a document, or nil if the document is empty.
func (f *File) Root(doc int) (*Node, *strict.Fault) {
	if f.json != nil {
		return f.json, nil
	}
	if n := f.roots[doc]; n != nil {
		return n, nil
	}
	d := f.docs[doc]
	if d.Kind != yaml.DocumentNode || len(d.Content) == 0 {
		return nil, nil
	}
	b := builder{file: f, budget: maxExpanded, inProgress: map[*yaml.Node]bool{}}
	n := b.build(d.Content[0], "", 0)
	if b.fault != nil {
		return nil, b.fault
	}
	f.roots[doc] = n
	return n, nil
}

// builder builds the tree of one document.
type builder struct {
	file       *File
	budget     int
	inProgress map[*yaml.Node]bool // anchors that contain the current node
	fault      *strict.Fault
}

func (b *builder) fail(y *yaml.Node, format string, args ...any) *Node {
	if b.fault == nil {
		b.fault = &strict.Fault{Line: y.Line, Reason: fmt.Sprintf(format, args...)}
	}
	return &Node{Tag: tagNull}
}

// build returns the tree of y. shared says how it was reached if not directly.
func (b *builder) build(y *yaml.Node, shared string, depth int) *Node {
	if b.fault != nil || depth > maxDepth {
		return b.fail(y, "nested too deeply (at most %d levels)", maxDepth)
	}
	if shared != "" {
		if b.budget--; b.budget < 0 {
			return b.fail(y, "aliases add more than %d values: write some of them out", maxExpanded)
		}
	}
	if y.Kind == yaml.AliasNode {
		if b.inProgress[y.Alias] {
			return b.fail(y, "the alias *%s is inside its own anchor", y.Value)
		}
		n := b.build(y.Alias, "the alias *"+y.Value, depth+1)
		n.at, n.style = b.file.offset(y.Line, y.Column), aliased
		return n
	}
	if y.Anchor != "" {
		b.inProgress[y] = true
		defer delete(b.inProgress, y)
	}
	n := &Node{Line: y.Line, at: b.file.offset(y.Line, y.Column), first: -1, flow: y.Style&yaml.FlowStyle != 0,
		shared: shared}
	switch y.Kind {
	case yaml.MappingNode:
		n.Kind = Mapping
		b.mapping(n, y, shared, depth)
	case yaml.SequenceNode:
		n.Kind = Sequence
		for _, c := range y.Content {
			n.add(b.build(c, shared, depth+1))
		}
	case yaml.ScalarNode:
		n.scalar(y)
	default:
		return b.fail(y, "unexpected YAML node")
	}
	return n
}

func (b *builder) mapping(n *Node, y *yaml.Node, shared string, depth int) {
	var merges []*yaml.Node
	for c := y.Content; len(c) > 1; c = c[2:] {
		k := c[0]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			b.fail(c[0], "a key must be a scalar")
			return
		}
		at := b.file.offset(c[0].Line, c[0].Column)
		if n.first < 0 {
			n.first = at
			start := b.file.skipProperties(n.at)
			n.explicit = start < at && b.file.text[start] == '?'
		}
		v := b.build(c[1], shared, depth+1)
		n.tail = v
		v.bare = v.bare && !n.flow
		if k.ShortTag() == tagMerge {
			merges = append(merges, c[1])
			continue
		}
		n.Keys = append(n.Keys, Key{Name: k.Value, Value: v, at: at, line: c[0].Line})
	}
	for _, m := range merges {
		b.merge(n, m, depth)
	}
}

// add adds an item of the text.
func (n *Node) add(item *Node) {
	item.bare = item.bare && !n.flow
	n.Items, n.tail = append(n.Items, item), item
}

// merge adds the entries of a merge key that the mapping does not have. Earlier ones take
// precedence (https://yaml.org/type/merge.html).
func (b *builder) merge(n *Node, m *yaml.Node, depth int) {
	through := m
	if m.Kind == yaml.AliasNode {
		through = m.Alias
	}
	switch {
	case b.inProgress[through]:
		b.fail(m, "the alias *%s is inside its own anchor", m.Value)
	case through.Kind == yaml.SequenceNode:
		for _, c := range through.Content {
			b.merge(n, c, depth)
		}
	case through.Kind == yaml.MappingNode:
		for _, k := range b.build(through, "a merge key (<<)", depth+1).Keys {
			if n.Get(k.Name) == nil {
				n.Keys = append(n.Keys, k)
			}
		}
	default:
		b.fail(m, "the merge key << requires a mapping or a list of mappings")
	}
}

// scalar sets the value of a scalar as the API server reads it, which knows the booleans of YAML
// 1.1.
func (n *Node) scalar(y *yaml.Node) {
	n.Tag, n.Value = y.ShortTag(), y.Value
	switch {
	case y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		n.style = quoted
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		n.style = block
	}
	switch {
	case n.Tag == tagNull:
		n.bare = y.Value == "" && y.Anchor == "" && y.Style&yaml.TaggedStyle == 0 && n.style == plain
		n.Value = ""
	case n.Tag == tagString && n.style == plain && y.Style&yaml.TaggedStyle == 0:
		switch strings.ToLower(y.Value) {
		case "yes", "on":
			n.Tag, n.Value = tagBool, "true"
		case "no", "off":
			n.Tag, n.Value = tagBool, "false"
		}
	case n.Tag == tagBool:
		n.Value = strings.ToLower(y.Value)
	case n.Tag == "!!timestamp":
		n.Tag = tagString
	}
}

// FromJSON returns the tree of a value, to be inserted.
func FromJSON(data []byte) (*Node, error) {
	f := &File{text: data}
	root, ok := f.parseJSON()
	if !ok {
		return nil, fmt.Errorf("%q is not valid JSON", strict.Short(string(data)))
	}
	root.forget()
	return root, nil
}

// forget removes the positions in another text.
func (n *Node) forget() {
	n.at, n.first, n.Line, n.flow, n.tail = -1, -1, 0, false, nil
	for i := range n.Keys {
		n.Keys[i].at = -1
		n.Keys[i].Value.forget()
	}
	for _, it := range n.Items {
		it.forget()
	}
}

// parseJSON parses the text as one JSON document. ok is false if it is not one.
func (f *File) parseJSON() (root *Node, ok bool) {
	p := jsonParser{file: f, dec: json.NewDecoder(bytes.NewReader(f.text))}
	p.dec.UseNumber()
	root = p.value(0)
	if root == nil {
		return nil, false
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	return root, true
}
