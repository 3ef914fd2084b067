package proxypatch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/envoyproxy/protoc-gen-validate/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
)

// generated is the validation code that protoc-gen-validate generates.
type generated interface {
	proto.Message
	Validate() error
	ValidateAll() error
}

// flatten lists the violations in an error of generated code as "fields: reason". Fields have their
// names in Go, without case and underscores.
func flatten(err error, path string, out []string) []string {
	if all, ok := err.(interface{ AllErrors() []error }); ok {
		for _, e := range all.AllErrors() {
			out = flatten(e, path, out)
		}
		return out
	}
	e := err.(interface {
		Field() string
		Reason() string
		Cause() error
	})
	path += "/" + e.Field()
	if _, nested := e.Cause().(interface{ AllErrors() []error }); nested {
		return flatten(e.Cause(), path, out)
	}
	return append(out, plain(path)+": "+e.Reason())
}

func plain(path string) string { return strings.ToLower(strings.ReplaceAll(path, "_", "")) }

// found lists violations in the same form.
func found(m proto.Message) []string {
	var out []string
	fieldrule.Each(m, func(v fieldrule.Violation) {
		path := ""
		for _, s := range v.Path {
			switch {
			case s.Field == nil:
				path += "/" + string(v.Oneof.Name())
			case s.Index >= 0:
				path += fmt.Sprintf("/%s[%d]", s.Field.Name(), s.Index)
			case s.Key.IsValid():
				path += fmt.Sprintf("/%s[%v]", s.Field.Name(), s.Key.Interface())
			default:
				path += "/" + string(s.Field.Name())
			}
		}
		out = append(out, plain(path)+": "+v.Reason)
	})
	return out
}

// drawing draws messages with values at and beyond the limits of rules.
type drawing struct{ *rand.Rand }

var (
	strs = []string{"", "a", "ab", "x-a", ":a", "A b", "a\nb", "a\x00", "a\x7f", "a\tb", "é", "http", "/a", "a.mmdb",
		"internal", "UH", "#", "2025-11-25", strings.Repeat("a", 60), strings.Repeat("é", 130), strings.Repeat("b", 300)}
	numbers   = []int64{0, 1, 2, 3, 10, 99, 100, 101, 199, 200, 599, 600, 65535, 65536, 1 << 30, math.MaxInt32, -1, -100}
	durations = []*durationpb.Duration{{}, {Seconds: 1}, {Nanos: 1000}, {Nanos: 1000000}, {Seconds: -1},
		{Seconds: 1, Nanos: -1}, {Seconds: 3600}, {Seconds: 1 << 40}, {Nanos: 20000000}, {Seconds: 86400}}
)

func pick[T any](d drawing, list []T) T { return list[d.IntN(len(list))] }

func (d drawing) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	n := pick(d, numbers)
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n > 10)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(min(n, 40)))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(pick(d, strs))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(pick(d, strs)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) / pick(d, []float32{1, 10, 0}))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) / pick(d, []float64{1, 10, 0}))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	}
	return protoreflect.ValueOfInt64(n)
}

// value draws a value into v, which is mutable for messages.
func (d drawing) value(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) protoreflect.Value {
	if fd.Message() == nil {
		return d.scalar(fd)
	}
	if x, ok := v.Message().Interface().(*durationpb.Duration); ok {
		proto.Merge(x, pick(d, durations))
		return v
	}
	d.message(v.Message(), depth-1)
	return v
}

func (d drawing) message(m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		chance := 2
		if o := fd.ContainingOneof(); o != nil {
			chance = 1 + o.Fields().Len()
		}
		if d.IntN(chance) == 0 || depth < 0 && fd.Message() != nil && d.IntN(3) > 0 {
			continue
		}
		if depth < -1 && fd.Message() != nil {
			continue
		}
		d.field(m, fd, depth)
	}
}

