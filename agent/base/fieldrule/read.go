package fieldrule

import (
	"github.com/envoyproxy/protoc-gen-validate/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// readRules reads the rules of a message type from its descriptor.
func readRules(d protoreflect.MessageDescriptor) *rules {
	out := &rules{}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		o := fd.ContainingOneof()
		if o != nil && !o.IsSynthetic() {
			continue
		}
		f := readField(fd)
		switch {
		case f.idle():
		case o != nil:
			out.optional = append(out.optional, f)
		default:
			out.fields = append(out.fields, f)
		}
	}
	for i := range d.Oneofs().Len() {
		if o := readOneof(d.Oneofs().Get(i)); o.required || len(o.fields) > 0 {
			out.oneofs = append(out.oneofs, o)
		}
	}
	out.number()
	return out
}

// number fills the part for [Valid]. The lists of fields must not change afterwards.
func (r *rules) number() {
	bit := uint64(1)
	at := func(fd protoreflect.FieldDescriptor) *numbered {
		for int(fd.Number()) >= len(r.byNumber) {
			r.byNumber = append(r.byNumber, numbered{})
		}
		n := &r.byNumber[fd.Number()]
		if n.bit == 0 {
			n.bit, n.typ = bit, wireType(fd)
			r.large = r.large || bit == 0
			bit <<= 1
		}
		return n
	}
	for i := range r.fields {
		n := at(r.fields[i].of)
		n.field = &r.fields[i]
		n.field.absent(func(string) { r.must |= n.bit })
	}
	for i := range r.optional {
		at(r.optional[i].of).field = &r.optional[i]
	}
	for i := range r.oneofs {
		o := &r.oneofs[i]
		for j := range o.fields {
			at(o.fields[j].of).field = &o.fields[j]
		}
		if o.required {
			var members uint64
			for j := range o.of.Fields().Len() {
				members |= at(o.of.Fields().Get(j)).bit
			}
			r.choices = append(r.choices, members)
		}
	}
}

func readOneof(d protoreflect.OneofDescriptor) oneof {
	out := oneof{of: d}
	if d.IsSynthetic() {
		return out
	}
	out.required, _ = proto.GetExtension(d.Options(), validate.E_Required).(bool)
	for i := range d.Fields().Len() {
		if f := readField(d.Fields().Get(i)); !f.idle() {
			out.fields = append(out.fields, f)
		}
	}
	return out
}

func readField(fd protoreflect.FieldDescriptor) field {
	out := field{of: fd}
	r, _ := proto.GetExtension(fd.Options(), validate.E_Rules).(*validate.FieldRules)
	switch {
	case fd.IsMap():
		m := r.GetMap()
		out.size = size{least: m.GetMinPairs()}
		out.key = readElement(fd.MapKey(), m.GetKeys())
		out.value = readElement(fd.MapValue(), m.GetValues())
	case fd.IsList():
		l := r.GetRepeated()
		out.size = size{least: l.GetMinItems(), most: l.GetMaxItems(), unique: l.GetUnique()}
		out.value = readElement(fd, l.GetItems())
	default:
		out.value = readElement(fd, r)
	}
	if r != nil {
		unsupported(r.ProtoReflect(), func(option string) {
			out.value.tests = append(out.value.tests, func(protoreflect.Value) string {
				return "internal error: the rule " + option + " is not supported"
			})
		})
	}
	return out
}

// readElement reads the rules r of a value of a field. They may be nil.
func readElement(fd protoreflect.FieldDescriptor, r *validate.FieldRules) element {
	out := element{of: fd.Message(), typ: wireType(fd)}
	required := r.GetMessage().GetRequired() || r.GetAny().GetRequired() || r.GetDuration().GetRequired()
	if out.of != nil && out.of.ParentFile().Package() == "google.protobuf" {
		if r.GetType() != nil && r.GetDuration() == nil && r.GetAny() == nil {
			out.wrapped, fd = out.of.Fields().Get(0), out.of.Fields().Get(0)
		}
	} else if out.of != nil && !r.GetMessage().GetSkip() && r.GetAny() == nil { // Envoy's API has AnyRules for one message
		out.next = planOf(out.of)
	}
	switch {
	case required && out.wrapped != nil:
		out.required = "value is required and must not be nil."
	case required:
		out.required = "value is required"
	}
	out.kind = fd.Kind()
	out.tests, out.ignoreEmpty = tests(fd, r)
	return out
}

