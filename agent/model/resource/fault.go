package resource

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Fault is one error in a document.
type Fault = strict.Fault

// Faults is a list of faults.
type Faults = strict.Faults

// Limits limits the size of decoded documents.
type Limits = strict.Limits

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

// Hides reports whether the field at this path, or one that contains it, holds a secret that a
// fault must not quote.
func (v *Validator) Hides() bool {
	return slices.ContainsFunc(strict.Steps(v.path), secret.Field)
}

// Faultf reports a fault at this path. It redacts text that looks like a private key.
func (v *Validator) Faultf(format string, args ...any) {
	*v.sink = append(*v.sink, Fault{Field: v.path, Reason: clip.Secrets(fmt.Sprintf(format, args...))})
}
