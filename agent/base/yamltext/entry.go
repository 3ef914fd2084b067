package yamltext

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry returns an entry of a collection in block style: a key with its value, or an item of a list
// if name is "". The first line is not indented, and the others by column spaces.
func (w *writer) entry(name string, value *Node, column int) string {
	root := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{value.yaml()}}
	if name != "" {
		key := &Node{Tag: tagString, Value: name}
		root = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key.yaml(), value.yaml()}}
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if w.seqShift == 0 {
		enc.CompactSeqIndent()
	}
	_ = enc.Encode(root) // a buffer accepts everything, and the tree has only scalars with values
	_ = enc.Close()
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		if i > 0 && lines[i] != "" {
			lines[i] = strings.Repeat(" ", column) + lines[i]
		}
	}
	return strings.Join(lines, w.eol)
}

// yaml returns a value for the encoder.
func (n *Node) yaml() *yaml.Node {
	switch n.Kind {
	case Mapping:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range n.Keys {
			out.Content = append(out.Content, (&Node{Tag: tagString, Value: k.Name}).yaml(), k.Value.yaml())
		}
		if len(n.Keys) == 0 {
			out.Style = yaml.FlowStyle
		}
		return out
	case Sequence:
		out := &yaml.Node{Kind: yaml.SequenceNode}
		for _, it := range n.Items {
			out.Content = append(out.Content, it.yaml())
		}
		if len(n.Items) == 0 {
			out.Style = yaml.FlowStyle
		}
		return out
	}
	out := &yaml.Node{Kind: yaml.ScalarNode, Tag: n.Tag, Value: n.Value}
	switch {
	case n.Tag == tagNull:
		out.Value = "null"
	case n.Tag == tagString && oldBoolean(n.Value):
		out.Style = yaml.DoubleQuotedStyle
	case n.Tag == tagString && strings.Contains(n.Value, "\n"):
		out.Style = yaml.LiteralStyle
	}
	return out
}

// oldBoolean reports whether YAML 1.1, which the API server uses, reads a plain scalar as a
// boolean.
func oldBoolean(s string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(s))
}
