package danger

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// scope is the set of message types that a mapping may have.
type scope struct {
	unknown bool // any type
	types   []protoreflect.MessageDescriptor
}

// unknownScope is the scope of a packed message without a type.
var unknownScope = scope{unknown: true}

// around describes the fields around a value.
type around struct {
	endpoint bool // an endpoint of a cluster, to which Envoy connects
	secret   bool // a key or password
}

// walker collects the dangers of messages in protobuf's JSON form.
type walker struct {
	found []access.Danger
	known map[string][]protoreflect.FieldDescriptor // fields of any message, by name
	index bool                                      // known has all names
}

// report adds a danger. The value is shown if it is a string.
func (w *walker) report(at, reason string, value *strict.Node) {
	text := ""
	if value != nil && value.Kind == strict.String {
		text = value.Text
	}
	w.found = append(w.found, access.Danger{Feature: access.FeaturePatch, Field: at, Reason: fill(reason, text)})
}

// fields returns the fields of a scope with a name, in either of its forms.
func (w *walker) fields(s scope, name string) (out []protoreflect.FieldDescriptor) {
	if !s.unknown {
		for _, md := range s.types {
			if fd := fieldNamed(md, name); fd != nil {
				out = append(out, fd)
			}
		}
		return byName(out)
	}
	if list, ok := w.known[name]; ok || w.index {
		return list
	}
	if len(w.known) == maxSearches {
		w.known, w.index = indexOfFields(), true
		return w.known[name]
	}
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if fd := fieldNamed(mt.Descriptor(), name); fd != nil {
			out = append(out, fd)
		}
		return true
	})
	if w.known == nil {
		w.known = map[string][]protoreflect.FieldDescriptor{}
	}
	w.known[name] = byName(out)
	return out
}

// maxSearches is the number of names for which a walker searches all messages. With more names, an
// index of all fields costs less, also for a patch with many names that no message has.
const maxSearches = 16

// indexOfFields returns the fields of all messages by their names.
func indexOfFields() map[string][]protoreflect.FieldDescriptor {
	out := map[string][]protoreflect.FieldDescriptor{}
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		fields := mt.Descriptor().Fields()
		for i := range fields.Len() {
			fd := fields.Get(i)
			out[fd.JSONName()] = append(out[fd.JSONName()], fd)
			if fd.TextName() != fd.JSONName() {
				out[fd.TextName()] = append(out[fd.TextName()], fd)
			}
		}
		return true
	})
	for _, list := range out {
		byName(list)
	}
	return out
}

func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// within returns the scope of the values of fields.
func within(fds []protoreflect.FieldDescriptor) scope {
	if len(fds) == 0 {
		return unknownScope
	}
	var out scope
	for _, fd := range fds {
		md := valueType(fd)
		switch {
		case md == nil || fd.IsMap() != fds[0].IsMap():
			out.unknown = out.unknown || fd.IsMap() != fds[0].IsMap()
		case md.FullName() == nameAny:
			out.unknown = true
		case !slices.Contains(out.types, md):
			out.types = append(out.types, md)
		}
	}
	return out
}

// inside returns the surroundings of a value of fields.
func (a around) inside(fds []protoreflect.FieldDescriptor) around {
	for _, fd := range fds {
		if md := valueType(fd); md != nil && md.FullName() == nameEndpoint {
			a.endpoint = true
		}
		a.secret = a.secret || sensitive(fd)
	}
	return a
}

// message examines a message, or each of a list of them.
func (w *walker) message(at string, n *strict.Node, s scope, a around) {
	for i, item := range n.Items {
		w.message(fmt.Sprintf("%s[%d]", at, i), item, s, a)
	}
	if t := n.Get("@type"); t != nil && n.Kind == strict.Mapping {
		var reason string
		if s, reason = packed(t.Text); reason != "" {
			w.report(at+".@type", reason, nil)
			return
		}
	}
	for _, p := range n.Pairs {
		if p.Key == "@type" {
			continue
		}
		fds := w.fields(s, p.Key)
		w.field(at+"."+p.Key, p.Value, fds, a.inside(fds), false)
	}
	if n.Kind == strict.String {
		w.text(at, n, nil, a)
	}
}

// packed returns the scope of a packed message with a type, or why it is dangerous.
func packed(url string) (scope, string) {
	name := protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:])
	switch reason := dangerousType(name); {
	case reason != "":
		return scope{}, fill(reason, "")
	case name == nameAny:
		return unknownScope, ""
	case name == "google.protobuf.Struct", name == "google.protobuf.Value", name == "google.protobuf.ListValue":
		return scope{}, reasonUntyped // Envoy converts them to the type of the extension
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return scope{}, reasonUntyped
	}
	return scope{types: []protoreflect.MessageDescriptor{mt.Descriptor()}}, ""
}

// field examines the value of one of some fields; element is set for an item of a list or an entry
// of a map.
func (w *walker) field(at string, n *strict.Node, fds []protoreflect.FieldDescriptor, a around, element bool) {
	if n.Kind == strict.Null {
		return
	}
	for _, fd := range fds {
		if reason := sinkOf(fd); reason != "" {
			w.report(at, reason, leaf(n))
			return
		}
	}
	switch n.Kind {
	case strict.List:
		for i, item := range n.Items {
			w.field(fmt.Sprintf("%s[%d]", at, i), item, fds, a, element)
		}
	case strict.Mapping:
		if len(fds) > 0 && fds[0].IsMap() && !element {
			for _, p := range n.Pairs {
				w.field(at+"."+p.Key, p.Value, fds, a, true)
			}
			return
		}
		if free(fds) {
			return
		}
		w.message(at, n, within(fds), a)
	case strict.String:
		w.text(at, n, fds, a)
	}
}

// leaf returns the only string in a value, or the value.
func leaf(n *strict.Node) *strict.Node {
	for len(n.Pairs) == 1 || len(n.Items) == 1 {
		if len(n.Items) == 1 {
			n = n.Items[0]
		} else {
			n = n.Pairs[0].Value
		}
	}
	if n.Kind == strict.Mapping {
		if path := n.Get("path"); path != nil {
			return path
		}
	}
	return n
}

// free reports whether all fields hold content without a schema, which no extension reads as its
// config.
func free(fds []protoreflect.FieldDescriptor) bool {
	for _, fd := range fds {
		md := valueType(fd)
		if md == nil || !strings.HasPrefix(string(md.FullName()), googleTypes) || md.FullName() == nameAny {
			return false
		}
	}
	return len(fds) > 0
}

// text examines a string.
func (w *walker) text(at string, n *strict.Node, fds []protoreflect.FieldDescriptor, a around) {
	if n.Text == "" {
		return
	}
	if reason := textDanger(n.Text); reason != "" {
		w.report(at, reason, nil)
		return
	}
	named := func(names ...string) bool {
		return slices.ContainsFunc(fds, func(fd protoreflect.FieldDescriptor) bool {
			return slices.Contains(names, string(fd.Name()))
		})
	}
	isHost := func(fd protoreflect.FieldDescriptor) bool { return fd.FullName() == nameHost }
	switch {
	case a.secret && !named(sourceFields...):
		w.report(at, reasonKey, nil)
	case a.endpoint && slices.ContainsFunc(fds, isHost) && localHost(n.Text):
		w.report(at, reasonLocal, n)
	}
}
