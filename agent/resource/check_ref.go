package resource

// Ref checks a reference that stands in a conf against the kinds allowed there, and the other fields against the kind.
func (v *Validator) Ref(t *TargetRef, kinds ...string) { t.validate(v, kinds, false, false) }

// Tags checks the names and values of tags. Any value may be "*" where the tags select.
func (v *Validator) Tags(tags map[string]string, selecting bool) { v.tags(tags, selecting) }
