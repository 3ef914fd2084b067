package danger

import "google.golang.org/protobuf/reflect/protoreflect"

// FieldReason returns why a field of Envoy's API is dangerous, also by its message; "" if it is
// harmless.
func FieldReason(fd protoreflect.FieldDescriptor) string {
	if reason := sinkOf(fd); reason != "" {
		return reason
	}
	return dangerousType(fd.ContainingMessage().FullName())
}
