package envoy

import (
	"iter"
	"maps"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// IsReference reports whether a field of Envoy's API refers to resources.
func IsReference(field protoreflect.FullName) bool { _, ok := targets[field]; return ok }

// References returns the fields of Envoy's API that refer to resources.
func References() iter.Seq[protoreflect.FullName] { return maps.Keys(targets) }
