package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The operations of RFC 6902 section 4.
const (
	Add     = "add"
	Remove  = "remove"
	Replace = "replace"
	Move    = "move"
	Copy    = "copy"
	Test    = "test"
)

// Operation is one step of a patch.
type Operation struct {
	Op    string
	Path  string // JSON Pointer of the place
	From  string // JSON Pointer of the source, of move and copy
	Value any    // of add, replace and test; nil is null
}

// Patch is a JSON Patch document: operations that are applied in their order.
type Patch []Operation

// MarshalJSON writes the members that the operation has.
func (o Operation) MarshalJSON() ([]byte, error) {
	out := struct {
		Op    string  `json:"op"`
		Path  string  `json:"path"`
		From  *string `json:"from,omitempty"`
		Value *any    `json:"value,omitempty"` // a pointer to nil is null
	}{Op: o.Op, Path: o.Path}
	switch o.Op {
	case Move, Copy:
		out.From = &o.From
	case Add, Replace, Test:
		out.Value = &o.Value
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads an operation. Members that RFC 6902 does not define are ignored, as it wants; one that is
// missing or of the wrong type is an error, and so are an unknown operation and a malformed pointer. Numbers are kept
// as [encoding/json.Number].
func (o *Operation) UnmarshalJSON(b []byte) error {
	var in struct {
		Op    *string         `json:"op"`
		Path  *string         `json:"path"`
		From  *string         `json:"from"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in.Op == nil || in.Path == nil {
		return errors.New("an operation needs the members op and path")
	}
	*o = Operation{Op: *in.Op, Path: *in.Path}
	switch o.Op {
	case Add, Replace, Test:
		if in.Value == nil {
			return fmt.Errorf("%s %s: the member value is missing", o.Op, clip(o.Path))
		}
		v, err := decode(in.Value)
		if err != nil {
			return err
		}
		o.Value = v
	case Move, Copy:
		if in.From == nil {
			return fmt.Errorf("%s %s: the member from is missing", o.Op, clip(o.Path))
		}
		o.From = *in.From
		if _, err := ParsePointer(o.From); err != nil {
			return fmt.Errorf("from: %w", err)
		}
	case Remove:
	default:
		return fmt.Errorf("%q is not an operation: give add, remove, replace, move, copy or test", clip(o.Op))
	}
	if _, err := ParsePointer(o.Path); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	return nil
}

// Parse reads a JSON Patch document.
func Parse(b []byte) (Patch, error) {
	var p Patch
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("not a JSON Patch: %w", err)
	}
	return p, nil
}

// Decode reads one JSON value, numbers as [encoding/json.Number] so that none loses a digit.
func Decode(b []byte) (any, error) { return decode(b) }

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}
