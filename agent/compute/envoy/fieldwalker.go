package envoy

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxDepth bounds the nesting of the messages that a fieldWalker visits. Envoy rejects messages
// with a deeper nesting, which is the default limit of protobuf for C++.
const maxDepth = 100

// fieldWalker visits the fields of encoded messages, also of those inside a google.protobuf.Any. It
// caches message types.
type fieldWalker struct {
	targets map[protoreflect.FullName]target // fields to report
	found   func(to target, value []byte)

	types  map[protoreflect.FullName]*walkedType
	packed map[string]*walkedType // by type URL
}

// walkedType is a message type with the fields to visit.
type walkedType struct {
	message protoreflect.MessageDescriptor
	isAny   bool
	fields  []walkedField // by number; nil until the type is visited
}

// walkedField is a field to report, or one with a message to visit.
type walkedField struct {
	to       target
	reported bool
	below    *walkedType // nil for a field without a message
}

// walk visits the fields of an encoded resource.
func (w *fieldWalker) walk(k Kind, body []byte) { w.message(w.typeOf([]byte(k.URL())), body, 0) }

func (w *fieldWalker) message(t *walkedType, b []byte, depth int) {
	if t == nil || depth > maxDepth {
		return
	}
	if t.isAny {
		w.any(b, depth)
		return
	}
	if t.fields == nil {
		t.fields = w.fieldsOf(t.message)
	}
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, typ, b[n:])
		if size < 0 {
			return
		}
		if typ == protowire.BytesType && int(number) < len(t.fields) {
			field := &t.fields[number]
			value, _ := protowire.ConsumeBytes(b[n:])
			if field.reported {
				w.found(field.to, value)
			}
			w.message(field.below, value, depth+1)
		}
		b = b[n+size:]
	}
}

// any visits the message in a google.protobuf.Any.
func (w *fieldWalker) any(b []byte, depth int) {
	var url, value []byte
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return
		}
		v, size := protowire.ConsumeBytes(b[n:])
		if size < 0 {
			return
		}
		switch number {
		case 1:
			url = v
		case 2:
			value = v
		}
		b = b[n+size:]
	}
	w.message(w.typeOf(url), value, depth+1)
}

// typeOf returns the message type with a type URL, nil for an unknown one.
func (w *fieldWalker) typeOf(url []byte) *walkedType {
	if t := w.packed[string(url)]; t != nil {
		return t
	}
	m, err := protoregistry.GlobalTypes.FindMessageByURL(string(url))
	if err != nil {
		return nil
	}
	if w.packed == nil {
		w.packed = map[string]*walkedType{}
	}
	t := w.typeFor(m.Descriptor())
	w.packed[string(url)] = t
	return t
}

func (w *fieldWalker) typeFor(m protoreflect.MessageDescriptor) *walkedType {
	t := w.types[m.FullName()]
	if t == nil {
		if w.types == nil {
			w.types = map[protoreflect.FullName]*walkedType{}
		}
		t = &walkedType{message: m, isAny: m.FullName() == "google.protobuf.Any"}
		w.types[m.FullName()] = t
	}
	return t
}

// fieldsOf returns the fields of a message type that are to be reported or have messages. Of the
// well-known types only google.protobuf.Any has fields of other types.
func (w *fieldWalker) fieldsOf(m protoreflect.MessageDescriptor) []walkedField {
	out := []walkedField{}
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		if n := int(fd.Number()) + 1; n > len(out) {
			out = append(out, make([]walkedField, n-len(out))...)
		}
		f := &out[fd.Number()]
		f.to, f.reported = w.targets[fd.FullName()]
		if below := fd.Message(); below != nil &&
			(below.ParentFile().Package() != "google.protobuf" || below.FullName() == "google.protobuf.Any") {
			f.below = w.typeFor(below)
		}
	}
	return out
}
