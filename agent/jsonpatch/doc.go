// Package jsonpatch applies JSON Patch documents (RFC 6902) to JSON values and finds the patch that leads from one
// value to another.
//
// A value is what encoding/json decodes into an any: nil, bool, string, float64 or [encoding/json.Number],
// map[string]any and []any. A part of a value may also be an [encoding/json.RawMessage]: it stands for the value that
// it holds and is decoded only when something in it is looked at, so that large documents whose parts are alike are
// compared as bytes.
//
// Values are never changed: results share what is alike with the values that they were made from, and must not be
// changed either. The package is pure, and no input makes it panic or use memory out of proportion.
package jsonpatch
