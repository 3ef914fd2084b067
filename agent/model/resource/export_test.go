package resource

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Additional entry points for tests.

// MarshalYAML returns the content of Marshal in the same order as YAML.
func MarshalYAML(r *Resource) ([]byte, error) {
	b, err := Marshal(r)
	if err != nil {
		return nil, err
	}
	return YAMLOf(b)
}

// YAMLOf converts a JSON document to YAML.
func YAMLOf(doc []byte) ([]byte, error) {
	n := strict.JSON(doc)
	if n == nil {
		return nil, errors.New("the document is no JSON")
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(yamlNode(n)); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// yamlNode converts a node for the YAML writer.
func yamlNode(n *strict.Node) *yaml.Node {
	scalar := func(tag, text string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
	}
	switch n.Kind {
	case strict.Bool:
		return scalar("!!bool", n.Text)
	case strict.Int:
		return scalar("!!int", n.Text)
	case strict.Float:
		return scalar("!!float", n.Text)
	case strict.String:
		y := &yaml.Node{}
		y.SetString(n.Text)
		return y
	case strict.List:
		y := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, it := range n.Items {
			y.Content = append(y.Content, yamlNode(it))
		}
		return y
	case strict.Mapping:
		y := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i := range n.Pairs {
			key := &yaml.Node{}
			key.SetString(n.Pairs[i].Key)
			y.Content = append(y.Content, key, yamlNode(n.Pairs[i].Value))
		}
		return y
	}
	return scalar("!!null", "null")
}
