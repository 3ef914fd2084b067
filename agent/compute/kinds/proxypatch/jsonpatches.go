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
	// first are the first tokens of all paths; whole is true where one is the message itself.
	first []string
	whole bool
}

// loose follows the reference: the JSON form leaves out what is empty, so a path may lead through
// what is not there, and what is not there is removed already.
var loose = jsonpatch.Options{CreateParents: true, IgnoreAbsent: true}

// readPatches reads JSON Patch operations and checks what can be known without the message: their
// members, and where mt says what they patch, the fields that their paths name and whether values
// fit there. It reports every fault and returns nil when there was one.
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

// touches reports whether an operation is about one of the fields.
func (p *patch) touches(fields ...string) bool {
	return p.whole || slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(p.first, f) })
}

// read checks one operation. Names of fields in its paths become those of the JSON form.
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
		fault("value", "the value is missing: %s needs one", j.Op)
	case !takesValue && len(j.Value.JSON) > 0:
		fault("value", "a value goes with add and replace alone: remove it")
	}
	switch {
	case takesFrom && j.From == nil:
		fault("from", "the path to %s from is missing", j.Op)
	case !takesFrom && j.From != nil:
		fault("from", "from goes with move and copy alone: remove it")
	}
	if j.Path == nil {
		fault("path", "the path is missing: give a JSON Pointer, as in /connectTimeout")
		return op, false
	}
	var place place
	ok := true
	if op.Path, place, ok = fieldPath(v.Field("path"), *j.Path, mt); !ok {
		good = false
	} else if op.Op == jsonpatch.Remove && op.Path == "" {
		fault("path", "the message itself cannot be removed: use the operation Remove")
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
		var unsaid []resource.Fault // they may quote it
		ok := place.check(resource.NewValidator("", &unsaid), value)
		if !ok {
			at.Faultf("%s", hiddenFault)
		}
		return op, ok
	}
	return op, place.check(v.Field("value"), value)
}

// place is what a path leads to, as far as the message type tells.
type place struct {
	parent protoreflect.MessageType     // nil: not known
	field  protoreflect.FieldDescriptor // of parent; nil: the message itself
	inside bool                         // an item or entry of the field
	key    string                       // of the entry
}

// fieldPath reads a JSON Pointer and follows it through a message type as far as that goes: packed
// messages, and those with a JSON form of their own, may hold anything. It returns the path with
// the JSON names of fields.
func fieldPath(v *resource.Validator, path string, mt protoreflect.MessageType) (string, place, bool) {
	tokens, err := jsonpatch.ParsePointer(path)
	if err != nil {
		v.Faultf("%v", err)
		return "", place{}, false
	}
	at := place{parent: mt}
	for i := 0; i < len(tokens) && at.parent != nil; i++ {
		md := at.parent.Descriptor()
		if wellKnown(md) {
			at = place{}
			break
		}
		fd := fieldNamed(md, tokens[i])
		if fd == nil {
			hint := ""
			if near := nearest(tokens[i], md); near != "" {
				hint = fmt.Sprintf(": did you mean %q?", near)
			}
			v.Faultf("%s: %s has no field %q%s", toolkit.Clip(path), md.FullName(), toolkit.Clip(tokens[i]), hint)
			return "", place{}, false
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
			v.Faultf("%s: the field %s holds no further fields", toolkit.Clip(path), fd.FullName())
			return "", place{}, false
		}
		at = place{}
		if m, err := protoregistry.GlobalTypes.FindMessageByName(next.FullName()); err == nil {
			at.parent = m
		}
	}
	return jsonpatch.FormatPointer(tokens), at, true
}

// check reports whether a value fits at a place.
func (p place) check(v *resource.Validator, value any) bool {
	switch {
	case p.parent == nil || value == nil:
		return true
	case p.field == nil:
		l := locator{}
		l.message(v, value, p.parent)
		return !l.found
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

// apply returns the message that the patch makes of m, which stays as it is. Of a message of which
// only some fields are concerned, only those take the long way through JSON.
func (p *patch) apply(m proto.Message) (proto.Message, error) {
	before := m.ProtoReflect()
	part := before.New()
	for _, fd := range p.fields(before) {
		if before.Has(fd) {
			part.Set(fd, before.Get(fd))
		}
	}
	after, err := p.through(part.Interface())
	if err != nil {
		return nil, err
	}
	before.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !part.Has(fd) {
			after.ProtoReflect().Set(fd, v)
		}
		return true
	})
	return after, broken(after)
}

// fields returns the fields of a message that the patch is about: with one of a oneof also the
// others, since the JSON form refuses two of them.
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
			continue // what the patch makes of it will be refused
		}
		out = append(out, fd)
		if o := fd.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
			out = append(out, m.WhichOneof(o))
		}
	}
	return out
}

// through applies the patch to the JSON form of a message and checks what is packed in the outcome.
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

// patched is the type that JSON Patches of a target start from, nil when it is not known: for
// filters it is that of the configuration, which the names of the filters that are always there
// tell.
func (w *Written) patched() protoreflect.MessageType {
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
