package proxypatch

import (
	"encoding/json"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// parse reads the text of a value into a message: YAML or JSON in the JSON form of protobuf, where no field may be
// unknown and every packed message must be of a known type. Then it checks Envoy's rules for fields; see
// [envoy.CheckFields] for partial. It reports every fault with its path and returns false when there was one, else also the value as written.
func parse(v *resource.Validator, text string, m proto.Message, partial bool) (p parsed, tree any, ok bool) {
	b := v.Embedded(text)
	if b == nil {
		return parsed{}, nil, false
	}
	tree, err := jsonpatch.Decode(b)
	if err != nil {
		v.Faultf("not JSON: %v", err)
		return parsed{}, nil, false
	}
	if !read(v, b, tree, m) {
		return parsed{}, nil, false
	}
	if !report(v, load.CheckFields(m, partial)) {
		return parsed{}, nil, false
	}
	return parsed{message: m, zeros: zeros(tree, m.ProtoReflect())}, tree, true
}

// read fills a message with JSON, of which tree is the decoded form.
func read(v *resource.Validator, b []byte, tree any, m proto.Message) bool {
	err := protojson.Unmarshal(b, m)
	if err == nil {
		return true
	}
	l := locator{}
	if l.message(v, tree, m.ProtoReflect().Type()); !l.found {
		v.Faultf("not a %s: %s", m.ProtoReflect().Descriptor().Name(), plainError(err))
	}
	return false
}

// protoPrefix is what the protobuf library puts before its reasons; its white space varies on purpose.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// plainError is the reason of the protobuf library in words that are always the same.
func plainError(err error) string {
	return strings.ReplaceAll(protoPrefix.ReplaceAllString(err.Error(), ""), "\u00a0", " ")
}

// zero is the way to a field that was given with the value that an absent one has, through messages, entries of maps and
// packed messages.
type zero []zeroStep

type zeroStep struct {
	field protoreflect.FieldDescriptor
	key   protoreflect.MapKey // of an entry
}

// zeros finds such fields: merging messages would pass over them, and whoever writes "false" wants false.
func zeros(tree any, m protoreflect.Message) []zero {
	o, ok := tree.(map[string]any)
	if !ok {
		return nil
	}
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return nil
		}
		return zeros(tree, inner.ProtoReflect())
	}
	var out []zero
	within := func(s zeroStep, value any, m protoreflect.Message) {
		for _, z := range zeros(value, m) {
			out = append(out, append(zero{s}, z...))
		}
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		switch value := given(o, fd); {
		case value == nil || fd.IsList():
		case fd.IsMap():
			entries, _ := value.(map[string]any)
			m.Get(fd).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if fd.MapValue().Message() != nil && packed(fd.MapValue().Message()) {
					within(zeroStep{fd, k}, entries[k.String()], v.Message())
				}
				return true
			})
		case fd.Message() == nil && !fd.HasPresence() && !m.Has(fd):
			out = append(out, zero{{field: fd}})
		case fd.Message() != nil && m.Has(fd) && (!wellKnown(fd.Message()) || packed(fd.Message())):
			within(zeroStep{field: fd}, value, m.Get(fd).Message())
		}
	}
	return out
}

// clear takes the value of the field out of a message.
func (z zero) clear(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return
		}
		z.clear(inner.ProtoReflect())
		if b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(inner); err == nil {
			a.Value = b
		}
		return
	}
	switch s := z[0]; {
	case len(z) == 1:
		m.Clear(s.field)
	case !m.Has(s.field):
	case !s.key.IsValid():
		z[1:].clear(m.Mutable(s.field).Message())
	default:
		if entries := m.Mutable(s.field).Map(); entries.Has(s.key) {
			z[1:].clear(entries.Mutable(s.key).Message())
		}
	}
}

// given returns the value that an object gives to a field, under either of its names.
func given(o map[string]any, fd protoreflect.FieldDescriptor) any {
	if v, ok := o[fd.JSONName()]; ok {
		return v
	}
	return o[string(fd.Name())]
}

// wellKnown is true for the messages that have a JSON form of their own.
func wellKnown(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Package() == "google.protobuf"
}

// packed is true for the message that packs others.
func packed(md protoreflect.MessageDescriptor) bool { return wellKnown(md) && md.Name() == "Any" }

// probe returns the error of giving one field of a message a value, nil when it fits.
func probe(mt protoreflect.MessageType, name string, value any) error {
	b, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{AllowPartial: true}.Unmarshal(b, mt.New().Interface())
}
