// Package strict reads YAML and JSON documents strictly into typed values.
//
// A document becomes a tree of nodes with their lines, and the tree fills plain Go structs by their
// json tags. Every fault is collected, with its line, its field path, the value, what is allowed
// and the remedy: unknown and repeated keys, values of another type, and what the user of the
// package checks in addition ([Hooks]). Limits bound what a document may cost before anything is
// allocated for it. Reflection stays here; what it fills is typed.
//
// The package is pure and knows neither resources nor the agent's config, which are both read with
// it.
package strict

import (
	"fmt"
	"strings"
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

// Within reports whether a field path is another one or lies below it.
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
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
