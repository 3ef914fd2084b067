package resource

import (
	"bytes"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Other ways into the decoder and out of a resource, for tests alone.

// DecodeStrict decodes the one YAML or JSON document of data into the struct that into points to,
// as strictly as resources are decoded: names are the json tags, and unknown fields, wrong types
// and duplicate keys are faults. Fields that the document does not name keep their value. An empty
// document changes nothing.
func DecodeStrict(file string, data []byte, into any) Faults {
	lim := Limits{}.withDefaults()
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Faults{{File: file, Reason: fmt.Sprintf("cannot decode into %T: a pointer is needed", into)}}
	}
	var faults Faults
	seen := 0
	parseStream(data, lim, func(doc document) bool {
		seen++
		switch {
		case doc.err != nil:
			faults = append(faults, Fault{File: file, Line: doc.err.Line, Reason: doc.err.Reason})
		case seen > 1 && doc.root != nil:
			faults = append(faults,
				Fault{File: file, Line: doc.root.line, Reason: "a second document follows; only one is read"})
			return false
		case doc.root != nil:
			d := newDecoder(lim)
			d.check(doc.root, 1)
			d.value(doc.root, v.Elem())
			for _, f := range d.faults {
				f.File = file
				faults = append(faults, f)
			}
		}
		return true
	})
	return faults
}

func newDecoder(lim Limits) *decoder {
	return &decoder{lim: lim, types: map[reflect.Type]*typeInfo{}}
}

// MarshalYAML returns the same content as Marshal in the same order, as YAML for people.
func MarshalYAML(r *Resource) ([]byte, error) {
	b, err := Marshal(r)
	if err != nil {
		return nil, err
	}
	return YAMLOf(b)
}

// YAMLOf writes a JSON document as YAML for people.
func YAMLOf(doc []byte) ([]byte, error) {
	lim := Limits{}.withDefaults()
	n, _, _ := parseJSON(doc, 1, lim, lim.Nodes)
	if n == nil {
		return nil, fmt.Errorf("nested more than %d levels deep", lim.Depth)
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(n.yaml()); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// yaml converts a node for the YAML writer.
func (n *node) yaml() *yaml.Node {
	scalar := func(tag, text string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
	}
	switch n.kind {
	case nodeBool:
		return scalar("!!bool", n.text)
	case nodeInt:
		return scalar("!!int", n.text)
	case nodeFloat:
		return scalar("!!float", n.text)
	case nodeString:
		y := &yaml.Node{}
		y.SetString(n.text)
		return y
	case nodeList:
		y := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, it := range n.items {
			y.Content = append(y.Content, it.yaml())
		}
		return y
	case nodeMapping:
		y := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i := range n.pairs {
			key := &yaml.Node{}
			key.SetString(n.pairs[i].key)
			y.Content = append(y.Content, key, n.pairs[i].value.yaml())
		}
		return y
	}
	return scalar("!!null", "null")
}