// field draws a value of a field, in addition to the one it has.
func (d drawing) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	switch {
	case fd.IsMap():
		for range d.IntN(3) {
			entries := m.Mutable(fd).Map()
			entries.Set(d.scalar(fd.MapKey()).MapKey(), d.value(fd.MapValue(), entries.NewValue(), depth))
		}
	case fd.IsList():
		for range d.IntN(4) {
			list := m.Mutable(fd).List()
			list.Append(d.value(fd, list.NewElement(), depth))
		}
	case fd.Message() != nil:
		d.value(fd, m.Mutable(fd), depth)
	default:
		m.Set(fd, d.scalar(fd))
	}
}

// repair draws fields anew that have violations. Most messages are valid afterwards.
func (d drawing) repair(m proto.Message) {
	for range 12 {
		var repairs []func()
		fieldrule.Each(m, func(v fieldrule.Violation) {
			fd := v.Field
			if fd == nil {
				fd = v.Oneof.Fields().Get(d.IntN(v.Oneof.Fields().Len()))
			}
			repairs = append(repairs, func() {
				v.In.Clear(fd)
				d.field(v.In, fd, -1)
			})
		})
		for _, r := range repairs {
			r()
		}
	}
}

// hasUnique reports whether a list in a message, without those in lists, has several items that
// must be unique.
func hasUnique(m protoreflect.Message) (found bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		r, _ := proto.GetExtension(fd.Options(), validate.E_Rules).(*validate.FieldRules)
		found = fd.IsList() && v.List().Len() > 1 && r.GetRepeated().GetUnique() ||
			fd.Message() != nil && !fd.IsList() && !fd.IsMap() && hasUnique(v.Message())
		return !found
	})
	return found
}

// TestFieldRules compares violations with those of generated validation code, for every message
// type that a config can contain. The check of the wire form must come to the same result.
func TestFieldRules(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	d := drawing{rand.New(rand.NewPCG(26, 1))}
	var types []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		types = append(types, mt)
		return true
	})
	slices.SortFunc(types, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	compared, invalid, unsure, reasons := 0, 0, 0, map[string]bool{}
	for _, mt := range types {
		m, ok := mt.New().Interface().(generated)
		if !ok {
			continue
		}
		for round := range rounds {
			proto.Reset(m)
			d.message(m.ProtoReflect(), round%3)
			if round%2 == 1 {
				d.repair(m)
			}
			var want []string
			if err := m.ValidateAll(); err != nil {
				want = flatten(err, "", nil)
			}
			got := found(m)
			if !slices.Equal(got, want) {
				t.Fatalf("%s\n%v\ngot  %q\nwant %q", mt.Descriptor().FullName(), m, got, want)
			}
			if first := fieldrule.First(m); (first == nil) != (m.Validate() == nil) ||
				first != nil && !strings.HasSuffix(first.Error(), got[0][strings.Index(got[0], ": "):]) {
				t.Fatalf("%s\n%v\nFirst is %v, of %q", mt.Descriptor().FullName(), m, first, got)
			}
			wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			switch valid := fieldrule.Valid(mt.Descriptor(), wire); {
			case valid && len(want) > 0:
				t.Fatalf("%s\n%v\nis valid in wire form, but has %q", mt.Descriptor().FullName(), m, want)
			case !valid && len(want) == 0:
				if unsure++; !hasUnique(m.ProtoReflect()) {
					t.Fatalf("%s\n%v\nis not valid in wire form", mt.Descriptor().FullName(), m)
				}
			}
			compared++
			if len(want) > 0 {
				invalid++
			}
			for _, r := range want {
				reasons[r[strings.Index(r, ": "):]] = true
			}
		}
	}
	if compared < 1000*rounds || invalid < compared/5 || invalid > compared/2 || len(reasons) < 100 ||
		unsure > compared/1000 {
		t.Errorf("compared %d messages, %d invalid, %d unsure, %d reasons", compared, invalid, unsure, len(reasons))
	}
}
