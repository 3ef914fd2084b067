package change

import (
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxFields bounds the fields that are listed for one resource.
const maxFields = 64

// Fields returns the fields in which two states of a resource differ, at most 64, without their
// secrets. A resource that has no document has no fields.
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
