// Package jsonpatch applies JSON Patch documents (RFC 6902) to JSON values and finds the patch that
// leads from one value to another.
//
// A value is what encoding/json decodes into an any: nil, bool, string, float64 or
// [encoding/json.Number], map[string]any and []any. A part of a value may also be
// an [encoding/json.RawMessage]: it stands for the value that it holds and is decoded only when
// something in it is looked at, so that large documents whose parts are alike are compared as
// bytes.
//
// Values are never changed: results share what is alike with the values that they were made from,
// and must not be changed either. The package is pure, and no input makes it panic or use memory
// out of proportion.
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

// The operations of RFC 6902 section 4.
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
	Path  string // JSON Pointer of the place
	From  string // JSON Pointer of the source, of move and copy
	Value any    // of add, replace and test; nil is null
}

// Patch is a JSON Patch document: operations that are applied in their order.
type Patch []Operation

// MarshalJSON writes the members that the operation has.
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

// Decode reads one JSON value, numbers as [encoding/json.Number] so that none loses a digit.
func Decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

// ParsePointer splits a JSON Pointer (RFC 6901) into its unescaped tokens; "" is the whole document
// and has none. It fails when the pointer does not begin with a slash, or when a tilde is not
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
			return nil, fmt.Errorf("%q: the tilde in %q is followed by neither 0 nor 1: write ~0 for a tilde and ~1 for a slash",
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

// index reads a token as the index of a list: digits without a leading zero (RFC 6901 section 4).
func index(token string) (int, error) {
	n, err := strconv.ParseUint(token, 10, 30)
	if err != nil || token[0] == '0' && len(token) > 1 {
		return 0, fmt.Errorf("%q is not the index of a list: digits without a leading zero", short(token))
	}
	return int(n), nil
}

const maxShown = 120

// short shortens what a message shows.
func short(s string) string { return clip.Text(s, maxShown) }