// tests returns the tests of a scalar or duration, and whether an empty value passes all of them.
func tests(fd protoreflect.FieldDescriptor, r *validate.FieldRules) ([]test, bool) {
	switch t := r.GetType().(type) {
	case *validate.FieldRules_Bool:
		return boolTests(t.Bool), false
	case *validate.FieldRules_Enum:
		return enumTests(t.Enum, fd.Enum()), false
	case *validate.FieldRules_String_:
		return stringTests(t.String_), t.String_.GetIgnoreEmpty()
	case *validate.FieldRules_Bytes:
		return bytesTests(t.Bytes), false
	case *validate.FieldRules_Duration:
		return durationTests(t.Duration), false
	case *validate.FieldRules_Float:
		n := t.Float
		return numberTests(bounds[float32]{n.Lt, n.Lte, n.Gt, n.Gte}, float32Of), false
	case *validate.FieldRules_Double:
		n := t.Double
		return numberTests(bounds[float64]{n.Lt, n.Lte, n.Gt, n.Gte}, protoreflect.Value.Float), false
	case *validate.FieldRules_Int32:
		n := t.Int32
		return numberTests(bounds[int32]{n.Lt, n.Lte, n.Gt, n.Gte}, int32Of), false
	case *validate.FieldRules_Uint32:
		n := t.Uint32
		return numberTests(bounds[uint32]{n.Lt, n.Lte, n.Gt, n.Gte}, uint32Of), n.GetIgnoreEmpty()
	case *validate.FieldRules_Uint64:
		n := t.Uint64
		return numberTests(bounds[uint64]{n.Lt, n.Lte, n.Gt, n.Gte}, protoreflect.Value.Uint), false
	}
	return nil, false
}

// supported lists the options that this package implements, by the messages of validate.proto.
var supported = map[protoreflect.FullName]bool{
	"validate.BoolRules.const":              true,
	"validate.EnumRules.defined_only":       true,
	"validate.EnumRules.not_in":             true,
	"validate.StringRules.in":               true,
	"validate.StringRules.min_len":          true,
	"validate.StringRules.max_len":          true,
	"validate.StringRules.max_bytes":        true,
	"validate.StringRules.prefix":           true,
	"validate.StringRules.suffix":           true,
	"validate.StringRules.pattern":          true,
	"validate.StringRules.well_known_regex": true,
	"validate.StringRules.strict":           true,
	"validate.StringRules.ignore_empty":     true,
	"validate.BytesRules.min_len":           true,
	"validate.BytesRules.max_len":           true,
	"validate.DurationRules.required":       true,
	"validate.DurationRules.lt":             true,
	"validate.DurationRules.lte":            true,
	"validate.DurationRules.gt":             true,
	"validate.DurationRules.gte":            true,
	"validate.UInt32Rules.ignore_empty":     true,
	"validate.AnyRules.required":            true,
	"validate.MessageRules.required":        true,
	"validate.MessageRules.skip":            true,
	"validate.RepeatedRules.min_items":      true,
	"validate.RepeatedRules.max_items":      true,
	"validate.RepeatedRules.unique":         true,
	"validate.MapRules.min_pairs":           true,
}

// unsupported calls fn for each option of a rule that this package does not implement.
func unsupported(m protoreflect.Message, fn func(option string)) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := fd.FullName()
		switch bound := fd.Name() == "lt" || fd.Name() == "lte" || fd.Name() == "gt" || fd.Name() == "gte"; {
		case supported[name]:
		case fd.Message() != nil && fd.Message().FullName().Parent() == "validate":
			unsupported(v.Message(), fn)
		case bound && ordered[name.Parent()]:
		default:
			fn(string(name))
		}
		return true
	})
}

// ordered lists the messages whose limits are supported.
var ordered = map[protoreflect.FullName]bool{"validate.FloatRules": true, "validate.DoubleRules": true,
	"validate.Int32Rules": true, "validate.UInt32Rules": true, "validate.UInt64Rules": true}
