package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// parseList sets a list. A variable or flag writes a list of texts with commas between, and a list
// of items as YAML or JSON.
func (f field) parseList(n *yaml.Node) resource.Faults {
	if f.at.Type().Elem().Kind() == reflect.String {
		return f.parseTexts(n)
	}
	loose := n.Tag == "" && n.Kind == yaml.ScalarNode
	if f.has("text") && n.Kind == yaml.ScalarNode && !(loose && strings.HasPrefix(n.Value, "[")) {
		return f.parseAsText(n)
	}
	if loose {
		doc, err := parseDocument([]byte(n.Value))
		if err != nil {
			return f.fault(n, "%v; write it like %s", err, f.tag.Get("example"))
		}
		if n = doc; n == nil {
			n = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
		}
	}
	if n, faults := f.checkList(n, "it like "+f.tag.Get("example")); n == nil {
		return faults
	} else if out, faults := f.parseItems(n); faults != nil {
		return faults
	} else {
		f.at.Set(out)
	}
	return nil
}

// checkList returns the node when it is a list that may have its items. It returns nil where
// nothing is left to do: after a fault, and for a list that is absent or, where that is the same,
// empty.
func (f field) checkList(n *yaml.Node, how string) (*yaml.Node, resource.Faults) {
	switch null := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"; {
	case null && f.has("nil"):
		f.at.SetZero()
		return nil, nil
	case null:
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line}
	case n.Kind != yaml.SequenceNode:
		return nil, f.fault(n, "is not a list; write %s, or [] for none", how)
	case len(n.Content) > f.max():
		return nil, f.fault(n, "has %d items; at most %d are allowed", len(n.Content), f.max())
	}
	switch {
	case len(n.Content) > 0 || f.has("nil"):
		return n, nil
	case f.has("required"):
		return nil, f.fault(n, "is empty; give at least one item")
	}
	f.at.SetZero()
	return nil, nil
}

// parseTexts sets a list of texts.
func (f field) parseTexts(n *yaml.Node) resource.Faults {
	if n.Tag == "" && n.Kind == yaml.ScalarNode {
		n = splitList(n.Value)
	}
	n, faults := f.checkList(n, "[a, b]")
	if n == nil {
		return faults
	}
	out := reflect.MakeSlice(f.at.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		of := field{path: fmt.Sprintf("%s[%d]", f.path, i), tag: f.tag, at: out.Index(i), item: true}
		faults = append(faults, of.parse(follow(item))...)
	}
	if faults == nil {
		f.at.Set(out)
	}
	return faults
}

// splitList reads "a,b" as a list; white space around items and empty text do not count.
func splitList(s string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if strings.TrimSpace(s) != "" {
		for item := range strings.SplitSeq(s, ",") {
			out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(item)})
		}
	}
	return out
}

// parseAsText sets a list to one item of which only the key that the tag "text" names is written.
func (f field) parseAsText(n *yaml.Node) resource.Faults {
	out := reflect.MakeSlice(f.at.Type(), 1, 1)
	keys := f.itemKeys(out.Index(0), 0)
	setDefaults(keys)
	for _, k := range keys {
		if strings.HasSuffix(k.path, "."+f.tag.Get("text")) {
			k.path = f.path
			if faults := k.parse(n); faults != nil {
				return faults
			}
		}
	}
	f.at.Set(out)
	return nil
}

// parseItems returns the list of structs that a sequence stands for.
func (f field) parseItems(n *yaml.Node) (reflect.Value, resource.Faults) {
	var faults resource.Faults
	out := reflect.MakeSlice(f.at.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		item = follow(item)
		keys := f.itemKeys(out.Index(i), i)
		found := parseItem(item, fmt.Sprintf("%s[%d]", f.path, i), out.Index(i), keys)
		if found == nil {
			found = f.sharedValues(item, out, i)
		}
		faults = append(faults, found...)
	}
	return out, faults
}

// parseItem sets one item, whose keys are given.
func parseItem(n *yaml.Node, path string, at reflect.Value, keys []field) resource.Faults {
	setDefaults(keys)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return field{path: path}.fault(n, "has no value; give its keys (%s), or remove the item", joinKeys(keys, path+"."))
	}
	given := map[string]bool{}
	faults := walkMapping(n, at, path+".", func(k field, v *yaml.Node, _ int) resource.Faults {
		given[k.path] = true
		return k.parse(v)
	})
	if n.Kind == yaml.MappingNode {
		for _, k := range keys {
			if k.has("required") && !given[k.path] {
				faults = append(faults, k.fault(n, "is missing; every item needs one")...)
			}
		}
	}
	return faults
}

// sharedValues reports values of item i that only one item may have and that an earlier one has.
func (f field) sharedValues(n *yaml.Node, list reflect.Value, i int) (faults resource.Faults) {
	for j := range i {
		other := f.itemKeys(list.Index(j), j)
		for at, k := range f.itemKeys(list.Index(i), i) {
			if k.has("unique") && k.at.Equal(other[at].at) {
				faults = append(faults, k.fault(n, "%.64q is that of item [%d] too; give each its own", k.at, j)...)
			}
		}
	}
	return faults
}
