package auditlog

import (
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// Documents returns resources as one JSON document, truncated for an event. whole is the full
// length if it is truncated, else 0.
func Documents(rs []*resource.Resource) (doc []byte, whole int) {
	if len(rs) == 1 {
		doc, err := resource.Shown(rs[0])
		if err != nil {
			return nil, 0
		}
		return doc, 0
	}
	b := []byte(`{"kind":"List","items":[`)
	for i, x := range rs {
		one, err := resource.Shown(x)
		if err != nil {
			return nil, 0
		}
		if whole += len(one) + 1; len(b) > audit.MaxBody {
			continue
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, one...)
	}
	if len(b) > audit.MaxBody {
		return b, whole
	}
	return append(b, "]}"...), 0
}
