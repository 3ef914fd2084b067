package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"
)

// UnmarshalJSON decodes an operation. It ignores members that RFC 6902 does not define. A missing
// or mistyped member, an unknown operation, and a malformed pointer are errors. Numbers are decoded
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
			return fmt.Errorf("%s %s: the member value is missing", o.Op, short(o.Path))
		}
		v, err := Decode(in.Value)
		if err != nil {
			return err
		}
		o.Value = v
	case Move, Copy:
		if in.From == nil {
			return fmt.Errorf("%s %s: the member from is missing", o.Op, short(o.Path))
		}
		o.From = *in.From
		if _, err := ParsePointer(o.From); err != nil {
			return fmt.Errorf("from: %w", err)
		}
	case Remove:
	default:
		return fmt.Errorf("%q is not an operation: use add, remove, replace, move, copy, or test", short(o.Op))
	}
	if _, err := ParsePointer(o.Path); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	return nil
}

// Parse decodes a JSON Patch document in the notation of RFC 6902.
func Parse(b []byte) (Patch, error) {
	var p Patch
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("not a JSON Patch: %w", err)
	}
	return p, nil
}
