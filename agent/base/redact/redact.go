// Package redact renders protobuf messages as JSON, with the values of secret fields replaced.
//
// The output is what google.golang.org/protobuf/encoding/protojson writes, without white space. The
// same bytes give the same output. Bytes that proto.Unmarshal refuses are an error, and so are
// messages that lie more than 100 deep, packed ones included: Envoy does not load them either.
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

// maxDepth bounds the nesting of messages. It is the limit of the C++ library that Envoy is built
// with, which counts anew in each google.protobuf.Any; here it holds for all of them together.
const maxDepth = 100

var errDepth = fmt.Errorf("messages lie more than %d deep in each other", maxDepth)

// Secrecy says whether the value of a field is shown.
type Secrecy uint8

const (
	Inherit Secrecy = iota // as the message that the field is in; the outermost is shown
	Hide                   // texts and bytes become Redacted, at any depth, and other values are removed
	Show
)

// Redacted replaces secret texts, and its bytes replace secret bytes.
const Redacted = "[redacted]"

// Renderer renders messages. It remembers the fields of message types, so one renderer should serve
// many messages. It is not safe for concurrent use.
type Renderer struct {
	secrecy func(protoreflect.FieldDescriptor) Secrecy
	scratch []byte
	compact bytes.Buffer
	known   map[protoreflect.FieldDescriptor]Secrecy
	// suspects are the fields by message type that hold a secret, or a message that may.
	suspects map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor
}

// New returns a renderer. secrecy must give the same answer for the same field; nil shows all of
// them.
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

// JSON returns the JSON form of a message of type t whose wire form is given. Types in
// google.protobuf.Any and extensions are those that are linked into the program. A value without a
// JSON form, such as a duration out of range, is an error.
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
	err = json.Compact(&r.compact, text) // protojson varies its white space from build to build
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

// plain returns an error of the protobuf library without its prefix, whose white space varies from
// build to build.
func plain(err error) error {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return errors.New(strings.ReplaceAll(text, "proto: ", ""))
}
