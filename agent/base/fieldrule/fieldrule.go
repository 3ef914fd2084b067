// Package fieldrule checks protobuf messages against the validate.rules options of their fields,
// which Envoy enforces when it decodes a message.
//
// It reads the options from the descriptors. The validation code that protoc-gen-validate generates
// does the same, but has 13 MB for Envoy's API. The linker drops that code as long as the program
// calls no method Validate() error through an interface.
//
// It supports the options that Envoy's API uses. A test of the plugin of MeshProxyPatch compares it
// with the generated code for every message type. The functions are safe for concurrent use, and no
// input makes them panic.
package fieldrule

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Violation is a value that violates a rule.
type Violation struct {
	// In is the message that has the field or oneof.
	In protoreflect.Message
	// Field is the field, or nil for a oneof without a value.
	Field protoreflect.FieldDescriptor
	Oneof protoreflect.OneofDescriptor
	// Path leads from the checked message to the field or oneof. It is valid until the callback
	// returns.
	Path []Step
	// Reason completes a sentence about the field, such as "value is required".
	Reason string
}

// Step is a field on the path to a value.
type Step struct {
	Field protoreflect.FieldDescriptor // nil for the oneof of a violation
	Index int                          // index into a list, or -1
	Key   protoreflect.MapKey          // key of a map, if valid
}

// First returns an error for the first violation in a message, or nil. Messages inside of a
// google.protobuf.Any are not checked.
func First(m proto.Message) error {
	var err error
	c := checker{found: func(v Violation) {
		if err == nil {
			err = v.err()
		}
	}}
	c.message(m.ProtoReflect(), planOf(m.ProtoReflect().Descriptor()))
	return err
}

// Each calls fn for every violation in a message, in a fixed order. Messages inside of a
// google.protobuf.Any are not checked.
func Each(m proto.Message, fn func(Violation)) {
	c := checker{found: fn}
	c.message(m.ProtoReflect(), planOf(m.ProtoReflect().Descriptor()))
}

func (v Violation) err() error {
	var b strings.Builder
	for _, s := range v.Path {
		if s.Field == nil {
			break
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.Field.JSONName())
		switch {
		case s.Index >= 0:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case s.Key.IsValid():
			b.WriteString("[" + strconv.Quote(s.Key.String()) + "]")
		}
	}
	if v.Oneof != nil {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(v.Oneof.Name()))
	}
	return fmt.Errorf("invalid %s: %s: %s", v.In.Descriptor().Name(), b.String(), v.Reason)
}
