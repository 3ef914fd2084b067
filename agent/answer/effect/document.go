package effect

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
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
	root, err := jsonpatch.Decode(text)
	if err != nil {
		return nil
	}
	return &document{policy: r, root: root, decode: decode}
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

// edit returns a value in which the part at a path is replaced, or removed if by is nil. Without
// such a part, it returns root.
func edit(root any, path []string, by any) any {
	op := jsonpatch.Operation{Op: jsonpatch.Replace, Path: jsonpatch.FormatPointer(path), Value: by}
	if by == nil {
		op.Op = jsonpatch.Remove
	}
	out, err := jsonpatch.Patch{op}.Apply(root)
	if err != nil {
		return root
	}
	return out
}
