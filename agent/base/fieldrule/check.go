package fieldrule

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// checker finds all violations in a message.
type checker struct {
	found func(Violation)
	path  []Step
}

// message checks a message and its submessages. Fields outside of oneofs come first, fields with
// the keyword optional last.
func (c *checker) message(m protoreflect.Message, of *plan) {
	if !m.IsValid() {
		return
	}
	p := of.rules()
	for i := range p.fields {
		c.field(m, &p.fields[i])
	}
	for i := range p.oneofs {
		o := &p.oneofs[i]
		if set := m.WhichOneof(o.of); set != nil {
			if f := o.field(set); f != nil {
				c.field(m, f)
			}
		} else if o.required {
			c.path = append(c.path, Step{Index: -1})
			c.found(Violation{In: m, Oneof: o.of, Path: c.path, Reason: "value is required"})
			c.path = c.path[:len(c.path)-1]
		}
	}
	for i := range p.optional {
		if f := &p.optional[i]; m.Has(f.of) {
			c.field(m, f)
		}
	}
}

func (c *checker) field(m protoreflect.Message, f *field) {
	c.path = append(c.path, Step{Field: f.of, Index: -1})
	switch {
	case !m.Has(f.of):
		f.absent(func(reason string) { c.report(m, f, reason) })
	case f.of.IsMap():
		c.entries(m, f, m.Get(f.of).Map())
	case f.of.IsList():
		c.list(m, f, m.Get(f.of).List())
	default:
		c.value(m, f, &f.value, m.Get(f.of))
	}
	c.path = c.path[:len(c.path)-1]
}

func (c *checker) report(m protoreflect.Message, f *field, reason string) {
	c.found(Violation{In: m, Field: f.of, Path: c.path, Reason: reason})
}

// value applies the rules of a value: of a field, an item, a map's key, or a map's value.
func (c *checker) value(m protoreflect.Message, f *field, e *element, v protoreflect.Value) {
	e.test(v, func(reason string) { c.report(m, f, reason) })
	if e.next != nil {
		c.message(v.Message(), e.next)
	}
}

func (c *checker) list(m protoreflect.Message, f *field, list protoreflect.List) {
	if reason := f.size.reason(uint64(list.Len()), "item"); reason != "" {
		c.report(m, f, reason)
	}
	at := len(c.path) - 1
	for i := range list.Len() {
		c.path[at].Index = i
		if f.size.unique && earlier(list, i) {
			c.report(m, f, "repeated value must contain unique items")
		}
		c.value(m, f, &f.value, list.Get(i))
	}
}

func (c *checker) entries(m protoreflect.Message, f *field, entries protoreflect.Map) {
	if reason := f.size.reason(uint64(entries.Len()), "pair"); reason != "" {
		c.report(m, f, reason)
	}
	keys := make([]protoreflect.MapKey, 0, entries.Len())
	entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	at := len(c.path) - 1
	for _, k := range keys {
		c.path[at].Key = k
		c.value(m, f, &f.key, k.Value())
		c.value(m, f, &f.value, entries.Get(k))
	}
}

// earlier reports whether an item is equal to an earlier one. The lists whose items must be unique
// have a few items: the states of a health check, or status codes.
func earlier(list protoreflect.List, i int) bool {
	for j := range i {
		if list.Get(j).Equal(list.Get(i)) {
			return true
		}
	}
	return false
}

// compareKeys orders the keys of one map.
func compareKeys(a, b protoreflect.MapKey) int {
	switch a.Interface().(type) {
	case int32, int64:
		return cmp.Compare(a.Int(), b.Int())
	case uint32, uint64:
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return cmp.Compare(a.String(), b.String())
}
