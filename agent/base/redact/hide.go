package redact

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// hide replaces the secret values of a message at a nesting depth and reports whether it changed
// anything. In a hidden message, all values are secret unless their field is shown.
func (r *Renderer) hide(m protoreflect.Message, depth int, hidden bool) (changed bool, err error) {
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case "google.protobuf.Any":
		return r.hideAny(m, depth, hidden)
	case "google.protobuf.FieldMask":
		if hidden {
			m.Clear(fields.ByName("paths"))
		}
		return hidden, nil
	case "google.protobuf.StringValue", "google.protobuf.BytesValue":
		if hidden { // even if empty
			m.Set(fields.ByName("value"), redactedValue(fields.ByName("value")))
		}
		return hidden, nil
	case "google.protobuf.Value":
		if kind := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); hidden && kind != nil && kind.Message() == nil {
			m.Set(fields.ByName("string_value"), redactedValue(fields.ByName("string_value")))
			return true, nil
		}
	}
	visit := func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		var c bool
		if c, err = r.hideField(m, fd, v, depth, r.hides(fd, hidden)); err != nil {
			err = fmt.Errorf("%s: %w", fd.JSONName(), err)
		}
		changed = changed || c
		return err == nil
	}
	if hidden || m.Descriptor().ExtensionRanges().Len() > 0 {
		m.Range(visit)
		return changed, err
	}
	for _, fd := range r.suspectsOf(m.Descriptor()) {
		if m.Has(fd) && !visit(fd, m.Get(fd)) {
			break
		}
	}
	return changed, err
}

func (r *Renderer) hideField(m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int,
	hidden bool) (changed bool, err error) {
	isText := fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind
	switch {
	case fd.IsMap():
		value := fd.MapValue()
		hidden = r.hides(value, hidden)
		v.Map().Range(func(k protoreflect.MapKey, mv protoreflect.Value) bool {
			c := hidden
			if value.Message() != nil {
				c, err = r.hide(mv.Message(), depth+2, hidden) // a map entry is a message too
			} else if hidden {
				v.Map().Set(k, redactedValue(value))
			}
			changed = changed || c
			return err == nil
		})
		return changed, err
	case fd.IsList() && fd.Message() != nil:
		for i := range v.List().Len() {
			c, err := r.hide(v.List().Get(i).Message(), depth+1, hidden)
			if changed = changed || c; err != nil {
				return changed, err
			}
		}
		return changed, nil
	case fd.Message() != nil:
		return r.hide(v.Message(), depth+1, hidden)
	case !hidden:
	case !isText:
		m.Clear(fd)
	case fd.IsList():
		for i := range v.List().Len() {
			v.List().Set(i, redactedValue(fd))
		}
	default:
		m.Set(fd, redactedValue(fd))
	}
	return hidden, nil
}

// hideAny hides the secret values of a packed message.
func (r *Renderer) hideAny(m protoreflect.Message, depth int, hidden bool) (changed bool, err error) {
	fields := m.Descriptor().Fields()
	url, value := m.Get(fields.ByName("type_url")).String(), fields.ByName("value")
	if url == "" {
		return false, nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return false, fmt.Errorf("the type %q is unknown: %w", url, plain(err))
	}
	inner := t.New()
	if err := unmarshal(inner, m.Get(value).Bytes(), maxDepth-depth); err != nil {
		return false, fmt.Errorf("%s: %w", t.Descriptor().FullName(), err)
	}
	if changed, err = r.hide(inner, depth+1, hidden); !changed || err != nil {
		return false, err
	}
	wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(inner.Interface())
	m.Set(value, protoreflect.ValueOfBytes(wire))
	return true, err
}

// hides reports whether the values of a field are secret in a message.
func (r *Renderer) hides(fd protoreflect.FieldDescriptor, hidden bool) bool {
	secrecy, known := r.known[fd]
	if !known {
		secrecy = r.secrecy(fd)
		r.known[fd] = secrecy
	}
	switch secrecy {
	case Hide:
		return true
	case Show:
		return false
	default:
		return hidden
	}
}

// suspectsOf returns the fields of a message that are secret or may contain secret fields.
func (r *Renderer) suspectsOf(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	list, known := r.suspects[d]
	if known {
		return list
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		value := fd
		if fd.IsMap() {
			value = fd.MapValue()
		}
		if r.secrecy(fd) == Hide || r.secrecy(value) == Hide || value.Message() != nil && !r.harmless(value.Message()) {
			list = append(list, fd)
		}
	}
	r.suspects[d] = list
	return list
}

// harmless reports whether a message type has neither secret fields nor fields that may contain
// secrets.
func (r *Renderer) harmless(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Struct", "google.protobuf.ListValue", "google.protobuf.Value":
		return true // contain only each other
	case "google.protobuf.Any":
		return false
	}
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() != nil || r.secrecy(fd) == Hide {
			return false
		}
	}
	return d.ExtensionRanges().Len() == 0
}

func redactedValue(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(Redacted)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(Redacted))
	default:
		return fd.Default()
	}
}
