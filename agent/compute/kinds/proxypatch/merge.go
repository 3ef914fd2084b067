package proxypatch

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// merge merges src into dst, which must not share memory with other messages. As in protobuf
// merging, scalar fields are replaced, messages are merged, list items are appended, and map
// entries are set, with these exceptions:
//
// - durations, timestamps, and wrapped values are replaced as a whole, so that 0s and false can be
// set,
// - a field that was explicitly set to its zero value is cleared, for the same reason,
// - packed messages of one type are merged by their content, also in maps,
// - thresholds of circuit breakers are merged by priority, because Envoy uses only the first of
// each.
//
// It returns an error if a packed message has an unknown type or violates Envoy's rules after
// merging.
func merge(dst proto.Message, src parsed) error {
	if src.message == nil {
		return nil
	}
	if err := mergeMessage(dst.ProtoReflect(), src.message.ProtoReflect()); err != nil {
		return err
	}
	for _, z := range src.zeros {
		z.clear(dst.ProtoReflect())
	}
	return nil
}

func mergeMessage(dst, src protoreflect.Message) error {
	fields := src.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !src.Has(fd) {
			continue
		}
		if err := mergeField(dst, fd, src.Get(fd)); err != nil {
			return fmt.Errorf("%s: %w", fd.JSONName(), err)
		}
	}
	return nil
}

func mergeField(dst protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case fd.IsList() && keyed(fd):
		return mergeKeyed(dst.Mutable(fd).List(), v.List())
	case fd.IsList():
		list := dst.Mutable(fd).List()
		for i := range v.List().Len() {
			list.Append(cloned(fd, v.List().Get(i)))
		}
	case fd.IsMap():
		return mergeMap(fd, dst.Mutable(fd).Map(), v.Map())
	case fd.Message() == nil || !dst.Has(fd) || replaced(fd.Message()):
		dst.Set(fd, cloned(fd, v))
	default:
		return mergeInto(dst.Mutable(fd).Message(), v.Message())
	}
	return nil
}

// mergeInto merges a message into an existing one.
func mergeInto(dst, src protoreflect.Message) error {
	d, packed := dst.Interface().(*anypb.Any)
	if !packed {
		return mergeMessage(dst, src)
	}
	return mergePacked(d, src.Interface().(*anypb.Any))
}

// mergePacked merges packed messages of one type, or replaces dst if the types differ.
func mergePacked(dst, src *anypb.Any) error {
	if dst.TypeUrl != src.TypeUrl {
		dst.TypeUrl, dst.Value = src.TypeUrl, slices.Clone(src.Value)
		return nil
	}
	inner, err := src.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s", plainError(err))
	}
	merged, err := mergeAny(dst, parsed{message: inner})
	if err == nil {
		dst.Value = merged.Value
	}
	return err
}

// mergeAny returns a packed message with another message of its type merged into it.
func mergeAny(a *anypb.Any, over parsed) (*anypb.Any, error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("%s: %s", a.GetTypeUrl(), plainError(err))
	}
	if want := over.message.ProtoReflect().Descriptor().FullName(); m.ProtoReflect().Descriptor().FullName() != want {
		return nil, fmt.Errorf("the configuration has type %s, and the value has type %s",
			m.ProtoReflect().Descriptor().FullName(), want)
	}
	if err := merge(m, over); err != nil {
		return nil, err
	}
	return pack(m)
}

// pack packs a message after validating it with Envoy's rules.
func pack(m proto.Message) (*anypb.Any, error) {
	if err := broken(m); err != nil {
		return nil, err
	}
	out := &anypb.Any{}
	err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true})
	return out, err
}

func mergeMap(fd protoreflect.FieldDescriptor, dst, src protoreflect.Map) error {
	value := fd.MapValue()
	for _, k := range sortedKeys(src) {
		v := src.Get(k)
		if value.Message() != nil && value.Message().FullName() == "google.protobuf.Any" && dst.Has(k) {
			if err := mergePacked(dst.Get(k).Message().Interface().(*anypb.Any),
				v.Message().Interface().(*anypb.Any)); err != nil {
				return fmt.Errorf("%q: %w", k.String(), err)
			}
			continue
		}
		dst.Set(k, cloned(value, v))
	}
	return nil
}

// keyed reports whether the items of a list are merged by priority.
func keyed(fd protoreflect.FieldDescriptor) bool {
	switch fd.FullName() {
	case "envoy.config.cluster.v3.CircuitBreakers.thresholds",
		"envoy.config.cluster.v3.CircuitBreakers.per_host_thresholds":
		return true
	}
	return false
}

func mergeKeyed(dst, src protoreflect.List) error {
next:
	for i := range src.Len() {
		item := src.Get(i).Message()
		key := item.Descriptor().Fields().ByName("priority")
		for j := range dst.Len() {
			if have := dst.Get(j).Message(); have.Get(key).Enum() == item.Get(key).Enum() {
				if err := mergeMessage(have, item); err != nil {
					return err
				}
				continue next
			}
		}
		dst.Append(protoreflect.ValueOfMessage(proto.Clone(item.Interface()).ProtoReflect()))
	}
	return nil
}

// replaced reports whether a message is replaced as a whole.
func replaced(md protoreflect.MessageDescriptor) bool {
	return wellKnown(md) && md.Name() != "Any" && md.Name() != "Struct"
}

// cloned returns a deep copy of a value.
func cloned(fd protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch {
	case fd.Message() != nil:
		return protoreflect.ValueOfMessage(proto.Clone(v.Message().Interface()).ProtoReflect())
	case fd.Kind() == protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(slices.Clone(v.Bytes()))
	}
	return v
}

// sortedKeys returns the keys of a map in a stable order.
func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
