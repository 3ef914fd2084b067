package substitution

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Field is one entry of a JSON format, written as {key: value}.
type Field struct {
	Key   string // stands in the log as it is
	Value string // a format string; one operator alone keeps its type, other text makes a string
}

// JSONError is a fault in a JSON format.
type JSONError struct {
	Index int  // of the field
	Key   bool // its key is meant, else its value
	Err   error
}

// Error names the part and what is wrong with it.
func (e *JSONError) Error() string {
	part := "value"
	if e.Key {
		part = "key"
	}
	return fmt.Sprintf("field %d: the %s: %v", e.Index, part, e.Err)
}

// Unwrap returns what is wrong with the part.
func (e *JSONError) Unwrap() error { return e.Err }

// ParseJSONFormat reads the values of a JSON format, each as [ParseFormat] does. Keys are literal:
// nothing in them is replaced. Envoy's message is a map, so of two equal keys one would be lost:
// that is a fault here. The errors are [*JSONError], one for each field at most, in their order.
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
