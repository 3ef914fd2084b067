package wirejson

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth bounds how deep messages may lie in each other. It is the limit of the C++ library that Envoy is built with,
// which counts anew in each google.protobuf.Any; here it holds for all of them together.
const maxDepth = 100

var errDepth = fmt.Errorf("messages lie more than %d deep in each other", maxDepth)

// Secrecy says what becomes of the value of a field.
type Secrecy uint8

const (
	Inherit Secrecy = iota // it is treated as the message that the field is in; the outermost is shown
	Hide                   // texts and bytes become Redacted, at any depth, and other values are left out
	Show
)

// Redacted stands in the place of secret texts, and its bytes in the place of secret bytes.
const Redacted = "[redacted]"

// Renderer renders messages. It remembers what it learnt of their types, which is worth keeping for the resources of
// one config. It must not be used by two goroutines at once.
type Renderer struct {
	secrecy  func(protoreflect.FieldDescriptor) Secrecy
	messages map[protoreflect.MessageDescriptor]*message
	urls     map[string]*message // by type URL

	// stack holds what was found in the messages that are being rendered, the outermost first.
	stack   []found
	entries []entry // of the maps that are being rendered
}

// New returns a renderer. secrecy is asked once for each field; nil shows all of them.
func New(secrecy func(protoreflect.FieldDescriptor) Secrecy) *Renderer {
	if secrecy == nil {
		secrecy = func(protoreflect.FieldDescriptor) Secrecy { return Inherit }
	}
	return &Renderer{
		secrecy:  secrecy,
		messages: map[protoreflect.MessageDescriptor]*message{},
		urls:     map[string]*message{},
	}
}

// Append appends the JSON form of a message whose wire form is given. Types in google.protobuf.Any and extensions are
// looked up among those that are linked into the program.
//
// It fails where proto.Unmarshal or protojson fail: for bytes that are no message of this type, for values without a
// JSON form, such as a duration out of range, and for an Any whose type is not known. The error names the path.
func (r *Renderer) Append(dst []byte, d protoreflect.MessageDescriptor, wire []byte) ([]byte, error) {
	r.entries = r.entries[:0]
	r.stack = append(r.stack[:0], found{body: wire})
	return r.message(dst, r.typeOf(d), 0, 1, 1, false)
}

// message renders the message whose parts lie on the stack from lo on, before hi. depth counts the messages around it.
func (r *Renderer) message(dst []byte, m *message, lo, hi, depth int, hidden bool) ([]byte, error) {
	if m.form != formObject {
		return r.wellKnown(dst, m, lo, hi, depth, hidden)
	}
	start := len(dst)
	dst, err := r.members(dst, m, lo, hi, depth, hidden)
	if err != nil {
		return dst, err
	}
	if len(dst) == start {
		return append(dst, '{', '}'), nil
	}
	dst[start] = '{' // instead of the comma before the first member
	return append(dst, '}'), nil
}

// members renders the fields of a message, each with a comma before it.
func (r *Renderer) members(dst []byte, m *message, lo, hi, depth int, hidden bool) ([]byte, error) {
	base, err := r.open(m, lo, hi, depth)
	if err != nil {
		return dst, err
	}
	for i, end := base, len(r.stack); i < end; {
		f := r.stack[i].field
		from := i
		for i++; i < end && r.stack[i].field == f; i++ {
		}
		if dst, err = r.member(dst, f, from, i, depth, hidden); err != nil {
			return dst, within(f, err)
		}
	}
	r.stack = r.stack[:base]
	return dst, nil
}

// member renders one field with its name, unless its value is left out. What was found of it lies on the stack from lo
// on, before hi.
func (r *Renderer) member(dst []byte, f *field, lo, hi, depth int, hidden bool) ([]byte, error) {
	hidden = f.hides(hidden)
	switch {
	case f.isMap:
		return r.entriesOf(append(dst, f.name...), f, lo, hi, depth, hidden)
	case f.isList:
		return r.list(dst, f, lo, hi, depth, hidden)
	case f.message != nil:
		return r.message(append(dst, f.name...), f.message, lo, hi, depth+1, hidden)
	}
	last := &r.stack[hi-1]
	if !f.presence && last.isZero() || hidden && !f.isText() {
		return dst, nil
	}
	return scalar(append(dst, f.name...), f, last, hidden)
}

func (r *Renderer) list(dst []byte, f *field, lo, hi, depth int, hidden bool) ([]byte, error) {
	for lo < hi && r.stack[lo].packed && len(r.stack[lo].body) == 0 {
		lo++
	}
	if lo == hi || hidden && f.message == nil && !f.isText() {
		return dst, nil
	}
	dst = append(dst, f.name...)
	start := len(dst)
	var err error
	for i := lo; i < hi; i++ {
		switch o := &r.stack[i]; {
		case f.message != nil:
			dst, err = r.message(append(dst, ','), f.message, i, i+1, depth+1, hidden)
		case o.packed:
			for b := o.body; len(b) > 0; {
				var one found
				one.number, b, _ = number(f, f.wire, b)
				if dst, err = scalar(append(dst, ','), f, &one, hidden); err != nil {
					return dst, err
				}
			}
		default:
			dst, err = scalar(append(dst, ','), f, o, hidden)
		}
		if err != nil {
			return dst, err
		}
	}
	dst[start] = '['
	return append(dst, ']'), nil
}

// pathError says where in a message rendering stopped.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.path + ": " + e.err.Error() }
func (e *pathError) Unwrap() error { return e.err }

// within puts a field before the path of an error.
func within(f *field, err error) error {
	var e *pathError
	if errors.As(err, &e) {
		return &pathError{f.jsonName + "." + e.path, e.err}
	}
	return &pathError{f.jsonName, err}
}
