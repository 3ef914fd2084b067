package envoyfuzz

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// visit calls fn with a message and all nested messages, including packed ones. It packs a message
// again if fn reports a change.
func visit(m protoreflect.Message, fn func(protoreflect.Message) bool) (changed bool) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil || !visit(inner.ProtoReflect(), fn) {
			return false
		}
		packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner)
		a.Value = packed
		return err == nil
	}
	changed = fn(m)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		switch v := m.Get(f); {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					changed = visit(v.Message(), fn) || changed
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for j := range v.List().Len() {
				changed = visit(v.List().Get(j).Message(), fn) || changed
			}
		default:
			changed = visit(v.Message(), fn) || changed
		}
	}
	return changed
}

// editOne calls fn with a random message that fits. It returns false if there is none.
func editOne(r *rand.Rand, list []proto.Message, fits func(protoreflect.Message) bool,
	fn func(protoreflect.Message)) bool {
	count := 0
	for _, m := range list {
		visit(m.ProtoReflect(), func(m protoreflect.Message) bool {
			if fits(m) {
				count++
			}
			return false
		})
	}
	if count == 0 {
		return false
	}
	at := r.IntN(count)
	for _, m := range list {
		visit(m.ProtoReflect(), func(m protoreflect.Message) bool {
			if !fits(m) {
				return false
			}
			at--
			if at == -1 {
				fn(m)
				return true
			}
			return false
		})
	}
	return true
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }
