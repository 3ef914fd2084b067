package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the config as a file that [Load] reads back to the same config. With origins, each
// key has a comment with its source.
func (c *Config) YAML(origins Origins) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(mappingNode(reflect.ValueOf(c).Elem(), "", origins)); err != nil {
		return nil, fmt.Errorf("write the config as YAML: %w", err)
	}
	return b.Bytes(), nil
}

// node returns the value as YAML that [Load] reads back.
func (f field) node() *yaml.Node {
	if mode, ok := f.at.Interface().(fs.FileMode); ok {
		return scalarNode(fmt.Sprintf("%04o", mode))
	}
	if f.hasItems() {
		return f.listNode()
	}
	n := new(yaml.Node)
	if err := n.Encode(f.at.Interface()); err != nil {
		return scalarNode(err.Error()) // unreachable: plain values can be encoded
	}
	if n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
	}
	return n
}

// listNode returns a list of items.
func (f field) listNode() *yaml.Node {
	if f.has("nil") && f.at.IsNil() {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	out := &yaml.Node{Kind: yaml.SequenceNode}
	if f.item || f.at.Len() == 0 {
		out.Style = yaml.FlowStyle
	}
	for i := range f.at.Len() {
		item := itemNode(f.at.Index(i))
		if text := item.Content; f.at.Len() == 1 && len(text) == 2 && text[0].Value == f.tag.Get("text") {
			return text[1]
		}
		out.Content = append(out.Content, item)
	}
	return out
}

// itemNode returns an item or a section of one, without keys that are empty by default.
func itemNode(v reflect.Value) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, k := range keysOf(v, "") {
		if k.at.IsZero() && !k.has("default") && !k.has("required") || k.at.Kind() == reflect.Slice && k.at.Len() == 0 {
			continue
		}
		if k.hasItems() {
			out.Style = 0
		}
		k.item = true
		n := scalarNode(k.path)
		if k.at.Kind() == reflect.Struct {
			out.Content = append(out.Content, n, itemNode(k.at))
		} else {
			out.Content = append(out.Content, n, k.node())
		}
	}
	return out
}

func scalarNode(v string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
}

// mappingNode returns a struct as a mapping with the origins of its keys as comments.
func mappingNode(v reflect.Value, prefix string, origins Origins) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range keysOf(v, prefix) {
		k := scalarNode(strings.TrimPrefix(f.path, prefix))
		switch {
		case f.at.Kind() != reflect.Struct:
			n := f.node()
			if n.Kind == yaml.SequenceNode && n.Style != yaml.FlowStyle {
				k.HeadComment = origins[f.path]
			} else {
				n.LineComment = origins[f.path]
			}
			out.Content = append(out.Content, k, n)
		case f.at.NumField() > 0:
			out.Content = append(out.Content, k, mappingNode(f.at, f.path+".", origins))
		}
	}
	return out
}

// KeyInfo describes a key of the config.
type KeyInfo struct {
	Path    string // such as "dns.cacheSize"
	Env     string // such as "NEARSIDE_DNS_CACHESIZE"
	Doc     string
	Default string    // as YAML, for a privileged agent
	Live    bool      // applied on SIGHUP without a restart
	Items   []KeyInfo // keys of list items, such as "xds.access[].user", with only Path and Doc
}

// Keys lists all keys of the config in documentation order.
func Keys() []KeyInfo {
	var out []KeyInfo
	for _, f := range defaults("").fields() {
		out = append(out, KeyInfo{f.path, EnvName(f.path), f.tag.Get("doc"), f.render(), f.has("live"), f.itemInfos()})
	}
	return out
}

func (f field) itemInfos() (out []KeyInfo) {
	if !f.hasItems() {
		return nil
	}
	for _, k := range fieldsOf(reflect.New(f.at.Type().Elem()).Elem(), f.path+"[].") {
		out = append(out, KeyInfo{Path: k.path, Doc: k.tag.Get("doc")})
		out = append(out, k.itemInfos()...)
	}
	return out
}

// render formats a value as one line of YAML.
func (f field) render() string {
	n := f.node()
	n.Style |= yaml.FlowStyle
	b, err := yaml.Marshal(n)
	if err != nil {
		return err.Error() // unreachable: scalar nodes can be encoded
	}
	return strings.TrimSpace(string(b))
}

