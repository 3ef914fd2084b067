package danger

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// targets maps the fields of a modification to the type of their value, and to whether JSON Patches
// apply to a packed config within it.
var targets = map[string]struct {
	value  proto.Message
	filter bool
}{
	"cluster":       {value: (*clusterv3.Cluster)(nil)},
	"listener":      {value: (*listenerv3.Listener)(nil)},
	"virtualHost":   {value: (*routev3.VirtualHost)(nil)},
	"networkFilter": {value: (*listenerv3.Filter)(nil), filter: true},
	"httpFilter":    {value: (*hcmv3.HttpFilter)(nil), filter: true},
}

// patches returns the dangers of a MeshProxyPatch.
func patches(root *strict.Node) []access.Danger {
	var w walker
	w.modifications("spec.default.appendModifications", root.Get("spec").Get("default").Get("appendModifications"))
	return w.found
}

// templates returns the dangers of a ProxyTemplate.
func templates(root *strict.Node) []access.Danger {
	var w walker
	conf := root.Get("conf")
	if list := conf.Get("resources"); list != nil {
		for i, r := range list.Items {
			w.embedded(fmt.Sprintf("conf.resources[%d].resource", i), r.Get("resource"), unknownScope)
		}
	}
	w.modifications("conf.modifications", conf.Get("modifications"))
	return w.found
}

// modifications examines a list of modifications.
func (w *walker) modifications(at string, list *strict.Node) {
	if list == nil {
		return
	}
	for i, m := range list.Items {
		for _, p := range m.Pairs {
			at := fmt.Sprintf("%s[%d].%s", at, i, p.Key)
			t, ok := targets[p.Key]
			if !ok {
				w.found = append(w.found, opaque(at)...)
				continue
			}
			s := scope{types: []protoreflect.MessageDescriptor{t.value.ProtoReflect().Descriptor()}}
			w.embedded(at+".value", p.Value.Get("value"), s)
			if t.filter {
				s = unknownScope // the patched config belongs to any filter of that name
			}
			if ops := p.Value.Get("jsonPatches"); ops != nil {
				for j, op := range ops.Items {
					w.operation(fmt.Sprintf("%s.jsonPatches[%d]", at, j), op, s)
				}
			}
		}
	}
}

// embedded examines a message in a text.
func (w *walker) embedded(at string, text *strict.Node, s scope) {
	if text == nil || text.Kind == strict.Null {
		return
	}
	root, fault := strict.One([]byte(text.Text), limits)
	if fault != nil || root == nil || text.Kind != strict.String {
		w.found = append(w.found, opaque(at)...)
		return
	}
	w.message(at, root, s, around{})
}

// operation examines one operation of a JSON Patch.
func (w *walker) operation(at string, op *strict.Node, s scope) {
	to, ok := w.locate(op.Get("path"), s)
	if !ok {
		w.found = append(w.found, opaque(at+".path")...)
		return
	}
	value := op.Get("value")
	switch name := op.Get("op"); {
	case name != nil && name.Text == jsonpatch.Remove:
	case to.reason != "":
		w.report(at+".path", to.reason, value)
	case value == nil: // move or copy
		from, ok := w.locate(op.Get("from"), s)
		if !ok || from.path != to.path && (to.copies() || to.around.secret || to.around.endpoint) {
			w.report(at+".from", reasonCopy, nil)
		}
	case to.typed:
		if _, reason := packed(value.Text); reason != "" {
			w.report(at+".value", reason, nil)
		}
	case to.fields == nil:
		w.message(at+".value", value, to.scope, to.around)
	default:
		w.field(at+".value", value, to.fields, to.around, to.element)
	}
}

// location is the place that a JSON Pointer leads to.
type location struct {
	path    string // with the names of fields, and * for items and keys
	scope   scope  // of a message
	fields  []protoreflect.FieldDescriptor
	element bool // an item or entry of the fields
	typed   bool // the type of a packed message
	around  around
	reason  string // the first danger on the way
}

// copies reports whether an unknown value at the location may be dangerous.
func (l *location) copies() bool {
	if l.typed || len(l.fields) == 0 {
		return true
	}
	return slices.ContainsFunc(l.fields, func(fd protoreflect.FieldDescriptor) bool {
		return valueType(fd) != nil && !free([]protoreflect.FieldDescriptor{fd})
	})
}

// locate follows a JSON Pointer from a message as far as types are known.
func (w *walker) locate(pointer *strict.Node, s scope) (l location, ok bool) {
	l.scope = s
	if pointer == nil {
		return l, false
	}
	tokens, err := jsonpatch.ParsePointer(pointer.Text)
	if err != nil {
		return l, false
	}
	var path strings.Builder
	for _, token := range tokens {
		index := token == "-" || token != "" && strings.Trim(token, "0123456789") == ""
		switch {
		case l.contains(index):
			l.element = true
			path.WriteString("/*")
			continue
		case len(l.fields) > 0 && free(l.fields):
			path.WriteString("/" + token) // within content without a schema
			continue
		case len(l.fields) > 0:
			l.scope = within(l.fields)
		}
		if l.element, l.typed = false, token == "@type"; l.typed {
			l.fields = nil
			continue
		}
		l.fields = w.fields(l.scope, token)
		l.around = l.around.inside(l.fields)
		if len(l.fields) == 0 {
			l.scope = unknownScope
			path.WriteString("/" + token)
			continue
		}
		path.WriteString("/" + l.fields[0].JSONName())
		for _, fd := range l.fields {
			if reason := sinkOf(fd); reason != "" && l.reason == "" {
				l.reason = reason
			}
		}
	}
	l.path = path.String()
	return l, true
}

// contains reports whether the next token is the index of an item or the key of an entry.
func (l *location) contains(index bool) bool {
	if len(l.fields) == 0 || l.element {
		return false
	}
	lists := slices.ContainsFunc(l.fields, func(fd protoreflect.FieldDescriptor) bool { return fd.IsList() })
	other := slices.ContainsFunc(l.fields, func(fd protoreflect.FieldDescriptor) bool { return !fd.IsMap() })
	return !other || lists && index
}
