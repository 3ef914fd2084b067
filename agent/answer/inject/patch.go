package inject

import (
	"fmt"
	"strconv"
)

// PatchOp is an operation of a JSON Patch (RFC 6902).
type PatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch returns the edits as a JSON Patch of a decoded pod template or Pod, which it does not
// change. It adds missing parents.
func (e Edits) Patch(template map[string]any) ([]PatchOp, error) {
	var ops []PatchOp
	added := map[string]bool{} // pointers of parents that operations have added
	for _, edit := range e {
		if len(edit.Path) == 0 {
			return nil, fmt.Errorf("%s without a path", edit.Op)
		}
		parents, sequence := len(edit.Path)-1, edit.Op == Append || edit.Op == Prepend
		if sequence {
			parents++
		}
		for n := 1; n <= parents; n++ {
			at := edit.Path[:n]
			if v, ok := lookup(template, at); ok && v != nil || added[at.Pointer()] {
				continue
			}
			var value any = map[string]any{}
			if sequence && n == parents {
				value = []any{}
			}
			ops = append(ops, PatchOp{"add", at.Pointer(), value})
			added[at.Pointer()] = true
		}
		op := PatchOp{"add", edit.Path.Pointer(), edit.Value}
		switch edit.Op {
		case Append:
			op.Path += "/-"
		case Prepend:
			op.Path += "/0"
		case Replace:
			op.Op = "replace"
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// lookup returns the value at a path.
func lookup(template map[string]any, path Path) (any, bool) {
	var v any = template
	for _, step := range path {
		switch parent := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = parent[step]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(parent) {
				return nil, false
			}
			v = parent[i]
		default:
			return nil, false
		}
	}
	return v, true
}
