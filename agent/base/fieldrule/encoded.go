package fieldrule

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxDepth is the deepest nesting of messages that [Valid] decides about.
const maxDepth = 100

// unsure is the length of a value that [Valid] does not decide about.
const unsure = -1

// FirstEncoded is like [First] for a message whose wire form is known, at a fraction of the time.
// The wire form decides if both differ.
func FirstEncoded(m proto.Message, wire []byte) error {
	if Valid(m.ProtoReflect().Descriptor(), wire) {
		return nil
	}
	return First(m)
}

// Valid reports whether the wire form of a message has no violation. It visits only the fields that
// are set, because most fields of Envoy's messages are not. It returns false if it is not sure: for
// encodings that the protobuf library decodes but does not write, such as two values for one field,
// and for lists of several items that must be unique.
func Valid(of protoreflect.MessageDescriptor, wire []byte) bool {
	return planOf(of).encoded(wire, maxDepth)
}

func (p *plan) encoded(b []byte, depth int) bool {
	r := p.rules()
	if len(r.byNumber) == 0 {
		return true
	}
	if r.large || depth == 0 {
		return false
	}
	var seen uint64
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var at numbered
		if int(number) < len(r.byNumber) {
			at = r.byNumber[number]
		}
		if seen&at.bit != 0 {
			return false
		}
		seen |= at.bit
		switch {
		case at.field == nil && at.bit != 0 && typ != at.typ:
			return false
		case at.field == nil:
			n = protowire.ConsumeFieldValue(number, typ, b)
		case at.field.of.IsList() || at.field.of.IsMap():
			n = at.field.values(number, typ, b, depth)
		default:
			n = at.field.value.encoded(typ, b, depth)
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	if seen&r.must != r.must {
		return false
	}
	for _, members := range r.choices {
		if seen&members == 0 {
			return false
		}
	}
	return true
}

// values returns the length of adjacent items or entries of a field, whose first tag precedes b, or
// [unsure].
func (f *field) values(number protowire.Number, typ protowire.Type, b []byte, depth int) int {
	length, count := 0, uint64(0)
	for same := true; same; {
		n, one := 0, uint64(1)
		switch {
		case f.of.IsMap():
			n = f.entry(typ, b[length:], depth)
		case typ == protowire.BytesType && f.value.typ != typ:
			n, one = f.value.packed(b[length:])
		default:
			n = f.value.encoded(typ, b[length:], depth)
		}
		if n < 0 {
			return unsure
		}
		length, count = length+n, count+one
		next, nextType, n := protowire.ConsumeTag(b[length:])
		if same = n >= 0 && next == number; same {
			length, typ = length+n, nextType
		}
	}
	if count < f.size.least || f.size.most > 0 && count > f.size.most || f.size.unique && count > 1 {
		return unsure
	}
	return length
}

// packed returns the length of scalars in the packed form, and their number.
func (e *element) packed(b []byte) (length int, count uint64) {
	body, length := protowire.ConsumeBytes(b)
	for len(body) > 0 && length >= 0 {
		n := e.encoded(e.typ, body, 0)
		if n < 0 {
			return unsure, 0
		}
		body = body[n:]
		count++
	}
	return length, count
}

// entry returns the length of a map's entry, or [unsure]. Two entries with the same key count
// twice, which suffices because no map must have more than one.
func (f *field) entry(typ protowire.Type, b []byte, depth int) int {
	if typ != protowire.BytesType || f.size.least > 1 {
		return unsure
	}
	body, length := protowire.ConsumeBytes(b)
	if length < 0 {
		return unsure
	}
	// The deterministic form always has both, in this order.
	for number, e := range [...]*element{1: &f.key, 2: &f.value} {
		if e == nil {
			continue
		}
		next, typ, n := protowire.ConsumeTag(body)
		if n < 0 || next != protowire.Number(number) {
			return unsure
		}
		body = body[n:]
		if n = e.encoded(typ, body, depth); n < 0 {
			return unsure
		}
		body = body[n:]
	}
	if len(body) > 0 {
		return unsure
	}
	return length
}

// encoded returns the length of a value, or [unsure].
func (e *element) encoded(typ protowire.Type, b []byte, depth int) int {
	if typ != e.typ {
		return unsure
	}
	var v protoreflect.Value
	n := 0
	if e.of == nil {
		v, n = decode(e.kind, b)
	} else {
		var body []byte
		body, n = protowire.ConsumeBytes(b)
		switch {
		case n < 0:
		case e.next != nil:
			if !e.next.encoded(body, depth-1) {
				return unsure
			}
		case len(e.tests) == 0:
		case e.wrapped != nil:
			if v = e.unwrap(body); !v.IsValid() {
				return unsure
			}
		default:
			v = decodeDuration(body)
		}
	}
	if n < 0 || !e.holds(v, nil) {
		return unsure
	}
	return n
}

// unwrap returns the value in a wrapper, or no value if it is not sure.
func (e *element) unwrap(b []byte) (v protoreflect.Value) {
	if len(b) == 0 {
		return e.plain(e.wrapped.Default())
	}
	number, typ, n := protowire.ConsumeTag(b)
	if n < 0 || number != e.wrapped.Number() || typ != wireType(e.wrapped) {
		return v
	}
	b = b[n:]
	if v, n = decode(e.kind, b); n != len(b) {
		return protoreflect.Value{}
	}
	return v
}

// decode returns a scalar in the form of [element.plain], and its length.
func decode(kind protoreflect.Kind, b []byte) (v protoreflect.Value, n int) {
	switch wireTypes[kind] {
	case protowire.VarintType:
		var u uint64
		u, n = protowire.ConsumeVarint(b)
		v = ofVarint(kind, u)
	case protowire.Fixed32Type:
		var u uint32
		u, n = protowire.ConsumeFixed32(b)
		switch kind {
		case protoreflect.FloatKind:
			v = protoreflect.ValueOfFloat32(math.Float32frombits(u))
		case protoreflect.Sfixed32Kind:
			v = protoreflect.ValueOfInt32(int32(u))
		default:
			v = protoreflect.ValueOfUint32(u)
		}
	case protowire.Fixed64Type:
		var u uint64
		u, n = protowire.ConsumeFixed64(b)
		switch kind {
		case protoreflect.DoubleKind:
			v = protoreflect.ValueOfFloat64(math.Float64frombits(u))
		case protoreflect.Sfixed64Kind:
			v = protoreflect.ValueOfInt64(int64(u))
		default:
			v = protoreflect.ValueOfUint64(u)
		}
	default:
		var body []byte
		body, n = protowire.ConsumeBytes(b)
		v = protoreflect.ValueOfBytes(body)
	}
	return v, n
}

func ofVarint(kind protoreflect.Kind, u uint64) protoreflect.Value {
	switch kind {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(protowire.DecodeBool(u))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(u))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(u))
	case protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(int32(protowire.DecodeZigZag(u & math.MaxUint32)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(u))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(u))
	case protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64(protowire.DecodeZigZag(u))
	}
	return protoreflect.ValueOfUint64(u)
}

