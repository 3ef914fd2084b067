package proxypatch

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// parse parses a value into a message: YAML or JSON in protobuf's JSON form, without unknown fields
// and with packed messages of known types only. Then it validates Envoy's field rules; see
// [check.CheckFields] for partial. It reports every fault with its path and returns false if there
// is one. tree is the decoded JSON.
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
	if !report(v, check.CheckFields(m, partial)) {
		return parsed{}, nil, false
	}
	return parsed{message: m, zeros: zeros(tree, m.ProtoReflect())}, tree, true
}

// read fills a message from JSON. tree is the decoded JSON, whose durations it converts.
func read(v *resource.Validator, b []byte, tree any, m proto.Message) bool {
	if convertDurations(tree, m.ProtoReflect().Descriptor()) {
		if converted, err := json.Marshal(tree); err == nil {
			b = converted
		}
	}
	err := protojson.Unmarshal(b, m)
	if err == nil {
		return true
	}
	l := locator{}
	if l.message(v, tree, m.ProtoReflect().Type()); !l.found {
		reason := plainError(err)
		if shown := (secret.EnvoyValue{JSON: b}).Shown(); !bytes.Equal(shown, b) {
			reason = "the reason is not shown, because it may contain a secret"
		}
		v.Faultf("not a %s: %s", m.ProtoReflect().Descriptor().Name(), reason)
	}
	return false
}

// protoPrefix matches the prefix of the protobuf library's errors, whose white space varies
// deliberately.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// plainError returns the error text of the protobuf library in a stable form.
func plainError(err error) string {
	return strings.ReplaceAll(protoPrefix.ReplaceAllString(err.Error(), ""), "\u00a0", " ")
}

// zero is the path to a field that was explicitly set to its zero value, through messages, map
// entries, and packed messages.
type zero []zeroStep

type zeroStep struct {
	field protoreflect.FieldDescriptor
	key   protoreflect.MapKey // of a map entry
}

// zeros finds the fields of a message that tree sets to their zero value, because merging messages
// would ignore them.
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

// clear clears the field in a message.
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

// given returns the value of a field in an object, by either of its names.
func given(o map[string]any, fd protoreflect.FieldDescriptor) any {
	if v, ok := o[fd.JSONName()]; ok {
		return v
	}
	return o[string(fd.Name())]
}

// wellKnown reports whether a message has a special JSON form.
func wellKnown(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Package() == "google.protobuf"
}

// packed reports whether a message packs others.
func packed(md protoreflect.MessageDescriptor) bool { return wellKnown(md) && md.Name() == "Any" }

// probe returns the error of setting one field of a message to a value, or nil.
func probe(mt protoreflect.MessageType, name string, value any) error {
	b, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{AllowPartial: true}.Unmarshal(b, mt.New().Interface())
}

// typeKey is the key of the type in a packed message.
const typeKey = "@type"

// locator finds the path of a value that the protobuf library has rejected.
type locator struct {
	found bool
}

// hiddenFault is the message for a value that must not be shown.
const hiddenFault = "the value is invalid for the field; it is not shown, because it may be a secret"

func (l *locator) faultf(v *resource.Validator, format string, args ...any) {
	l.found = true
	if v.Hides() {
		v.Faultf("%s", hiddenFault)
		return
	}
	v.Faultf(format, args...)
}

// message searches the fields of a message.
func (l *locator) message(v *resource.Validator, tree any, mt protoreflect.MessageType) {
	md := mt.Descriptor()
	o, ok := tree.(map[string]any)
	switch {
	case !ok:
		l.faultf(v, "%s is given, and a mapping of the fields of %s is required", describe(tree), md.Name())
		return
	case md.FullName() == "google.protobuf.Any":
		l.packed(v, o)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fd := fieldNamed(md, key)
		if fd == nil {
			l.unknown(v.Field(key), md, key)
			continue
		}
		if o[key] != nil && probe(mt, key, o[key]) != nil {
			l.field(v.Field(key), o[key], mt, fd)
		}
	}
}

// field searches a field with an invalid value.
func (l *locator) field(v *resource.Validator, value any, mt protoreflect.MessageType,
	fd protoreflect.FieldDescriptor) {
	name := fd.JSONName()
	switch {
	case fd.IsList():
		items, ok := value.([]any)
		if !ok {
			l.faultf(v, "%s is given, and a list is required", describe(value))
			return
		}
		for i, item := range items {
			if err := probe(mt, name, []any{item}); err != nil {
				l.value(v.Index(i), item, mt.New().NewField(fd).List().NewElement(), fd, err)
			}
		}
	case fd.IsMap():
		entries, ok := value.(map[string]any)
		if !ok {
			l.faultf(v, "%s is given, and a mapping is required", describe(value))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			if err := probe(mt, name, map[string]any{k: entries[k]}); err != nil {
				l.value(v.Key(k), entries[k], mt.New().NewField(fd).Map().NewValue(), fd.MapValue(), err)
			}
		}
	default:
		if err := probe(mt, name, value); err != nil {
			l.value(v, value, mt.New().NewField(fd), fd, err)
		}
	}
}

// value searches one invalid value. like is an empty value of the required type.
func (l *locator) value(v *resource.Validator, value any, like protoreflect.Value, fd protoreflect.FieldDescriptor,
	err error) {
	md := fd.Message()
	if md != nil && (!wellKnown(md) || md.Name() == "Any") {
		was := l.found
		l.found = false
		l.message(v, value, like.Message().Type())
		if l.found {
			return
		}
		l.found = was
	}
	reason := plainError(err)
	if e := fd.Enum(); e != nil {
		reason += ": give one of " + enumNames(e)
	}
	l.faultf(v, "%s", reason)
}

// packed searches a packed message.
func (l *locator) packed(v *resource.Validator, o map[string]any) {
	url, ok := o[typeKey].(string)
	if !ok {
		l.faultf(v.Field(typeKey), "the type is missing: give the type URL of the message, "+
			"such as type.googleapis.com/envoy.extensions.filters.http.router.v3.Router")
		return
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		l.faultf(v.Field(typeKey), "%q is not a known Envoy message: check its spelling and version",
			toolkit.Clip(url))
		return
	}
	if wellKnown(mt.Descriptor()) {
		return // has a special JSON form; the caller reports the reason
	}
	rest := maps.Clone(o)
	delete(rest, typeKey)
	l.message(v, rest, mt)
}

func (l *locator) unknown(v *resource.Validator, md protoreflect.MessageDescriptor, key string) {
	if near := nearest(key, md); near != "" {
		l.faultf(v, "%s has no such field: did you mean %q?", md.FullName(), near)
		return
	}
	l.faultf(v, "%s has no such field", md.FullName())
}

// fieldNamed returns a field by its JSON name or its proto name, as in protobuf's JSON form.
func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// nearest returns the field whose name is most similar to a misspelled one; "" if none is similar.
func nearest(name string, md protoreflect.MessageDescriptor) string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return strict.Nearest(strings.ReplaceAll(name, "_", ""), names)
}

// enumNames lists the first values of an enum.
func enumNames(e protoreflect.EnumDescriptor) string {
	var names []string
	for i := range e.Values().Len() {
		if i == 12 {
			names = append(names, "…")
			break
		}
		names = append(names, string(e.Values().Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// describe returns the type of a decoded value for messages.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "the string \"" + toolkit.Clip(v) + "\""
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "a number"
}
