package redact_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

// served are the types that an agent renders.
var served = []proto.Message{
	&clusterv3.Cluster{}, &listenerv3.Listener{}, &endpointv3.ClusterLoadAssignment{}, &routev3.RouteConfiguration{},
	&tlsv3.Secret{},
}

// linked lists all message types of the program by name.
func linked() []protoreflect.MessageType {
	var out []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		out = append(out, t)
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	return out
}

// random generates messages.
type random struct {
	*rand.Rand
	types []protoreflect.MessageType // types for packed messages
}

func newRandom(seed uint64) *random { return &random{rand.New(rand.NewPCG(seed, 1)), linked()} }

func (r *random) one(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *random, of ...T) T { return of[r.IntN(len(of))] }

// fill sets some fields of a message up to a nesting depth.
func (r *random) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case "google.protobuf.Any":
		r.pack(m, depth)
		return
	case "google.protobuf.Duration", "google.protobuf.Timestamp":
		seconds := pick(r, 0, 1, r.Int64N(1e6), r.Int64N(4e11), -r.Int64N(10))
		nanos := pick(r, 0, 5e8, 1_500_000, 7, 120_000, r.Int32N(1e9))
		if seconds < 0 && !r.one(20) {
			nanos = -nanos
		}
		m.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(seconds))
		m.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(nanos))
		return
	case "google.protobuf.Value": // an empty Value has no JSON form
		fd := fields.Get(r.IntN(fields.Len()))
		if depth <= 0 && fd.Message() != nil {
			fd = fields.ByName("string_value")
		}
		r.set(m, fd, depth)
		return
	case "google.protobuf.FieldMask":
		paths := m.Mutable(fields.ByNumber(1)).List()
		for range r.IntN(3) {
			paths.Append(protoreflect.ValueOfString(pick(r, "a", "a_b.c_de", "x.y_z", "", "aB", "a__b", "a_1", "a_")))
		}
		return
	}
	share := 1 + r.IntN(8) // some messages are full, others nearly empty
	for i := range fields.Len() {
		if r.one(share) {
			r.set(m, fields.Get(i), depth)
		}
	}
	for _, x := range extensionsOf(m.Descriptor()) {
		if r.one(2) {
			r.set(m, x.TypeDescriptor(), depth)
		}
	}
}

func extensionsOf(d protoreflect.MessageDescriptor) []protoreflect.ExtensionType {
	if d.ExtensionRanges().Len() == 0 {
		return nil
	}
	var out []protoreflect.ExtensionType
	protoregistry.GlobalTypes.RangeExtensionsByMessage(d.FullName(), func(x protoreflect.ExtensionType) bool {
		out = append(out, x)
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.ExtensionType) int {
		return int(a.TypeDescriptor().Number() - b.TypeDescriptor().Number())
	})
	return out
}

func (r *random) pack(m protoreflect.Message, depth int) {
	if depth <= 0 || r.one(10) {
		return
	}
	t := r.types[r.IntN(len(r.types))]
	if r.one(3) { // types with a special JSON form are rare
		t, _ = protoregistry.GlobalTypes.FindMessageByName(pick[protoreflect.FullName](r,
			"google.protobuf.Any", "google.protobuf.Duration", "google.protobuf.Struct", "google.protobuf.StringValue",
			"google.protobuf.Empty", "google.protobuf.UInt32Value", "google.protobuf.FieldMask"))
	}
	inner := t.New()
	r.fill(inner, depth-1)
	body, err := proto.MarshalOptions{AllowPartial: true}.Marshal(inner.Interface())
	if err != nil {
		return
	}
	m.Set(m.Descriptor().Fields().ByNumber(1),
		protoreflect.ValueOfString(pick(r, "type.googleapis.com/", "x/y/", "")+string(t.Descriptor().FullName())))
	m.Set(m.Descriptor().Fields().ByNumber(2), protoreflect.ValueOfBytes(body))
}

func (r *random) set(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	if fd.Message() != nil && !fd.IsMap() && depth <= 0 || fd.IsMap() && fd.MapValue().Message() != nil && depth <= 0 {
		return
	}
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range r.IntN(4) {
			key := r.scalar(fd.MapKey()).MapKey()
			if fd.MapValue().Message() != nil {
				v := entries.NewValue()
				r.fill(v.Message(), depth-1)
				entries.Set(key, v)
			} else {
				entries.Set(key, r.scalar(fd.MapValue()))
			}
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range r.IntN(4) {
			if fd.Message() != nil {
				r.fill(list.AppendMutable().Message(), depth-1)
			} else {
				list.Append(r.scalar(fd))
			}
		}
	case fd.Message() != nil:
		r.fill(m.Mutable(fd).Message(), depth-1)
	default:
		m.Set(fd, r.scalar(fd))
	}
}

