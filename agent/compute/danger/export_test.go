package danger

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// FieldReason returns why a field of Envoy's API is dangerous, also by its message; "" if it is
// harmless.
func FieldReason(fd protoreflect.FieldDescriptor) string {
	if reason := sinkOf(fd); reason != "" {
		return reason
	}
	return dangerousType(fd.ContainingMessage().FullName())
}

// SinksIn returns the dangerous fields and messages of a decoded message with their values. It is
// independent of the search in documents, except for the list of sinks.
func SinksIn(m proto.Message) (out []string) {
	var visit func(m protoreflect.Message)
	visit = func(m protoreflect.Message) {
		if a, ok := m.Interface().(*anypb.Any); ok {
			if inner, err := a.UnmarshalNew(); err == nil {
				m = inner.ProtoReflect()
			}
		}
		if dangerousType(m.Descriptor().FullName()) != "" {
			out = append(out, fmt.Sprint(m.Descriptor().FullName(), m.Interface()))
			return
		}
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case sinkOf(fd) != "":
				out = append(out, fmt.Sprint(fd.FullName(), v))
			case fd.IsMap() && fd.MapValue().Message() != nil:
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { visit(v.Message()); return true })
			case fd.IsList() && fd.Message() != nil:
				for i := range v.List().Len() {
					visit(v.List().Get(i).Message())
				}
			case fd.Message() != nil && !fd.IsMap():
				visit(v.Message())
			}
			return true
		})
	}
	visit(m.ProtoReflect())
	return out
}