// decodeDuration returns a duration in the form of [element.plain], or no value if it is not sure.
func decodeDuration(b []byte) protoreflect.Value {
	var parts [3]int64 // by number of the field
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 || number > 2 || typ != protowire.VarintType {
			return protoreflect.Value{}
		}
		b = b[n:]
		u, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return protoreflect.Value{}
		}
		b = b[n:]
		parts[number] = int64(u)
	}
	return plainDuration(&durationpb.Duration{Seconds: parts[1], Nanos: int32(parts[2])})
}

// wireTypes holds the wire types of scalars. The others are encoded as bytes.
var wireTypes = [protoreflect.Sint64Kind + 1]protowire.Type{
	protoreflect.BoolKind: protowire.VarintType, protoreflect.EnumKind: protowire.VarintType,
	protoreflect.Int32Kind: protowire.VarintType, protoreflect.Int64Kind: protowire.VarintType,
	protoreflect.Sint32Kind: protowire.VarintType, protoreflect.Sint64Kind: protowire.VarintType,
	protoreflect.Uint32Kind: protowire.VarintType, protoreflect.Uint64Kind: protowire.VarintType,
	protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.Sfixed32Kind: protowire.Fixed32Type,
	protoreflect.FloatKind: protowire.Fixed32Type, protoreflect.Fixed64Kind: protowire.Fixed64Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType,
	protoreflect.MessageKind: protowire.BytesType, protoreflect.GroupKind: noType,
}

// noType is the wire type of values that [Valid] does not decide about.
const noType protowire.Type = -1

func wireType(fd protoreflect.FieldDescriptor) protowire.Type {
	if fd.Enum() != nil && fd.Enum().IsClosed() {
		return noType // numbers without a value are unknown fields
	}
	return wireTypes[fd.Kind()]
}