// Schema returns the JSON Schema (2020-12) of the config file.
func Schema() []byte {
	root := schemaOf(reflect.ValueOf(defaults("")).Elem(), "", false)
	root["$schema"], root["description"] = "https://json-schema.org/draft/2020-12/schema", "Config of the nearside agent."
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return []byte(fmt.Sprintf("{%q: %q}", "$comment", err)) // unreachable: maps and strings can be encoded
	}
	return append(b, '\n')
}

// schemaOf returns the schema of a mapping: a section or a list item.
func schemaOf(v reflect.Value, prefix string, item bool) map[string]any {
	props, required := map[string]any{}, []string{}
	for _, f := range keysOf(v, prefix) {
		name := strings.TrimPrefix(f.path, prefix)
		if f.at.Kind() == reflect.Struct {
			s := schemaOf(f.at, f.path+".", item)
			if key := f.tag.Get("list"); key != "" {
				list := s["properties"].(map[string]any)[key].(map[string]any)
				s["type"] = []string{"object", "array", "null"}
				s["items"], s["minItems"], s["maxItems"] = list["items"], list["minItems"], list["maxItems"]
			}
			props[name] = s
			continue
		}
		s := f.schema()
		s["description"] = f.tag.Get("doc")
		props[name] = s
		if item {
			if f.has("required") {
				required = append(required, name)
			}
			continue
		}
		s["description"] = f.tag.Get("doc") + " Variable: " + EnvName(f.path) + "."
		var d any
		if err := f.node().Decode(&d); err == nil && f.path != "node.name" {
			s["default"] = d
		}
	}
	out := map[string]any{"type": []string{"object", "null"}, "description": "", "additionalProperties": false,
		"properties": props}
	if len(props) == 0 {
		out["description"] = "Reserved; holds nothing yet."
	}
	if item {
		return map[string]any{"type": "object", "additionalProperties": false, "required": required, "properties": props}
	}
	return out
}

// schema returns the schema of one value.
func (f field) schema() map[string]any {
	s := map[string]any{}
	switch f.at.Interface().(type) {
	case string:
		s["type"] = "string"
		if isNumber(f.tag.Get("check"), "1") {
			s["type"] = []string{"string", "integer"}
		}
		if oneOf := f.tag.Get("oneOf"); oneOf != "" {
			s["enum"] = strings.Split(oneOf, ",")
		}
		if f.has("path") {
			s["maxLength"] = maxPathBytes
		} else if f.max() > 0 {
			s["maxLength"] = f.max()
		}
		if f.has("required") {
			s["minLength"] = 1
		}
	case int:
		s["type"], s["minimum"], s["maximum"] = "integer", 0, f.max()
	case bool:
		s["type"] = "boolean"
	case fs.FileMode:
		s["type"], s["pattern"] = "string", "^(0o)?[0-7]{1,4}$"
	case []string:
		item := map[string]any{"type": "string", "minLength": 1}
		if isNumber(f.tag.Get("check"), "1") {
			item["type"] = []string{"string", "integer"}
		}
		s["type"], s["maxItems"], s["items"] = "array", f.max(), item
	default:
		s["type"], s["maxItems"], s["items"] = "array", f.max(), schemaOf(reflect.New(f.at.Type().Elem()).Elem(), "", true)
		if f.has("nil") {
			s["type"] = []string{"array", "null"}
		}
		if f.has("text") {
			s["type"] = []string{"array", "string"}
		}
	}
	if f.at.Kind() == reflect.Slice && f.has("required") {
		s["minItems"] = 1
	}
	return s
}

// Change is a key whose value differs between two configs.
type Change struct {
	Key  string
	From string
	To   string
	Live bool // applied without a restart
}

// Changes lists the keys that differ, in documentation order.
func (c *Config) Changes(to *Config) []Change {
	var out []Change
	now := to.fields()
	for i, f := range c.fields() {
		if from, to := f.render(), now[i].render(); from != to {
			out = append(out, Change{f.path, from, to, f.has("live")})
		}
	}
	return out
}
