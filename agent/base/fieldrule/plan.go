package fieldrule

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// plan holds the rules of a message type. There are thousands of types, so its rules are read when
// the first message of the type is checked.
type plan struct {
	of   protoreflect.MessageDescriptor
	read atomic.Pointer[rules]
}

// rules holds the rules of a message type.
type rules struct {
	fields   []field // outside of oneofs
	oneofs   []oneof
	optional []field // with the keyword optional

	// For [quick], by the number of the field:
	byNumber []numbered
	must     int // number of fields and oneofs that must be set
}

// numbered is a field with a rule, or of a oneof with one.
type numbered struct {
	field *field // nil without own rules
	must  bool   // the field, or a field of its oneof, must be set
}

type oneof struct {
	of       protoreflect.OneofDescriptor
	required bool
	fields   []field
}

// field is a field with rules, or with messages that may have rules.
type field struct {
	of    protoreflect.FieldDescriptor
	value element // of the value, of each item of a list, or of each value of a map
	key   element // of each key of a map
	size  size    // of a list or map
}

// size holds the rules of a list or map.
type size struct {
	least, most uint64 // 0 is unlimited
	unique      bool
}

// element holds the rules of one value.
type element struct {
	of          protoreflect.MessageDescriptor // nil for a scalar
	required    string                         // the reason if a message is missing and must not be
	wrapped     protoreflect.FieldDescriptor   // the field in a wrapper such as google.protobuf.StringValue
	ignoreEmpty bool
	tests       []test
	next        *plan // of the message, or nil
}

// test returns the reason why a value violates a rule, or "".
type test func(protoreflect.Value) string

func (e *element) idle() bool { return len(e.tests) == 0 && e.required == "" && e.next == nil }

func (f *field) idle() bool {
	return f.value.idle() && f.key.idle() && f.size == size{}
}

// test calls fn for each reason why a value violates its rules, except those of the message in it,
// until fn returns false. A nil fn returns false. It returns false if a call did.
func (e *element) test(v protoreflect.Value, fn func(reason string) bool) bool {
	if e.of != nil && !v.Message().IsValid() {
		return e.required == "" || fn != nil && fn(e.required)
	}
	if e.wrapped != nil {
		v = v.Message().Get(e.wrapped)
	}
	if e.ignoreEmpty && isEmpty(v) {
		return true
	}
	for _, t := range e.tests {
		if reason := t(v); reason != "" && (fn == nil || !fn(reason)) {
			return false
		}
	}
	return true
}

// absent calls fn for each reason why the field must be set.
func (f *field) absent(fn func(reason string)) {
	reason := ""
	switch {
	case f.of.IsMap():
		reason = f.size.reason(0, "pair")
	case f.of.IsList():
		reason = f.size.reason(0, "item")
	case f.of.Message() != nil:
		reason = f.value.required
	default:
		f.value.test(f.of.Default(), func(reason string) bool { fn(reason); return true })
	}
	if reason != "" {
		fn(reason)
	}
}

func (o *oneof) field(of protoreflect.FieldDescriptor) *field {
	for i := range o.fields {
		if o.fields[i].of == of {
			return &o.fields[i]
		}
	}
	return nil
}

// planOf returns the plan of a message type. The plans depend only on the descriptors, so all
// agents of a process may share them.
var planOf = newPlans()

func newPlans() func(protoreflect.MessageDescriptor) *plan {
	var plans sync.Map
	return func(d protoreflect.MessageDescriptor) *plan {
		p, ok := plans.Load(d)
		if !ok {
			p, _ = plans.LoadOrStore(d, &plan{of: d})
		}
		return p.(*plan)
	}
}

// rules returns the rules of the type.
func (p *plan) rules() *rules {
	r := p.read.Load()
	if r == nil {
		r = readRules(p.of)
		p.read.Store(r)
	}
	return r
}
