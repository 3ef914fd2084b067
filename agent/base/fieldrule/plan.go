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
