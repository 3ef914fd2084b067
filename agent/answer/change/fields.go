package change

import (
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxFields is the maximum number of listed fields of one resource.
const maxFields = 64

// Fields returns the fields that differ between two states of a resource, at most 64, without
// secrets. A resource without a document has no fields.
func Fields(from, to *resource.Resource) []jsonpatch.FieldChange {
	docs, err := resource.ShownPair(from, to)
	if err != nil {
		return nil
	}
	out, err := jsonpatch.FieldsBetween(docs[0], docs[1])
	if err != nil {
		return nil
	}
	return out[:min(len(out), maxFields)]
}
