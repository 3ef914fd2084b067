package wirejson

import (
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// message is what rendering has to know of a message type. Fields are added when they are met first: of the thousands
// that Envoy's API has, a config uses a few hundred.
type message struct {
	desc   protoreflect.MessageDescriptor
	form   form
	dense  []*field // by number, nil for one that was not met yet
	sparse map[protowire.Number]*field
}

// maxDense bounds the numbers of the fields that are found by index.
const maxDense = 255

type field struct {
	number   protowire.Number
	name     string // `,"name":`
	jsonName string
	order    int // by declaration; extensions come last, by name
	kind     protoreflect.Kind
	wire     protowire.Type // of a single value; -1 for a field that is not known
	packable bool
	isList   bool
	isMap    bool // message is its entries
	presence bool // zero is a value
	utf8     bool // a text that is none is refused
	oneof    int  // 1 + its index, 0 for none
	message  *message
	values   protoreflect.EnumValueDescriptors
	isNull   bool // google.protobuf.NullValue
	secrecy  Secrecy
}

// extensions is the order of the first extension.
const extensions = 1 << 30

// unknown is a field that no type of the program declares. Like protojson, rendering passes over it.
var unknown = &field{wire: -1}

// typeOf returns what is known of a type.
func (r *Renderer) typeOf(d protoreflect.MessageDescriptor) *message {
	m := r.messages[d]
	if m == nil {
		m = &message{desc: d, form: formOf(d)}
		top := protowire.Number(0)
		for i := range d.Fields().Len() {
			if n := d.Fields().Get(i).Number(); n <= maxDense {
				top = max(top, n)
			}
		}
		m.dense = make([]*field, top+1)
		r.messages[d] = m
	}
	return m
}

// typeByURL returns what is known of the type of an Any.
func (r *Renderer) typeByURL(url []byte) (*message, error) {
	if m := r.urls[string(url)]; m != nil {
		return m, nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(string(url))
	if err != nil {
		return nil, fmt.Errorf("the type %q is not known: %w", url, err)
	}
	m := r.typeOf(t.Descriptor())
	r.urls[string(url)] = m
	return m, nil
}

// field returns the field of a number.
func (r *Renderer) field(m *message, n protowire.Number) *field {
	if int(n) < len(m.dense) {
		if m.dense[n] == nil {
			m.dense[n] = r.newField(m.desc, n)
		}
		return m.dense[n]
	}
	if f := m.sparse[n]; f != nil {
		return f
	}
	f := r.newField(m.desc, n)
	if f != unknown { // of those there may be any number
		if m.sparse == nil {
			m.sparse = map[protowire.Number]*field{}
		}
		m.sparse[n] = f
	}
	return f
}

func (r *Renderer) newField(d protoreflect.MessageDescriptor, n protowire.Number) *field {
	fd := d.Fields().ByNumber(n)
	if fd == nil && d.ExtensionRanges().Has(n) {
		if x, err := protoregistry.GlobalTypes.FindExtensionByNumber(d.FullName(), n); err == nil {
			fd = x.TypeDescriptor()
		}
	}
	if fd == nil {
		return unknown
	}
	f := &field{
		number:   n,
		jsonName: fd.JSONName(),
		order:    fd.Index(),
		kind:     fd.Kind(),
		wire:     wireType(fd.Kind()),
		isList:   fd.IsList(),
		isMap:    fd.IsMap(),
		presence: fd.HasPresence(),
		utf8:     enforcesUTF8(fd),
		secrecy:  r.secrecy(fd),
	}
	f.name = string(append(quote([]byte{','}, []byte(f.jsonName)), ':'))
	if fd.IsExtension() {
		f.order = extensions
	}
	f.packable = f.isList && f.wire != protowire.BytesType && f.wire != protowire.StartGroupType
	if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
		f.oneof = o.Index() + 1
	}
	if fd.Message() != nil {
		f.message = r.typeOf(fd.Message())
	}
	if e := fd.Enum(); e != nil {
		f.values = e.Values()
		f.isNull = e.FullName() == "google.protobuf.NullValue"
	}
	return f
}

// hides reports whether the values of a field are secret, in a message that is secret or not.
func (f *field) hides(around bool) bool {
	switch f.secrecy {
	case Hide:
		return true
	case Show:
		return false
	default:
		return around
	}
}

func (f *field) isText() bool {
	return f.kind == protoreflect.StringKind || f.kind == protoreflect.BytesKind
}

// compare orders fields as protojson writes them.
func compare(a, b *field) int {
	if c := cmp.Compare(a.order, b.order); c != 0 || a.order < extensions {
		return c
	}
	return strings.Compare(a.jsonName, b.jsonName)
}

func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	default:
		return protowire.VarintType
	}
}

// enforcesUTF8 reports whether a message is refused as a whole when a text is no UTF-8. In proto2 only its rendering is.
func enforcesUTF8(fd protoreflect.FieldDescriptor) bool {
	if fd.ParentFile().Syntax() == protoreflect.Editions {
		e, ok := fd.(interface{ EnforceUTF8() bool })
		return ok && e.EnforceUTF8()
	}
	return fd.ParentFile().Syntax() == protoreflect.Proto3
}
