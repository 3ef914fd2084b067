package proxypatch

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// typeKey is the member of a packed message that says what it is.
const typeKey = "@type"

// locator finds what the protobuf library has refused, to say where it stands.
type locator struct {
	found bool
}

func (l *locator) faultf(v *resource.Validator, format string, args ...any) {
	l.found = true
	v.Faultf(format, args...)
}

// message looks through the members of a message.
func (l *locator) message(v *resource.Validator, tree any, mt protoreflect.MessageType) {
	md := mt.Descriptor()
	o, ok := tree.(map[string]any)
	switch {
	case !ok:
		l.faultf(v, "%s is given, a mapping of the fields of %s is wanted", describe(tree), md.Name())
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

// field looks into a field whose value does not fit.
func (l *locator) field(v *resource.Validator, value any, mt protoreflect.MessageType, fd protoreflect.FieldDescriptor) {
	name := fd.JSONName()
	switch {
	case fd.IsList():
		items, ok := value.([]any)
		if !ok {
			l.faultf(v, "%s is given, a list is wanted", describe(value))
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
			l.faultf(v, "%s is given, a mapping is wanted", describe(value))
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

// value looks into one value that does not fit; like is an empty one of the kind that is wanted.
func (l *locator) value(v *resource.Validator, value any, like protoreflect.Value, fd protoreflect.FieldDescriptor, err error) {
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

// packed looks into a packed message.
func (l *locator) packed(v *resource.Validator, o map[string]any) {
	url, ok := o[typeKey].(string)
	if !ok {
		l.faultf(v.Field(typeKey), "the type is missing: give the type URL of the message, as in type.googleapis.com/envoy.extensions.filters.http.router.v3.Router")
		return
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		l.faultf(v.Field(typeKey), "%q is not a message of Envoy that this agent knows: check its spelling and version", toolkit.Clip(url))
		return
	}
	if wellKnown(mt.Descriptor()) {
		return // its value stands in a member of its own; the caller has the reason
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

// fieldNamed finds a field by its JSON name or its name in the proto file, as protobuf's JSON form allows both.
func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// nearest returns the field that a misspelt name was likely meant to be, "" when none is near.
func nearest(name string, md protoreflect.MessageDescriptor) string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return resource.Nearest(strings.ReplaceAll(name, "_", ""), names)
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

// describe says what a decoded value is.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "the text \"" + toolkit.Clip(v) + "\""
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "a number"
}
