package fieldrule

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
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

	// For [Valid]:
	byNumber []numbered
	must     uint64   // bits of the fields that must be set
	choices  []uint64 // bits of the members of each oneof that must be set
	large    bool     // there are not enough bits
}

// numbered is a field with rules, or a member of a oneof that must be set. The zero value is any
// other field.
type numbered struct {
	field *field // nil without own rules
	typ   protowire.Type
	bit   uint64
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
	typ         protowire.Type
	kind        protoreflect.Kind            // of the scalar, also in a wrapper
	required    string                       // the reason if a message is missing and must not be
	wrapped     protoreflect.FieldDescriptor // the field in a wrapper such as google.protobuf.StringValue
	ignoreEmpty bool
	tests       []test
	next        *plan // of the message, or nil
}

// test returns the reason why a value violates a rule, or "". The value has the form that
// [element.plain] returns.
type test func(protoreflect.Value) string

func (e *element) idle() bool { return len(e.tests) == 0 && e.required == "" && e.next == nil }

func (f *field) idle() bool {
	return f.value.idle() && f.key.idle() && f.size == size{}
}

// test calls fn for each reason why a value violates its rules, except those of the message in it.
func (e *element) test(v protoreflect.Value, fn func(reason string)) {
	if e.of != nil && !v.Message().IsValid() {
		if e.required != "" {
			fn(e.required)
		}
		return
	}
	if len(e.tests) > 0 {
		if e.wrapped != nil {
			v = v.Message().Get(e.wrapped)
		}
		e.holds(e.plain(v), fn)
	}
}

// holds calls fn, which may be nil, for each reason why a value in the form of [element.plain]
// violates its rules, and reports whether there is none. With a nil fn it stops at the first.
func (e *element) holds(v protoreflect.Value, fn func(reason string)) bool {
	if e.ignoreEmpty && isEmpty(v) {
		return true
	}
	valid := true
	for _, t := range e.tests {
		reason := t(v)
		if reason == "" {
			continue
		}
		if fn == nil {
			return false
		}
		fn(reason)
		valid = false
	}
	return valid
}

// plain returns a scalar in the form for tests: a string as bytes, and a duration in nanoseconds,
// or as no value if it is invalid.
func (e *element) plain(v protoreflect.Value) protoreflect.Value {
	switch e.kind {
	case protoreflect.StringKind:
		return protoreflect.ValueOfBytes([]byte(v.String()))
	case protoreflect.MessageKind:
		d, _ := v.Message().Interface().(*durationpb.Duration)
		return plainDuration(d)
	}
	return v
}

func plainDuration(d *durationpb.Duration) protoreflect.Value {
	if !d.IsValid() {
		return protoreflect.Value{}
	}
	return protoreflect.ValueOfInt64(int64(d.AsDuration()))
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
		f.value.test(f.of.Default(), fn)
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
