// Package jsonpatch applies JSON Patch documents (RFC 6902) to JSON values and computes patches
// between values.
//
// A value has the types that encoding/json decodes into an any: nil, bool, string, float64 or
// [encoding/json.Number], map[string]any, and []any. Parts of a value may also be an
// [encoding/json.RawMessage], which represents the encoded value. It is decoded only if an
// operation refers to something inside, so large documents with equal parts are compared as bytes.
//
// Values are not modified. Results share unmodified parts with the input and must not be modified
// either. The package is pure; no input causes a panic or disproportionate memory use.
package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Operations of RFC 6902 section 4.
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
	Path  string // JSON Pointer of the target
	From  string // JSON Pointer of the source, for move and copy
	Value any    // for add, replace, and test; nil is null
}

// Patch is a JSON Patch document. Operations are applied in order.
type Patch []Operation

// MarshalJSON encodes the members that the operation uses.
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

// Decode decodes one JSON value with numbers as [encoding/json.Number], so no digit is lost.
func Decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON value")
	}
	return v, nil
}

// ParsePointer splits a JSON Pointer (RFC 6901) into unescaped tokens; "" is the whole document and
// has none. It returns an error if the pointer does not begin with a slash or if a tilde is not
// followed by 0 or 1.
func ParsePointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("%q does not begin with a slash: a path is empty or a list of /token", short(s))
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		if strings.Count(t, "~") != strings.Count(t, "~0")+strings.Count(t, "~1") {
			return nil, fmt.Errorf("%q: the tilde in %q is not followed by 0 or 1: use ~0 for a tilde and ~1 for a slash",
				short(s), short(t))
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// FormatPointer is the inverse of ParsePointer.
func FormatPointer(tokens []string) string {
	var b []byte
	for _, t := range tokens {
		b = appendToken(b, t)
	}
	return string(b)
}

func appendToken(b []byte, token string) []byte {
	token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
	return append(append(b, '/'), token...)
}

// index parses a token as a list index: digits without a leading zero (RFC 6901 section 4).
func index(token string) (int, error) {
	n, err := strconv.ParseUint(token, 10, 30)
	if err != nil || token[0] == '0' && len(token) > 1 {
		return 0, fmt.Errorf("%q is not a list index: use digits without a leading zero", short(token))
	}
	return int(n), nil
}

const maxShown = 120

// short shortens a value for a message.
func short(s string) string { return clip.Text(s, maxShown) }
