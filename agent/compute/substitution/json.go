package substitution

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Field is one entry of a JSON format, {key: value}.
type Field struct {
	Key   string // literal
	Value string // a format string; a single operator retains its type, other text becomes a string
}

// JSONError is a fault in a JSON format.
type JSONError struct {
	Index int  // of the field
	Key   bool // the fault is in the key, not in the value
	Err   error
}

// Error names the key or value and its fault.
func (e *JSONError) Error() string {
	role := "value"
	if e.Key {
		role = "key"
	}
	return fmt.Sprintf("field %d: the %s: %v", e.Index, role, e.Err)
}

// Unwrap returns the fault of the part.
func (e *JSONError) Unwrap() error { return e.Err }

// ParseJSONFormat parses the values of a JSON format like [ParseFormat]. Keys are literal.
// Duplicate keys are a fault, because Envoy's message is a map and would lose one. The errors are
// [*JSONError], at most one for each field, in order.
func ParseJSONFormat(fields []Field, placeholders ...string) ([][]Segment, []*JSONError) {
	var faults []*JSONError
	seen := make(map[string]int, len(fields))
	out := make([][]Segment, len(fields))
	for i, f := range fields {
		first, double := seen[f.Key]
		switch {
		case f.Key == "":
			faults = append(faults, &JSONError{Index: i, Key: true, Err: fmt.Errorf("it is empty: give the field a name")})
			continue
		case double:
			faults = append(faults, &JSONError{Index: i, Key: true,
				Err: fmt.Errorf("%q is already the key of field %d: each field has its own", clip.Value(f.Key), first)})
			continue
		}
		seen[f.Key] = i
		segs, err := ParseFormat(f.Value, placeholders...)
		if err != nil {
			faults = append(faults, &JSONError{Index: i, Err: err})
			continue
		}
		out[i] = segs
	}
	return out, faults
}
