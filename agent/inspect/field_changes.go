package inspect

import (
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// FieldChange is a field of a resource that differs between two of its revisions.
type FieldChange struct {
	Path   string          `json:"path"`             // "spec.to[0].default.idleTimeout"; items of lists by name where they have one
	Before json.RawMessage `json:"before,omitempty"` // absent when there was nothing
	After  json.RawMessage `json:"after,omitempty"`  // absent when there is nothing
}

// maxFieldChanges bounds what is told of one change.
const maxFieldChanges = 64

// fieldChanges tells two states of a resource apart. What cannot be read as a document has no fields.
func fieldChanges(from, to *resource.Resource) []FieldChange {
	var docs [2]any
	for i, r := range []*resource.Resource{from, to} {
		text, err := resource.Marshal(r)
		if err != nil {
			return nil
		}
		if docs[i], err = jsonpatch.Decode(text); err != nil {
			return nil
		}
	}
	diffs := fieldDiffs(docs[0], jsonpatch.Diff(docs[0], docs[1]), 0)
	out := make([]FieldChange, 0, min(len(diffs), maxFieldChanges))
	for _, d := range diffs[:min(len(diffs), maxFieldChanges)] {
		out = append(out, FieldChange{d.Path, d.Before, d.After})
	}
	return out
}
