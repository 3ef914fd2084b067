package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Fault is one thing wrong with a document, in words that name the place, the value and what is
// allowed.
type Fault struct {
	File     string `json:"file,omitempty"`     // as given to Decode; "" when there is none
	Document int    `json:"document,omitempty"` // 1-based index in the stream; 0 when the whole stream is meant
	Line     int    `json:"line,omitempty"`     // 1-based in the file; 0 when not known
	Resource string `json:"resource,omitempty"` // Kind/mesh/name where it could be read
	Field    string `json:"field,omitempty"`    // field path, "spec.default.appendMatch[0].port"
	Reason   string `json:"reason"`             // the value, what is wrong, what is allowed, the remedy
}

// String returns "file:line: document 2 (Kind/mesh/name): field: reason" with the parts that are
// known.
func (f Fault) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	} else if f.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	if f.Document > 0 {
		fmt.Fprintf(&b, "document %d", f.Document)
		if f.Resource != "" {
			fmt.Fprintf(&b, " (%s)", f.Resource)
		}
		b.WriteString(": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Reason)
	return b.String()
}

// Faults is a list of faults; a non-empty one is an error.
type Faults []Fault

// Error joins the faults, one per line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil for an empty list, so that it can be returned as an error.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Validator collects faults below a field path. The zero value collects at the root.
type Validator struct {
	path string
	sink *[]Fault
}

// NewValidator returns a validator that appends to sink.
func NewValidator(path string, sink *[]Fault) *Validator { return &Validator{path: path, sink: sink} }

// Field returns the validator of a field below this one.
func (v *Validator) Field(name string) *Validator {
	p := name
	if v.path != "" {
		p = v.path + "." + name
	}
	return &Validator{path: p, sink: v.sink}
}

// Key returns the validator of a map entry below this one.
func (v *Validator) Key(key string) *Validator {
	return &Validator{path: fmt.Sprintf("%s[%q]", v.path, key), sink: v.sink}
}

// Index returns the validator of a list item below this one.
func (v *Validator) Index(i int) *Validator {
	return &Validator{path: fmt.Sprintf("%s[%d]", v.path, i), sink: v.sink}
}

// Hides reports whether the field at this path, or one around it, holds a secret, so that a fault
// must not quote it.
func (v *Validator) Hides() bool {
	return slices.ContainsFunc(stepPattern.FindAllString(v.path, -1), func(step string) bool {
		if key, err := strconv.Unquote(step); err == nil {
			step = key
		}
		return SecretField(step)
	})
}

// Faultf reports a fault at this path. What looks like a private key is left out of it.
func (v *Validator) Faultf(format string, args ...any) {
	*v.sink = append(*v.sink, Fault{Field: v.path, Reason: clip.Secrets(fmt.Sprintf(format, args...))})
}
