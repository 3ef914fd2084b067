package envoybin

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxMessageDepth bounds how deep messages stand in each other; protobuf itself takes 10,000.
const maxMessageDepth = 200

// eachMessage calls visit for a message and for all in it, the outer ones first, those that are packed in an Any too.
// What visit changes stays changed. A packed message of a type that is not known is passed over.
func eachMessage(m proto.Message, visit func(proto.Message)) error {
	return walkMessage(m.ProtoReflect(), visit, 0)
}

func walkMessage(m protoreflect.Message, visit func(proto.Message), depth int) error {
	if depth > maxMessageDepth {
		return fmt.Errorf("messages stand in each other more than %d deep", maxMessageDepth)
	}
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return nil
		}
		if err := walkMessage(inner.ProtoReflect(), visit, depth+1); err != nil {
			return err
		}
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner)
		packed.Value = body
		return err
	}
	visit(m.Interface())
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					err = walkMessage(v.Message(), visit, depth+1)
					return err == nil
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = walkMessage(v.List().Get(i).Message(), visit, depth+1)
			}
		default:
			err = walkMessage(v.Message(), visit, depth+1)
		}
		return err == nil
	})
	return err
}
