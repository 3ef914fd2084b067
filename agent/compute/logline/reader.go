package logline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

// Format is the format of a file logger: JSON if it is not nil, or else Text.
type Format struct {
	Text string
	// JSON has the fields of a line. Values that are not strings are ignored.
	JSON map[string]any
	// Name is a word that identifies the format within its [Family], or "". If it occurs once in the
	// format, it is read as such, even if all formats of the family have the same word.
	Name string
}

// Forgeable returns an operator of a text format whose value can contain line breaks from a client,
// or "". Any line of such a file may be forged.
func (f *Format) Forgeable() string {
	if f.JSON != nil {
		return ""
	}
	segs, err := substitution.ParseFormat(f.Text)
	if err != nil {
		return ""
	}
	for i := range segs {
		if s := &segs[i]; s.Operator == "QUERY_PARAM" || s.Operator == "QUERY_PARAMS" && s.Arg != "ORIG" {
			return s.Raw
		}
	}
	return ""
}

// fields returns the parts of a format that are read separately: those of a JSON format by key, or
// a single one with the key "".
func (f *Format) fields(placeholders []string) (map[string][]substitution.Segment, error) {
	out := map[string][]substitution.Segment{}
	if f.JSON == nil {
		segs, err := substitution.ParseFormat(strings.TrimSuffix(f.Text, "\n"), placeholders...)
		out[""] = segs
		return out, err
	}
	for _, key := range slices.Sorted(maps.Keys(f.JSON)) {
		text, ok := f.JSON[key].(string)
		if !ok {
			continue
		}
		segs, err := substitution.ParseFormat(text, placeholders...)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", clip.Value(key), err)
		}
		out[key] = segs
	}
	return out, nil
}

// Reader reads the values of some operators from lines.
type Reader struct {
	json  bool
	known map[string]bool // fields of a JSON line
	keys  []string        // of the fields that are read, sorted
	lines map[string]*substitution.Lines
	names int
	in    []string // by operator: the field from which it is read
	has   []bool
	why   []error
}

// NewReader returns a reader of some operators, by name. An operator without a reliable value
// counts as missing, and Hidden returns the reason. placeholders are names of operators that are
// replaced by a name or an address before Envoy reads the format; they may be requested as well.
func NewReader(f Format, placeholders []string, names ...string) (*Reader, error) {
	fields, err := f.fields(placeholders)
	if err != nil {
		return nil, err
	}
	return newReader(&f, fields, names)
}

func newReader(f *Format, fields map[string][]substitution.Segment, names []string) (*Reader, error) {
	r := &Reader{json: f.JSON != nil, known: map[string]bool{}, lines: map[string]*substitution.Lines{}, names: len(names),
		in: make([]string, len(names)), has: make([]bool, len(names)), why: make([]error, len(names))}
	for key := range f.JSON {
		r.known[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		segs := fields[key]
		constant := !slices.ContainsFunc(segs, func(s substitution.Segment) bool { return s.Operator != "" })
		asked := slices.ContainsFunc(segs, func(s substitution.Segment) bool { return slices.Contains(names, s.Name()) })
		if r.json && !constant && !asked {
			continue
		}
		l, err := substitution.NewLinesOfSome(segs, names...)
		if err != nil {
			return nil, err
		}
		r.lines[key] = l
		r.keys = append(r.keys, key)
		for i := range names {
			switch {
			case l.Has(i) && !r.has[i]:
				r.has[i], r.in[i], r.why[i] = true, key, nil
			case !r.has[i] && r.why[i] == nil && l.Hidden(i) != nil:
				if r.why[i] = l.Hidden(i); r.json {
					r.why[i] = fmt.Errorf("field %q: %w", clip.Value(key), l.Hidden(i))
				}
			}
		}
	}
	return r, nil
}

// Has reports whether values of the operator with the given index are read.
func (r *Reader) Has(i int) bool { return r.has[i] }

// Hidden returns why the values of an operator in the format are not read. It returns nil if they
// are read, and if the format lacks the operator.
func (r *Reader) Hidden(i int) error { return r.why[i] }

// Read returns the values of the operators; "" if one is not read. It returns false for a line that
// the format cannot have produced.
func (r *Reader) Read(line []byte) ([]string, bool) {
	if !r.json {
		return r.lines[""].Read(string(line))
	}
	var fields map[string]json.RawMessage
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		return nil, false
	}
	for key := range fields {
		if !r.known[key] {
			return nil, false
		}
	}
	out := make([]string, r.names)
	for _, key := range r.keys {
		text, there, ok := fieldText(fields[key])
		if !ok {
			return nil, false
		}
		if !there { // Envoy omits a field without a value, or writes null
			continue
		}
		values, ok := r.lines[key].Read(text)
		if !ok {
			return nil, false
		}
		for i, v := range values {
			if r.has[i] && r.in[i] == key {
				out[i] = v
			}
		}
	}
	return out, true
}

// fieldText returns the value of a field as text; Envoy writes numbers unquoted.
func fieldText(raw json.RawMessage) (text string, there, ok bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", false, true
	}
	if raw[0] == '"' {
		ok = json.Unmarshal(raw, &text) == nil
		return text, true, ok
	}
	return string(raw), true, raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'
}
