package fieldrule

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// checker checks one message. Without found it ends at the first violation, and needs no path.
type checker struct {
	found func(Violation)
	path  []Step
	ended bool
}

// report reports a violation at the current path.
func (c *checker) report(v Violation) {
	if c.found == nil {
		c.ended = true
		return
	}
	v.Path = c.path
	c.found(v)
}

func (c *checker) push(fd protoreflect.FieldDescriptor) {
	if c.found != nil {
		c.path = append(c.path, Step{Field: fd, Index: -1})
	}
}

func (c *checker) pop() {
	if c.found != nil {
		c.path = c.path[:len(c.path)-1]
	}
}

// index sets the index in the last step of the path.
func (c *checker) index(i int) {
	if c.found != nil {
		c.path[len(c.path)-1].Index = i
	}
}

// key sets the key in the last step of the path.
func (c *checker) key(k protoreflect.MapKey) {
	if c.found != nil {
		c.path[len(c.path)-1].Key = k
	}
}

// message checks a message and its submessages. Fields outside of oneofs come first, fields with
// the keyword optional last.
func (c *checker) message(m protoreflect.Message, of *plan) {
	if !m.IsValid() {
		return
	}
	p := of.rules()
	for i := range p.fields {
		if c.field(m, &p.fields[i]); c.ended {
			return
		}
	}
	for i := range p.oneofs {
		o := &p.oneofs[i]
		if set := m.WhichOneof(o.of); set != nil {
			if f := o.field(set); f != nil {
				c.field(m, f)
			}
		} else if o.required {
			c.push(nil)
			c.report(Violation{In: m, Oneof: o.of, Reason: "value is required"})
			c.pop()
		}
		if c.ended {
			return
		}
	}
	for i := range p.optional {
		if f := &p.optional[i]; m.Has(f.of) {
			c.field(m, f)
		}
		if c.ended {
			return
		}
	}
}

func (c *checker) field(m protoreflect.Message, f *field) {
	c.push(f.of)
	switch {
	case f.of.IsMap():
		c.entries(m, f)
	case f.of.IsList():
		c.list(m, f)
	case f.of.Message() != nil && !m.Has(f.of):
		if f.value.required != "" {
			c.violated(m, f, f.value.required)
		}
	default:
		c.value(m, f, &f.value, m.Get(f.of))
	}
	c.pop()
}

func (c *checker) violated(m protoreflect.Message, f *field, reason string) {
	c.report(Violation{In: m, Field: f.of, Reason: reason})
}

// value applies the rules of a value: of a field, an item, a map's key, or a map's value.
func (c *checker) value(m protoreflect.Message, f *field, e *element, v protoreflect.Value) {
	if e.of != nil && !v.Message().IsValid() {
		if e.required != "" {
			c.violated(m, f, e.required)
		}
		return
	}
	of := v
	if e.wrapped != nil {
		of = v.Message().Get(e.wrapped)
	}
	if e.ignoreEmpty && isEmpty(of) {
		return
	}
	for _, t := range e.tests {
		if reason := t(of); reason != "" {
			if c.violated(m, f, reason); c.ended {
				return
			}
		}
	}
	if e.next != nil {
		c.message(v.Message(), e.next)
	}
}

func (c *checker) list(m protoreflect.Message, f *field) {
	var list protoreflect.List
	n := 0
	if m.Has(f.of) {
		list = m.Get(f.of).List()
		n = list.Len()
	}
	if c.sized(m, f, n, "item"); c.ended || !f.size.unique && f.value.idle() {
		return
	}
	for i := range n {
		c.index(i)
		if f.size.unique && earlier(list, i) {
			if c.violated(m, f, "repeated value must contain unique items"); c.ended {
				return
			}
		}
		if c.value(m, f, &f.value, list.Get(i)); c.ended {
			return
		}
	}
}

// sized checks the number of items or pairs.
func (c *checker) sized(m protoreflect.Message, f *field, n int, of string) {
	if reason := f.size.reason(uint64(n), of); reason != "" {
		c.violated(m, f, reason)
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

func (c *checker) entries(m protoreflect.Message, f *field) {
	var entries protoreflect.Map
	n := 0
	if m.Has(f.of) {
		entries = m.Get(f.of).Map()
		n = entries.Len()
	}
	if c.sized(m, f, n, "pair"); c.ended || n == 0 || f.key.idle() && f.value.idle() {
		return
	}
	keys := make([]protoreflect.MapKey, 0, n)
	entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		c.key(k)
		if c.value(m, f, &f.key, k.Value()); c.ended {
			return
		}
		if c.value(m, f, &f.value, entries.Get(k)); c.ended {
			return
		}
	}
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
