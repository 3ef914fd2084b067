package resource

import (
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Embedded parses a string field that contains one YAML or JSON document, within the default
// limits. It returns canonical JSON. If the text is invalid, it reports a fault at this path with
// the line in the text, and returns nil.
func (v *Validator) Embedded(text string) []byte {
	lim := Limits{}.WithDefaults()
	root, fault := strict.One([]byte(text), lim)
	switch {
	case fault != nil && fault.Line > 0:
		v.Faultf("line %d of the text: %s", fault.Line, fault.Reason)
		return nil
	case fault != nil:
		v.Faultf("the text: %s", fault.Reason)
		return nil
	case root == nil || root.Kind == strict.Null:
		v.Faultf("the text is empty")
		return nil
	}
	d := strict.New(lim, nil, strict.Hooks{Secret: secret.ResourceField})
	d.Check(root)
	for _, f := range d.Faults {
		at := &Validator{path: joined(v.path, f.Field), sink: v.sink}
		at.Faultf("line %d of the text: %s", f.Line, f.Reason)
	}
	if len(d.Faults) > 0 {
		return nil
	}
	return root.Canonical()
}
