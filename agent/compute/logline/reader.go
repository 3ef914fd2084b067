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

// Format is that of a file logger: JSON where it is not nil, else Text.
type Format struct {
	Text string
	// JSON has the fields of a line. What is no string is a field whose value is not looked at.
	JSON map[string]any
	// Name is a word that tells the format from others of its [Family]. Where it stands once in the
	// format it is read as such, also where all of the family have the same; "" for none.
	Name string
}

// Forgeable returns an operator of a text format whose value a client can put line breaks into, ""
// for none: a file with such lines may hold any others.
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

// fields are the parts of a format that are read on their own: those of a JSON format by their key,
// else one with the key "".
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

// Reader reads the values of some operators out of lines.
type Reader struct {
	json  bool
	known map[string]bool // fields of a JSON line
	keys  []string        // of those that are read, sorted
	lines map[string]*substitution.Lines
	names int
	in    []string // by operator: the field that it is read from
	has   []bool
	why   []error
}

// NewReader reads lines of a format for some operators, by name. An operator of which nothing
// certain can be told counts as one that the format does not have; Hidden says why. placeholders
// are names of operators that somebody has replaced by a name or an address before Envoy has seen
// the format; they may be asked for too.
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

// Has reports whether values of the operator with an index among those asked for are read.
func (r *Reader) Has(i int) bool { return r.has[i] }

// Hidden says why values of an operator that the format has are not read; nil where they are, and
// where it does not have it.
func (r *Reader) Hidden(i int) error { return r.why[i] }

// Read returns the values of the operators, "" for one that is not read. It is false for a line
// that the format has not written.
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
		if !there { // Envoy leaves out or writes null for what has no value
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

// fieldText is the value of a field as text: Envoy writes numbers as such.
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
