package proxypatch

import (
	"encoding/json"
	"fmt"
	"slices"

	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// patch is a JSON Patch of a message's JSON form.
type patch struct {
	ops jsonpatch.Patch
	// first lists the first tokens of all paths. whole is true if a path is the message itself.
	first []string
	whole bool
}

// loose corresponds to Kuma: the JSON form omits empty fields, so a path may contain absent
// parents, and removing an absent field succeeds.
var loose = jsonpatch.Options{CreateParents: true, IgnoreAbsent: true}

// readPatches validates JSON Patch operations as far as possible without the message: their
// members, and, if mt is the type of the patched message, the fields in their paths and the types
// of their values. It reports every fault and returns nil if there is one.
func readPatches(list *resource.Validator, in []JSONPatch, mt protoreflect.MessageType) *patch {
	out := &patch{}
	good := true
	for i := range in {
		op, ok := in[i].read(list.Index(i), mt)
		good = good && ok
		if ok {
			out.add(op)
		}
	}
	if !good {
		return nil
	}
	return out
}

func (p *patch) add(op jsonpatch.Operation) {
	p.ops = append(p.ops, op)
	paths := []string{op.Path}
	if op.Op == jsonpatch.Move || op.Op == jsonpatch.Copy {
		paths = append(paths, op.From)
	}
	for _, path := range paths {
		if tokens, _ := jsonpatch.ParsePointer(path); len(tokens) == 0 {
			p.whole = true
		} else if !slices.Contains(p.first, tokens[0]) {
			p.first = append(p.first, tokens[0])
		}
	}
}

// touches reports whether an operation affects one of the fields.
func (p *patch) touches(fields ...string) bool {
	return p.whole || slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(p.first, f) })
}

// read validates one operation. It converts field names in paths to those of the JSON form.
func (j *JSONPatch) read(v *resource.Validator, mt protoreflect.MessageType) (jsonpatch.Operation, bool) {
	op := jsonpatch.Operation{Op: j.Op}
	if !v.Field("op").OneOf(j.Op, jsonpatch.Add, jsonpatch.Remove, jsonpatch.Replace, jsonpatch.Move, jsonpatch.Copy) {
		return op, false
	}
	good := true
	fault := func(field, format string, args ...any) {
		v.Field(field).Faultf(format, args...)
		good = false
	}
	takesValue, takesFrom := j.Op == jsonpatch.Add || j.Op == jsonpatch.Replace, j.Op == jsonpatch.Move ||
		j.Op == jsonpatch.Copy
	switch {
	case takesValue && len(j.Value.JSON) == 0:
		fault("value", "the value is missing: %s requires one", j.Op)
	case !takesValue && len(j.Value.JSON) > 0:
		fault("value", "only add and replace have a value: remove it")
	}
	switch {
	case takesFrom && j.From == nil:
		fault("from", "the path is missing: %s requires one", j.Op)
	case !takesFrom && j.From != nil:
		fault("from", "only move and copy have from: remove it")
	}
	if j.Path == nil {
		fault("path", "the path is missing: give a JSON Pointer, such as /connectTimeout")
		return op, false
	}
	var loc location
	ok := true
	if op.Path, loc, ok = fieldPath(v.Field("path"), *j.Path, mt); !ok {
		good = false
	} else if op.Op == jsonpatch.Remove && op.Path == "" {
		fault("path", "the message itself cannot be removed by a patch: use operation Remove")
	}
	if takesFrom && j.From != nil {
		if op.From, _, ok = fieldPath(v.Field("from"), *j.From, mt); !ok {
			good = false
		}
	}
	if !good || !takesValue {
		return op, good
	}
	if (secret.EnvoyValue{JSON: j.Value.JSON, Hidden: j.secret()}).Marked() {
		v.Field("value").Faultf("%s", secret.Missing)
		return op, false
	}
	value, err := jsonpatch.Decode(j.Value.JSON)
	if err != nil {
		fault("value", "not JSON: %v", err)
		return op, false
	}
	op.Value = value
	if at := v.Field("value"); j.secret() {
		var hidden []resource.Fault // may contain the secret
		ok := loc.check(resource.NewValidator("", &hidden), value)
		if !ok {
			at.Faultf("%s", hiddenFault)
		}
		return op, ok
	}
	return op, loc.check(v.Field("value"), value)
}

// location is the target of a path, as far as the message type determines it.
type location struct {
	parent protoreflect.MessageType     // nil if unknown
	field  protoreflect.FieldDescriptor // of parent; nil for the message itself
	inside bool                         // whether it is an item or entry of the field
	key    string                       // of an entry
}

