package danger

import (
	"errors"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// KeyIn returns the JSON Pointer to the first inline key or password of an encoded resource, or
// false if it has none. A message that cannot be decoded counts as a key.
func KeyIn(typeURL string, body []byte) (string, bool) {
	m, err := (&anypb.Any{TypeUrl: typeURL, Value: body}).UnmarshalNew()
	if err != nil {
		return "", true
	}
	path := keyPath(m.ProtoReflect(), false)
	return jsonpatch.FormatPointer(path), path != nil
}

// keyPath returns the path to the first inline key of a message, or nil. hidden is set for a
// message in a sensitive field.
func keyPath(m protoreflect.Message, hidden bool) []string {
	if a, ok := m.Interface().(*anypb.Any); ok {
		return packedKeyPath(a, hidden)
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		if path := keyPathOf(fd, m.Get(fd), hidden || sensitive(fd)); path != nil {
			return append([]string{fd.JSONName()}, path...)
		}
	}
	return nil
}

// packedKeyPath is keyPath for a packed message. Content of an unknown type is not examined, except
// in a sensitive field.
func packedKeyPath(a *anypb.Any, hidden bool) []string {
	inner, err := a.UnmarshalNew()
	switch {
	case err == nil:
		return keyPath(inner.ProtoReflect(), hidden)
	case errors.Is(err, protoregistry.NotFound) && !hidden && !secret.HoldsKey(string(a.Value)):
		return nil
	}
	return []string{}
}

// keyPathOf is keyPath for the value of a field.
func keyPathOf(fd protoreflect.FieldDescriptor, v protoreflect.Value, hidden bool) (path []string) {
	switch {
	case fd.IsList():
		for i := range v.List().Len() {
			if path := valueKeyPath(fd, v.List().Get(i), hidden); path != nil {
				return append([]string{strconv.Itoa(i)}, path...)
			}
		}
	case fd.IsMap():
		var first string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			below := valueKeyPath(fd.MapValue(), v, hidden)
			if below != nil && (path == nil || k.String() < first) {
				first, path = k.String(), append([]string{k.String()}, below...)
			}
			return true
		})
	default:
		return valueKeyPath(fd, v, hidden)
	}
	return path
}

// valueKeyPath is keyPath for one value.
func valueKeyPath(fd protoreflect.FieldDescriptor, v protoreflect.Value, hidden bool) []string {
	switch {
	case fd.Message() != nil:
		return keyPath(v.Message(), hidden)
	case fd.Kind() == protoreflect.BytesKind && (hidden && len(v.Bytes()) > 0 || secret.HoldsKey(string(v.Bytes()))),
		fd.Kind() == protoreflect.StringKind && (secret.HoldsKey(v.String()) ||
			hidden && v.String() != "" && !isSource(fd)):
		return []string{}
	}
	return nil
}

// isSource reports whether a text in a sensitive field names the source of the secret.
func isSource(fd protoreflect.FieldDescriptor) bool {
	name := string(fd.Name())
	return slices.Contains(sourceFields, name) || name == "filename" || name == "environment_variable" ||
		fd.ContainingMessage().FullName() == "envoy.config.core.v3.WatchedDirectory"
}
