// Package redact renders protobuf messages as JSON and replaces the values of secret fields.
//
// The output equals that of google.golang.org/protobuf/encoding/protojson without white space. The
// same bytes give the same output. Input that proto.Unmarshal rejects is an error, and so are
// messages nested more than 100 deep, including packed ones, which Envoy does not load either.
package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth limits the nesting of messages. It is the limit of the C++ library in Envoy, which
// restarts the count in each google.protobuf.Any; here it applies to the total depth.
const maxDepth = 100

var errDepth = fmt.Errorf("messages are nested more than %d deep", maxDepth)

// Secrecy says whether the value of a field is shown.
type Secrecy uint8

const (
	Inherit Secrecy = iota // like the enclosing message; the outermost message is shown
	Hide                   // strings and bytes become Redacted at any depth; other values are removed
	Show
)

// Redacted replaces secret strings; its bytes replace secret bytes.
const Redacted = "[redacted]"

// Renderer renders messages. It caches information about message types, so use one Renderer for
// many messages. It is not safe for concurrent use.
type Renderer struct {
	secrecy func(protoreflect.FieldDescriptor) Secrecy
	scratch []byte
	compact bytes.Buffer
	known   map[protoreflect.FieldDescriptor]Secrecy
	// suspects caches, by message type, the fields that are secret or may contain secrets.
	suspects map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor
}

// New returns a renderer. secrecy must be deterministic; nil shows all fields.
func New(secrecy func(protoreflect.FieldDescriptor) Secrecy) *Renderer {
	if secrecy == nil {
		secrecy = func(protoreflect.FieldDescriptor) Secrecy { return Inherit }
	}
	return &Renderer{
		secrecy:  secrecy,
		known:    map[protoreflect.FieldDescriptor]Secrecy{},
		suspects: map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor{},
	}
}

// JSON returns the JSON form of a message of type t in wire format. Types in google.protobuf.Any
// and extensions must be linked into the program. A value without a JSON form, such as a duration
// out of range, is an error.
func (r *Renderer) JSON(t protoreflect.MessageType, wire []byte) (json.RawMessage, error) {
	m := t.New()
	if err := unmarshal(m, wire, maxDepth); err != nil {
		return nil, err
	}
	if _, err := r.hide(m, 1, false); err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{AllowPartial: true}.MarshalAppend(r.scratch[:0], m.Interface())
	if err != nil {
		return nil, plain(err)
	}
	r.scratch = text
	r.compact.Reset()
	err = json.Compact(&r.compact, text) // the white space of protojson varies between builds
	return bytes.Clone(r.compact.Bytes()), err
}

func unmarshal(m protoreflect.Message, wire []byte, depth int) error {
	if depth <= 0 {
		return errDepth
	}
	err := proto.UnmarshalOptions{AllowPartial: true, RecursionLimit: depth}.Unmarshal(wire, m.Interface())
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "recursion depth"):
		return errDepth
	}
	return fmt.Errorf("the bytes are not a valid message: %w", plain(err))
}

// plain removes the prefix of a protobuf error, whose white space varies between builds.
func plain(err error) error {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return errors.New(strings.ReplaceAll(text, "proto: ", ""))
}
