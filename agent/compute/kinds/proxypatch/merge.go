package proxypatch

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// merge merges what was written over a message, which must share nothing with others. Fields
// replace fields, messages are merged, items are appended to lists and entries set in maps, as
// protobuf merges; but
//
//   - durations, times and wrapped values replace the old one as a whole, so that 0s and false can
//     be set,
//   - a field that was given with the value of an absent one is cleared, for the same reason,
//   - packed messages of one type are merged as what they are, also in maps,
//   - thresholds of circuit breakers are merged by their priority, of which Envoy reads only the
//     first.
//
// It fails where a packed message is of an unknown type or breaks Envoy's rules afterwards.
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

// mergeInto merges a message into one that is there.
func mergeInto(dst, src protoreflect.Message) error {
	d, packed := dst.Interface().(*anypb.Any)
	if !packed {
		return mergeMessage(dst, src)
	}
	return mergePacked(d, src.Interface().(*anypb.Any))
}

// mergePacked merges a packed message into another one, or replaces it where it is of another type.
func mergePacked(dst, src *anypb.Any) error {
	if dst.TypeUrl != src.TypeUrl {
		dst.TypeUrl, dst.Value = src.TypeUrl, slices.Clone(src.Value)
		return nil
	}
	over, err := src.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s", plainError(err))
	}
	merged, err := mergeAny(dst, parsed{message: over})
	if err == nil {
		dst.Value = merged.Value
	}
	return err
}

// mergeAny returns a packed message with another message of its type merged over it.
func mergeAny(a *anypb.Any, over parsed) (*anypb.Any, error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("%s: %s", a.GetTypeUrl(), plainError(err))
	}
	if want := over.message.ProtoReflect().Descriptor().FullName(); m.ProtoReflect().Descriptor().FullName() != want {
		return nil, fmt.Errorf("the configuration is of type %s, the value of type %s",
			m.ProtoReflect().Descriptor().FullName(), want)
	}
	if err := merge(m, over); err != nil {
		return nil, err
	}
	return pack(m)
}

// pack packs a message that obeys Envoy's rules.
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

// keyed is true for the lists whose items are merged by their priority.
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

// replaced is true for messages that are one value.
func replaced(md protoreflect.MessageDescriptor) bool {
	return wellKnown(md) && md.Name() != "Any" && md.Name() != "Struct"
}

// cloned returns a value that shares nothing with the one that it was made of.
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
