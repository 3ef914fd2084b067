package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// textList is a list of strings; a variable or flag writes it with commas between.
type textList struct {
	p     *[]string
	check func(string) string
	max   int // items
}

func (t textList) parse(n *yaml.Node) []problem {
	if loose(n) {
		n = looseList(n)
	}
	items, ps := sequence(n, t.max)
	if ps != nil {
		return ps
	}
	out := make([]string, len(items))
	for i, item := range items {
		for _, p := range (text{p: &out[i], check: t.check}).parse(item) {
			p.at = "[" + strconv.Itoa(i) + "]" + p.at
			ps = append(ps, p)
		}
	}
	if ps == nil {
		*t.p = out
	}
	return ps
}

func (t textList) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for _, s := range *t.p {
		n.Content = append(n.Content, scalarNode("!!str", s))
	}
	return n
}

func (t textList) schema() map[string]any {
	return map[string]any{"type": "array", "maxItems": t.max, "items": map[string]any{"type": "string"}}
}

// looseList reads "a,b" as a list; white space around items and empty text do not count.
func looseList(n *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if strings.TrimSpace(n.Value) == "" {
		return out
	}
	for s := range strings.SplitSeq(n.Value, ",") {
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(s)})
	}
	return out
}

// sequence returns the items of a list; an absent value is an empty list.
func sequence(n *yaml.Node, limit int) ([]*yaml.Node, []problem) {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil, nil
	case n.Kind != yaml.SequenceNode:
		return nil, wrong(n, "is not a list; write [a, b], or [] for none")
	case len(n.Content) > limit:
		return nil, wrong(n, "has %d items; at most %d are allowed", len(n.Content), limit)
	}
	out := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out[i] = follow(c)
	}
	return out, nil
}

// receivers is the list of access-log receivers. A variable or flag writes it as YAML or JSON.
type receivers struct {
	p    *[]ReceiverConfig
	logs *string
}

const maxReceivers = 64

func newReceivers(p *[]ReceiverConfig, logs *string) receivers { return receivers{p, logs} }

func (r receivers) parse(n *yaml.Node) []problem {
	if loose(n) {
		doc, err := parseDocument([]byte(n.Value))
		if err != nil {
			return wrong(n, "%v; write it like [{name: a, address: \"127.0.0.1:5000\", file: a.log}]", err)
		}
		if n = doc; n == nil {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
	}
	items, ps := sequence(n, maxReceivers)
	if ps != nil {
		return ps
	}
	out := make([]ReceiverConfig, len(items))
	for i, item := range items {
		out[i] = defaultReceiver("", "", "")
		at := "[" + strconv.Itoa(i) + "]"
		own := decodeItem(item, out[i].fields(r.logs))
		for _, p := range own {
			p.at = at + p.at
			ps = append(ps, p)
		}
		if own == nil {
			ps = append(ps, r.unique(out, i, item, at)...)
		}
	}
	if ps == nil {
		*r.p = out
	}
	return ps
}

// unique reports what receiver i shares with an earlier one.
func (receivers) unique(rs []ReceiverConfig, i int, n *yaml.Node, at string) []problem {
	var out []problem
	for j, o := range rs[:i] {
		for _, s := range [...]struct{ key, a, b string }{{"name", rs[i].Name, o.Name}, {"address", rs[i].Address, o.Address}, {"file", rs[i].File, o.File}} {
			if s.a == s.b {
				out = append(out, problem{n.Line, at + "." + s.key, fmt.Sprintf("%q is that of receiver [%d] too; give each its own", s.a, j)})
			}
		}
	}
	return out
}

// decodeItem decodes a mapping whose name, address and file must be there.
func decodeItem(n *yaml.Node, fs []field) []problem {
	if n.Kind != yaml.MappingNode {
		return wrong(n, "is not a mapping; want {%s}", joinPaths(fs))
	}
	var out []problem
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], follow(n.Content[i+1])
		f := findField(fs, k.Value)
		switch {
		case f == nil:
			out = append(out, problem{k.Line, "." + clip.Value(k.Value), "is not known" + suggest(k.Value, fs) + "; the keys are " + joinPaths(fs)})
			continue
		case seen[k.Value]:
			out = append(out, problem{k.Line, "." + k.Value, "stands twice; keep one"})
			continue
		}
		seen[k.Value] = true
		for _, p := range f.value.parse(v) {
			p.at = "." + k.Value + p.at
			out = append(out, p)
		}
	}
	for _, need := range [...]string{"name", "address", "file"} {
		if !seen[need] {
			out = append(out, problem{n.Line, "." + need, "is missing; every receiver needs one"})
		}
	}
	return out
}

func joinPaths(fs []field) string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.path
	}
	return strings.Join(names, ", ")
}

func (r receivers) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for i := range *r.p {
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
		for _, f := range (*r.p)[i].fields(r.logs) {
			m.Content = append(m.Content, scalarNode("!!str", f.path), f.value.node())
		}
		n.Content = append(n.Content, m)
	}
	return n
}

func (r receivers) schema() map[string]any {
	item := defaultReceiver("", "", "")
	props := map[string]any{}
	for _, f := range item.fields(r.logs) {
		s := f.value.schema()
		s["description"] = f.doc
		props[f.path] = s
	}
	return map[string]any{"type": "array", "maxItems": maxReceivers, "items": map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"name", "address", "file"}, "properties": props,
	}}
}