// scalar returns a random value, often a limit of its type.
func (r *random) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	i := pick(r, 0, 1, -1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, int64(r.Uint64()), r.Int64N(1000))
	f := pick(r, 0, math.Copysign(0, -1), 1, 0.1, -2.5, 1e-6, 1e-7, 1e-10, 1e21, 123456789012, math.MaxFloat64,
		math.SmallestNonzeroFloat64, r.NormFloat64())
	if r.one(10) {
		f = pick(r, math.NaN(), math.Inf(1), math.Inf(-1))
	}
	text := pick(r, "", "a", "outbound:127.0.0.1:20001", "\"quoted\" \\ \x00\x1f\x7f\b\f\n\r\t",
		"<&>\u2028\ufffd", "日本語🦀", strings.Repeat("long ", r.IntN(20)))
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.one(2))
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		if r.one(8) {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(i)))
		}
		return protoreflect.ValueOfEnum(values.Get(r.IntN(values.Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(i))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(i))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(i)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(i))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(f))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(f)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(append([]byte(text), byte(i)))
	default:
		return protoreflect.ValueOfString(text)
	}
}

// record is one field in wire format.
type record struct {
	num  protowire.Number
	typ  protowire.Type
	body []byte // including its length, if any
}

func records(b []byte) []record {
	var out []record
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return out
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return out
		}
		out = append(out, record{num, typ, b[n : n+m]})
		b = b[n+m:]
	}
	return out
}

func join(list []record) []byte {
	var b []byte
	for _, f := range list {
		b = append(protowire.AppendTag(b, f.num, f.typ), f.body...)
	}
	return b
}

func textRecord(num protowire.Number, body []byte) record {
	return record{num, protowire.BytesType, protowire.AppendBytes(nil, body)}
}

// mangle rewrites a message in wire format: reordered fields, split messages, packed and unpacked
// lists, replaced values, duplicate members of a oneof, and unknown fields. The result often has a
// different meaning and is sometimes invalid.
func (r *random) mangle(d protoreflect.MessageDescriptor, wire []byte, depth int) []byte {
	var out []record
	for _, f := range records(wire) {
		fd := d.Fields().ByNumber(f.num)
		switch {
		case fd == nil:
		case fd.Message() != nil && f.typ == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(f.body)
			if depth > 0 {
				inner = r.mangle(fd.Message(), inner, depth-1)
			}
			if list := records(inner); !fd.IsList() && len(list) > 1 && r.one(3) {
				cut := r.IntN(len(list))
				out = append(out, textRecord(f.num, join(list[:cut])))
				inner = join(list[cut:])
			}
			f = textRecord(f.num, inner)
			if d.FullName() == "google.protobuf.Any" {
				break
			}
			if o := fd.ContainingOneof(); o != nil && r.one(6) {
				other := o.Fields().Get(r.IntN(o.Fields().Len()))
				out = append(out, r.other(other))
			}
		case fd.IsList() && f.typ == protowire.BytesType && fd.Kind() != protoreflect.StringKind &&
			fd.Kind() != protoreflect.BytesKind && r.one(2):
			packed, _ := protowire.ConsumeBytes(f.body)
			for len(packed) > 0 { // unpack the values
				n := protowire.ConsumeFieldValue(f.num, wireOf(fd), packed)
				if n < 0 {
					break
				}
				out = append(out, record{f.num, wireOf(fd), packed[:n]})
				packed = packed[n:]
			}
			f = textRecord(f.num, nil)
		case r.one(8):
			out = append(out, r.other(fd))
		}
		out = append(out, f)
	}
	if r.one(4) {
		out = append(out, pick(r,
			record{100000, protowire.VarintType, []byte{1}},
			record{200000, protowire.StartGroupType, protowire.AppendTag(
				protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 5), 200000, protowire.EndGroupType)},
			record{protowire.Number(1 + r.IntN(20)), protowire.Fixed32Type, []byte{1, 2, 3, 4}},
			record{protowire.Number(1 + r.IntN(20)), protowire.Fixed64Type, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
			record{protowire.Number(1 + r.IntN(20)), protowire.VarintType, protowire.AppendVarint(nil, r.Uint64())},
			textRecord(protowire.Number(1+r.IntN(20)), nil),
		))
	}
	if r.one(3) {
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return join(out)
}

// other returns a different value for a field.
func (r *random) other(fd protoreflect.FieldDescriptor) record {
	if wireOf(fd) != protowire.BytesType {
		return record{fd.Number(), wireOf(fd), []byte{1, 0, 0, 0, 0, 0, 0, 0}[:map[protowire.Type]int{protowire.VarintType: 1,
			protowire.Fixed32Type: 4, protowire.Fixed64Type: 8}[wireOf(fd)]]}
	}
	return textRecord(fd.Number(), pick(r, nil, []byte("\x0a\x01a"), []byte("\x10\x01"), []byte("other")))
}

func wireOf(fd protoreflect.FieldDescriptor) protowire.Type {
	switch fd.Kind() {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	default:
		return protowire.VarintType
	}
}

// packed returns a random message in an Any, encoded.
func (r *random) packed(depth int) []byte {
	a := &anypb.Any{}
	r.pack(a.ProtoReflect(), depth)
	b, _ := proto.Marshal(a)
	return b
}
