package effect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// document is a policy as a document that can be edited.
type document struct {
	policy *resource.Resource
	root   any
	decode func([]byte) (*resource.Resource, error)
}

// newDocument returns the document of a policy, or nil if it has none.
func newDocument(r *resource.Resource, decode func([]byte) (*resource.Resource, error)) *document {
	text, err := resource.Marshal(r)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	doc := &document{policy: r, decode: decode}
	if d.Decode(&doc.root) != nil {
		return nil
	}
	return doc
}

// policyOf decodes an edited document. It returns nil if that is not a valid form of the policy.
func (d *document) policyOf(root any) *resource.Resource {
	text, err := json.Marshal(root)
	if err != nil {
		return nil
	}
	r, err := d.decode(text)
	if err != nil || r.Key != d.policy.Key {
		return nil
	}
	return r
}

// removal is a document without a field, or without the smallest part that contains the field and
// that the document does not need.
type removal struct {
	path   []string           // of the removed part; nil: the whole policy
	policy *resource.Resource // nil: none
}

// without removes the field at a path.
func (d *document) without(path []string) removal {
	for n := len(path); n > 0; n-- {
		if _, ok := at(d.root, path[:n]); !ok {
			continue // a legacy policy without a conf
		}
		if r := d.policyOf(edit(d.root, path[:n], nil)); r != nil {
			return removal{path[:n], r}
		}
	}
	return removal{}
}

// withoutAll removes several parts at once. It returns nil if the document needs one of them.
func (d *document) withoutAll(paths [][]string) *resource.Resource {
	slices.SortFunc(paths, func(a, b []string) int { return -comparePaths(a, b) }) // later items of lists first
	root := d.root
	for i, p := range paths {
		if i > 0 && slices.Equal(p, paths[i-1]) {
			continue
		}
		root = edit(root, p, nil)
	}
	return d.policyOf(root)
}

// comparePaths orders paths in document order, with numeric indexes of lists.
func comparePaths(a, b []string) int {
	return slices.CompareFunc(a, b, func(x, y string) int {
		i, err := strconv.Atoi(x)
		j, err2 := strconv.Atoi(y)
		switch {
		case err == nil && err2 == nil:
			return i - j
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// at returns the value at a path, and whether it exists.
func at(root any, path []string) (any, bool) {
	for _, token := range path {
		switch v := root.(type) {
		case map[string]any:
			child, ok := v[token]
			if !ok {
				return nil, false
			}
			root = child
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			root = v[i]
		default:
			return nil, false
		}
	}
	return root, true
}

// edit returns a value in which the part at a path is replaced, or removed if by is nil. It does
// not modify root.
func edit(root any, path []string, by any) any {
	if len(path) == 0 {
		return by
	}
	switch v := root.(type) {
	case map[string]any:
		child, ok := v[path[0]]
		if !ok {
			return root
		}
		v = maps.Clone(v)
		if next := edit(child, path[1:], by); next == nil && len(path) == 1 {
			delete(v, path[0])
		} else {
			v[path[0]] = next
		}
		return v
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(v) {
			return root
		}
		v = slices.Clone(v)
		if next := edit(v[i], path[1:], by); next == nil && len(path) == 1 {
			v = slices.Delete(v, i, i+1)
		} else {
			v[i] = next
		}
		return v
	}
	return root
}
