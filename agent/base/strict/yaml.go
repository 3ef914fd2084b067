package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML parses the only document in text. It returns nil for an empty document.
func parseYAML(text []byte, firstLine int, lim Limits, budget int) (n *Node, err *Fault) {
	// The YAML library panics on its own errors and recovers only from those it knows. Input must
	// not crash the agent.
	defer func() {
		if p := recover(); p != nil {
			n, err = nil, &Fault{Line: firstLine, Reason: fmt.Sprintf("not valid YAML: %v", p)}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, rest yaml.Node
	if e := dec.Decode(&doc); errors.Is(e, io.EOF) {
		return nil, nil
	} else if e != nil {
		return nil, yamlError(e, text, firstLine)
	}
	if e := dec.Decode(&rest); e == nil {
		return nil, &Fault{Line: firstLine + rest.Line - 1,
			Reason: "a second document follows; separate documents with a line ---"}
	} else if !errors.Is(e, io.EOF) {
		return nil, yamlError(e, nil, firstLine)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	b := yamlBuilder{offset: firstLine - 1, lim: lim, budget: budget}
	n = b.build(doc.Content[0], 1)
	if b.err != nil {
		return nil, b.err
	}
	return n, nil
}

// yamlLine matches the beginning of the library's errors.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlReason splits an error of the library into the line (0 if missing) and the reason.
func yamlReason(e error) (line int, reason string) {
	reason = strings.TrimPrefix(e.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(reason); m != nil {
		line, _ = strconv.Atoi(m[1])
		reason = reason[len(m[0]):]
	}
	return line, reason
}

// maxSearched limits the size in bytes of a text in which lineOfFault searches; the search parses
// the text up to log2(lines) times.
const maxSearched = 1 << 20

// misplaced lists errors for which the library reports the line where the enclosing mapping or list
// begins.
var misplaced = [...]string{"did not find expected key", "did not find expected '-' indicator"}

// lineOfFault returns the line at which the library stops: the number of lines from which on a
// prefix of the text has the same error.
func lineOfFault(text []byte, reason string) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	return 1 + sort.Search(len(lines)-1, func(n int) bool {
		var doc yaml.Node
		e := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n+1], nil))).Decode(&doc)
		if e == nil {
			return false
		}
		_, same := yamlReason(e)
		return same == reason
	})
}

// YAMLFault converts an error of the YAML library for a text to a fault with line and remedy.
func YAMLFault(e error, text []byte) *Fault { return yamlError(e, text, 1) }

// yamlError converts an error of the library to a fault. text is the parsed text; nil if unknown.
func yamlError(e error, text []byte, firstLine int) *Fault {
	msg := strings.TrimPrefix(e.Error(), "yaml: ")
	line, reason := yamlReason(e)
	out := &Fault{Line: max(line, 1) + firstLine - 1, Reason: reason}
	hint := ""
	if slices.Contains(misplaced[:], reason) && len(text) > 0 && len(text) <= maxSearched {
		out.Line = lineOfFault(text, reason) + firstLine - 1
		hint = "; check the indentation and the quotes of this line"
	}
	out.Reason = "not valid YAML: " + Short(out.Reason) + hint
	if strings.Contains(msg, "cannot start any token") && strings.Contains(msg, `'\t'`) ||
		strings.Contains(msg, "found a tab character") {
		out.Reason += "; indent with spaces"
	}
	return out
}

// yamlBuilder converts a YAML tree to nodes. It resolves aliases and merge keys and limits size and
// depth.
type yamlBuilder struct {
	offset  int
	lim     Limits
	budget  int // remaining number of nodes
	anchors map[*yaml.Node]*Node
	err     *Fault
}

func (b *yamlBuilder) fail(y *yaml.Node, format string, args ...any) *Node {
	if b.err == nil {
		b.err = &Fault{Line: y.Line + b.offset, Reason: fmt.Sprintf(format, args...)}
	}
	return &Node{Line: y.Line + b.offset, Size: 1}
}

// spend deducts n nodes from the budget.
func (b *yamlBuilder) spend(y *yaml.Node, n int) bool {
	if n > b.budget {
		b.fail(y, "the document has too many values with aliases expanded (at most %d); "+
			"use fewer aliases or split it", b.lim.DocumentNodes())
		return false
	}
	b.budget -= n
	return true
}

