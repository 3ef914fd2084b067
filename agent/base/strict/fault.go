// Package strict decodes YAML and JSON documents strictly into typed values.
//
// A document becomes a tree of nodes with line numbers, and the tree is decoded into Go structs by
// their json tags. All faults are collected with line, field path, value, allowed values, and
// remedy: unknown and duplicate keys, values of the wrong type, and the checks that the caller adds
// ([Hooks]). Limits are enforced before memory is allocated. Only this package uses reflection to
// decode.
//
// The package is pure and independent of resources and the agent's config, which both use it.
package strict

import (
	"fmt"
	"strings"
)

// Fault describes one error in a document: its location, the value, and the allowed values.
type Fault struct {
	File     string `json:"file,omitempty"`     // as passed to Decode; "" if unknown
	Document int    `json:"document,omitempty"` // 1-based index in the stream; 0 if the fault concerns the whole stream
	Line     int    `json:"line,omitempty"`     // 1-based line in the file; 0 if unknown
	Resource string `json:"resource,omitempty"` // Kind/mesh/name, if it could be decoded
	Field    string `json:"field,omitempty"`    // field path, such as "spec.default.appendMatch[0].port"
	Reason   string `json:"reason"`             // the value, the error, what is allowed, and the remedy
}

// String formats the fault as "file:line: document 2 (Kind/mesh/name): field: reason", without
// unknown parts.
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

// Within reports whether a field path equals another one or is below it.
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Faults is a list of faults. It implements error if it is not empty.
type Faults []Fault

// Error returns the faults, one per line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil for an empty list.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}
