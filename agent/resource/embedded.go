package resource

// Embedded reads a value that stands as text in a field of a document: one YAML or JSON document within the default
// limits. It returns the value as canonical JSON. Where the text cannot be read that is a fault at this path, with the
// line in the text, and the result is nil.
func (v *Validator) Embedded(text string) []byte {
	lim := Limits{}.withDefaults()
	var root *node
	before, n := len(*v.sink), 0
	parseStream([]byte(text), lim, func(doc document) bool {
		n++
		switch {
		case doc.err != nil && doc.err.Line > 0:
			v.Faultf("line %d of the text: %s", doc.err.Line, doc.err.Reason)
		case doc.err != nil:
			v.Faultf("the text: %s", doc.err.Reason)
		case root == nil:
			root = doc.root
		}
		return n < 2
	})
	switch {
	case len(*v.sink) > before:
		return nil
	case n > 1:
		v.Faultf("the text holds several documents: give one")
		return nil
	case root == nil || root.kind == nodeNull:
		v.Faultf("the text is empty")
		return nil
	}
	d := &decoder{lim: lim}
	d.check(root, 1)
	for _, f := range d.faults {
		at := &Validator{path: joined(v.path, f.Field), sink: v.sink}
		at.Faultf("line %d of the text: %s", f.Line, f.Reason)
	}
	if len(d.faults) > 0 {
		return nil
	}
	return canonical(root)
}
