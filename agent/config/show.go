package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the config as a file that [Load] reads back to the same config. With origins, a comment behind each
// key says where its value comes from.
func (c *Config) YAML(origins Origins) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range c.fields() {
		parts := strings.Split(f.path, ".")
		at := root
		for _, section := range parts[:len(parts)-1] {
			at = child(at, section)
		}
		k, v := scalarNode("!!str", parts[len(parts)-1]), f.value.node()
		if o := origins[f.path]; o != "" {
			if v.Kind == yaml.SequenceNode && v.Style != yaml.FlowStyle {
				k.HeadComment = o
			} else {
				v.LineComment = o
			}
		}
		at.Content = append(at.Content, k, v)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write the config as YAML: %w", err)
	}
	return b.Bytes(), nil
}

// child returns the mapping below a key, made when it is not there.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	n.Content = append(n.Content, scalarNode("!!str", key), m)
	return m
}

// KeyInfo describes one key of the config.
type KeyInfo struct {
	Path    string // "dns.cacheSize"
	Env     string // "NEARSIDE_DNS_CACHESIZE"
	Doc     string
	Default string // as YAML; of a privileged agent
	Live    bool   // a change takes effect on SIGHUP, without a restart
}

// Keys lists every key of the config in the order of the documentation.
func Keys() []KeyInfo {
	var out []KeyInfo
	for _, f := range defaults("").fields() {
		out = append(out, KeyInfo{f.path, EnvName(f.path), f.doc, render(f), f.live})
	}
	return out
}

// render writes a value in one line of YAML.
func render(f field) string {
	n := f.value.node()
	n.Style |= yaml.FlowStyle
	b, err := yaml.Marshal(n)
	if err != nil {
		return err.Error() // nodes of scalars always marshal
	}
	return strings.TrimSpace(string(b))
}

// Schema returns the JSON Schema (2020-12) of the config file.
func Schema() []byte {
	root := object("Config of the nearside agent.")
	for _, f := range defaults("").fields() {
		parts := strings.Split(f.path, ".")
		at := root
		for _, section := range parts[:len(parts)-1] {
			at = below(at, section)
		}
		s := f.value.schema()
		s["description"] = f.doc + " Variable: " + EnvName(f.path) + "."
		if f.path != "node.name" {
			var d any
			if err := f.value.node().Decode(&d); err == nil {
				s["default"] = d
			}
		}
		at["properties"].(map[string]any)[parts[len(parts)-1]] = s
	}
	for _, s := range emptySections {
		below(root, s)["description"] = "Reserved; holds nothing yet."
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return []byte(fmt.Sprintf("{%q: %q}", "$comment", err)) // plain maps and texts always marshal
	}
	return append(b, '\n')
}

func object(doc string) map[string]any {
	return map[string]any{"type": []string{"object", "null"}, "description": doc, "additionalProperties": false, "properties": map[string]any{}}
}

func below(at map[string]any, section string) map[string]any {
	props := at["properties"].(map[string]any)
	if _, ok := props[section]; !ok {
		props[section] = object("")
	}
	return props[section].(map[string]any)
}

// Change is one key whose value differs between two configs.
type Change struct {
	Key  string
	From string
	To   string
	Live bool // takes effect without a restart
}

// Changes lists the keys that differ, in the order of the documentation.
func (c *Config) Changes(to *Config) []Change {
	var out []Change
	now := to.fields()
	for i, f := range c.fields() {
		if a, b := f.value.node(), now[i].value.node(); !reflect.DeepEqual(a, b) {
			out = append(out, Change{f.path, render(f), render(now[i]), f.live})
		}
	}
	return out
}
