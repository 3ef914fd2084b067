package fieldrule

import (
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// quick decides whether a message has a violation. It visits only fields that are set and counts
// the ones that must be, because most fields of Envoy's messages are not set.
type quick struct {
	frames []*frame // by depth
	depth  int
}

// quicks lends memory for checks.
var quicks = newQuicks()

func newQuicks() (borrow func(fn func(*quick) bool) bool) {
	pool := sync.Pool{New: func() any { return &quick{} }}
	return func(fn func(*quick) bool) bool {
		q := pool.Get().(*quick)
		valid := fn(q)
		pool.Put(q)
		return valid
	}
}

// frame is a message that is being checked.
type frame struct {
	q       *quick
	p       *rules
	missing int // fields and oneofs that must be set, and are not among the visited ones
	valid   bool
	visit   func(protoreflect.FieldDescriptor, protoreflect.Value) bool // the method field
}

func (q *quick) message(m protoreflect.Message, of *plan) bool {
	if !m.IsValid() {
		return true
	}
	if q.depth == len(q.frames) {
		f := &frame{q: q}
		f.visit = f.field
		q.frames = append(q.frames, f)
	}
	f := q.frames[q.depth]
	q.depth++
	f.p = of.rules()
	f.missing, f.valid = f.p.must, true
	m.Range(f.visit)
	q.depth--
	return f.valid && f.missing == 0
}

// field checks a field that is set, and reports whether it is valid.
func (r *frame) field(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	n := int(fd.Number())
	if n >= len(r.p.byNumber) {
		return true
	}
	entry := &r.p.byNumber[n]
	if entry.must {
		r.missing--
	}
	if entry.field != nil {
		r.valid = r.q.set(entry.field, v)
	}
	return r.valid
}

func (q *quick) set(f *field, v protoreflect.Value) bool {
	switch {
	case f.of.IsMap():
		valid := f.size.reason(uint64(v.Map().Len()), "") == ""
		if valid && !(f.key.idle() && f.value.idle()) {
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				valid = q.value(&f.key, k.Value()) && q.value(&f.value, v)
				return valid
			})
		}
		return valid
	case f.of.IsList():
		list := v.List()
		if f.size.reason(uint64(list.Len()), "") != "" {
			return false
		}
		if f.value.idle() && !f.size.unique {
			return true
		}
		for i := range list.Len() {
			if f.size.unique && earlier(list, i) || !q.value(&f.value, list.Get(i)) {
				return false
			}
		}
		return true
	}
	return q.value(&f.value, v)
}

func (q *quick) value(e *element, v protoreflect.Value) bool {
	return e.test(v, nil) && (e.next == nil || q.message(v.Message(), e.next))
}