// fieldPath parses a JSON Pointer and follows it through a message type as far as the type is
// known: packed messages, and messages with a special JSON form, may contain anything. It returns
// the path with the JSON names of fields.
func fieldPath(v *resource.Validator, path string, mt protoreflect.MessageType) (string, location, bool) {
	tokens, err := jsonpatch.ParsePointer(path)
	if err != nil {
		v.Faultf("%v", err)
		return "", location{}, false
	}
	at := location{parent: mt}
	for i := 0; i < len(tokens) && at.parent != nil; i++ {
		md := at.parent.Descriptor()
		if wellKnown(md) {
			at = location{}
			break
		}
		fd := fieldNamed(md, tokens[i])
		if fd == nil {
			hint := ""
			if near := nearest(tokens[i], md); near != "" {
				hint = fmt.Sprintf(": did you mean %q?", near)
			}
			v.Faultf("%s: %s has no field %q%s", toolkit.Clip(path), md.FullName(), toolkit.Clip(tokens[i]), hint)
			return "", location{}, false
		}
		tokens[i] = fd.JSONName()
		at.field, at.inside = fd, false
		if fd.IsList() || fd.IsMap() {
			if i++; i == len(tokens) {
				break
			}
			at.inside, at.key = true, tokens[i]
		}
		if i == len(tokens)-1 {
			break
		}
		next := fd.Message()
		if fd.IsMap() {
			next = fd.MapValue().Message()
		}
		if next == nil {
			v.Faultf("%s: field %s has no subfields", toolkit.Clip(path), fd.FullName())
			return "", location{}, false
		}
		at = location{}
		if m, err := protoregistry.GlobalTypes.FindMessageByName(next.FullName()); err == nil {
			at.parent = m
		}
	}
	return jsonpatch.FormatPointer(tokens), at, true
}

// check validates that a value is valid at the location.
func (p location) check(v *resource.Validator, value any) bool {
	switch {
	case p.parent == nil || value == nil:
		return true
	case p.field == nil:
		convertDurations(value, p.parent.Descriptor())
		l := locator{}
		l.message(v, value, p.parent)
		return !l.found
	}
	element := p.field.Message()
	if p.field.IsMap() {
		element = p.field.MapValue().Message()
	}
	switch items := value.(type) {
	case []any: // a whole list
		for i, item := range items {
			put(element, item, func(v any) { items[i] = v })
		}
	case map[string]any:
		if p.field.IsMap() && !p.inside {
			for k, entry := range items {
				put(element, entry, func(v any) { items[k] = v })
			}
			break
		}
		put(element, value, func(v any) { value = v })
	default:
		put(element, value, func(v any) { value = v })
	}
	given := value
	if p.inside && p.field.IsList() {
		given = []any{value}
	} else if p.inside {
		given = map[string]any{p.key: value}
	}
	err := probe(p.parent, p.field.JSONName(), given)
	if err == nil {
		return true
	}
	l := locator{}
	empty := p.parent.New().NewField(p.field)
	switch {
	case p.inside && p.field.IsList():
		l.value(v, value, empty.List().NewElement(), p.field, err)
	case p.inside:
		l.value(v, value, empty.Map().NewValue(), p.field.MapValue(), err)
	default:
		l.field(v, value, p.parent, p.field)
	}
	return false
}

// apply returns the patched message and does not modify m. Only the fields that the patch affects
// are converted to JSON.
func (p *patch) apply(m proto.Message) (proto.Message, error) {
	before := m.ProtoReflect()
	affected := before.New()
	for _, fd := range p.fields(before) {
		if before.Has(fd) {
			affected.Set(fd, before.Get(fd))
		}
	}
	after, err := p.through(affected.Interface())
	if err != nil {
		return nil, err
	}
	before.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !affected.Has(fd) {
			after.ProtoReflect().Set(fd, v)
		}
		return true
	})
	return after, broken(after)
}

// fields returns the fields of a message that the patch affects. For a field of a oneof it includes
// the field that is set, because the JSON form allows only one.
func (p *patch) fields(m protoreflect.Message) []protoreflect.FieldDescriptor {
	all := m.Descriptor().Fields()
	var out []protoreflect.FieldDescriptor
	if p.whole {
		for i := range all.Len() {
			out = append(out, all.Get(i))
		}
		return out
	}
	for _, name := range p.first {
		fd := fieldNamed(m.Descriptor(), name)
		if fd == nil {
			continue // the result will be rejected
		}
		out = append(out, fd)
		if o := fd.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
			out = append(out, m.WhichOneof(o))
		}
	}
	return out
}

// through applies the patch to the JSON form of a message and validates packed messages in the
// result.
func (p *patch) through(m proto.Message) (proto.Message, error) {
	before, err := protojson.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s", plainError(err))
	}
	doc, err := jsonpatch.Decode(before)
	if err != nil {
		return nil, err
	}
	if doc, err = p.ops.ApplyWith(doc, loose); err != nil {
		return nil, err
	}
	after, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	out := m.ProtoReflect().New().Interface()
	var faults []resource.Fault
	v := resource.NewValidator("", &faults)
	read(v, after, doc, out)
	return out, firstFault(faults)
}

// patched returns the message type that JSON Patches of the target apply to, or nil if unknown. For
// filters it is the type of the config, which is known for the filters that are always present.
func (w *Input) patched() protoreflect.MessageType {
	if !w.target.filter() {
		return targets[w.target].message.ProtoReflect().Type()
	}
	var m proto.Message
	switch name := w.match.name; {
	case name == nil:
		return nil
	case *name == draft.NameHCM:
		m = (*hcmv3.HttpConnectionManager)(nil)
	case *name == draft.NameTCPProxy:
		m = (*tcpv3.TcpProxy)(nil)
	case *name == draft.NameRouter:
		m = (*routerv3.Router)(nil)
	default:
		return nil
	}
	return m.ProtoReflect().Type()
}