func (b *yamlBuilder) build(y *yaml.Node, depth int) *Node {
	if b.err != nil {
		return &Node{Size: 1}
	}
	if depth > b.lim.Depth {
		return b.fail(y, "nested too deeply (at most %d levels)", b.lim.Depth)
	}
	if y.Kind == yaml.AliasNode {
		n, ok := b.anchors[y.Alias]
		if !ok || n == nil {
			return b.fail(y, "the alias %s is inside its own anchor", Quote(y.Value))
		}
		b.spend(y, n.Size)
		// The depth below an alias is checked when the tree is walked, since the node is shared.
		return n
	}
	if !b.spend(y, 1) {
		return &Node{Size: 1}
	}
	if y.Anchor != "" {
		if b.anchors == nil {
			b.anchors = map[*yaml.Node]*Node{}
		}
		b.anchors[y] = nil // in progress
	}
	n := &Node{Line: y.Line + b.offset, Size: 1}
	switch y.Kind {
	case yaml.MappingNode:
		b.mapping(n, y, depth)
	case yaml.SequenceNode:
		if y.ShortTag() != "!!seq" {
			return b.fail(y, "the tag %s is not allowed", Quote(y.Tag))
		}
		n.Kind = List
		n.Items = make([]*Node, len(y.Content))
		for i, c := range y.Content {
			n.Items[i] = b.build(c, depth+1)
			n.Size += n.Items[i].Size
		}
	case yaml.ScalarNode:
		b.scalar(n, y)
	default:
		return b.fail(y, "unexpected YAML node")
	}
	if y.Anchor != "" {
		b.anchors[y] = n
	}
	return n
}

func (b *yamlBuilder) mapping(n *Node, y *yaml.Node, depth int) {
	if y.ShortTag() != "!!map" {
		b.fail(y, "the tag %s is not allowed", Quote(y.Tag))
		return
	}
	n.Kind = Mapping
	n.Pairs = make([]Pair, 0, len(y.Content)/2)
	var merges []*Node
	for i := 0; i+1 < len(y.Content) && b.err == nil; i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!null" {
			b.fail(y.Content[i], "a key must be a string")
			return
		}
		value := b.build(v, depth+1)
		if k.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		n.Pairs = append(n.Pairs, Pair{Key: k.Value, Line: y.Content[i].Line + b.offset, Value: value})
		n.Size += value.Size
	}
	if len(merges) > 0 && b.err == nil {
		b.merge(n, y, merges)
	}
}

// merge adds the entries of merged mappings whose keys the mapping does not have. The first one
// takes precedence (https://yaml.org/type/merge.html).
func (b *yamlBuilder) merge(n *Node, y *yaml.Node, merges []*Node) {
	have := make(map[string]bool, len(n.Pairs))
	for _, p := range n.Pairs {
		have[p.Key] = true
	}
	for len(merges) > 0 {
		m := merges[0]
		merges = merges[1:]
		switch m.Kind {
		case List:
			for _, it := range m.Items {
				if it.Kind != Mapping {
					b.fail(y, "the merge key << requires a mapping or a list of mappings, not %s", it.Kind)
					return
				}
			}
			merges = append(append([]*Node{}, m.Items...), merges...)
		case Mapping:
			for _, p := range m.Pairs {
				if have[p.Key] {
					continue
				}
				if !b.spend(y, p.Value.Size) {
					return
				}
				have[p.Key] = true
				n.Pairs = append(n.Pairs, p)
				n.Size += p.Value.Size
			}
		default:
			b.fail(y, "the merge key << requires a mapping or a list of mappings, not %s", m.Kind)
			return
		}
	}
}

func (b *yamlBuilder) scalar(n *Node, y *yaml.Node) {
	n.Text = y.Value
	switch y.ShortTag() {
	case "!!str", "!!timestamp":
		n.Kind = String
	case "!!merge": // a value that equals the merge key
		n.Kind = String
	case "!!null":
		n.Kind, n.Text = Null, ""
	case "!!bool":
		n.Kind = Bool
		n.Text = strings.ToLower(y.Value)
		if n.Text != "true" && n.Text != "false" {
			b.fail(y, "%s is not a boolean: write true or false", Quote(y.Value))
		}
	case "!!int":
		if b.lim.WrittenNumbers {
			n.Kind = Int
		} else if !n.setInt(strings.ReplaceAll(y.Value, "_", "")) {
			b.fail(y, "%s is not a whole number of at most 64 bits", Quote(y.Value))
		}
	case "!!float":
		n.Kind = Float
		f, err := strconv.ParseFloat(strings.ReplaceAll(y.Value, "_", ""), 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			b.fail(y, "%s is not a finite number", Quote(y.Value))
			return
		}
		if !b.lim.WrittenNumbers {
			n.setFloat(f)
		}
	default:
		b.fail(y, "the tag %s is not allowed", Quote(y.Tag))
	}
}
