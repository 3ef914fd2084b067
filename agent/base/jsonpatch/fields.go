package jsonpatch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// FieldChange is a value that differs between two documents.
type FieldChange struct {
	// "spec.to[0].default.idleTimeout"; items of lists by name where they have one
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"` // absent when there was nothing
	After  json.RawMessage `json:"after,omitempty"`  // absent when there is nothing
}

// Fields returns what a patch changes in a document, with paths for people. The document is changed
// on the way. Of the tokens of each pointer the first skip lead to the document.
func Fields(document any, patch Patch, skip int) []FieldChange {
	out := make([]FieldChange, 0, len(patch))
	for i := range patch {
		tokens, err := ParsePointer(patch[i].Path)
		if err != nil || len(tokens) < skip {
			continue // Diff writes no such pointers
		}
		var words strings.Builder
		var before any
		document, before = follow(document, tokens[skip:], &patch[i], &words)
		f := FieldChange{Path: strings.TrimPrefix(words.String(), ".")}
		if patch[i].Op != Add {
			f.Before = Compact(before)
		}
		if patch[i].Op != Remove {
			f.After = Compact(patch[i].Value)
		}
		out = append(out, f)
	}
	return out
}

// FieldsBetween returns the fields in which two JSON documents differ.
func FieldsBetween(from, to []byte) ([]FieldChange, error) {
	a, err := Decode(from)
	if err != nil {
		return nil, err
	}
	b, err := Decode(to)
	if err != nil {
		return nil, err
	}
	return Fields(a, Diff(a, b), 0), nil
}

// follow goes down a path to what an operation is about, writes the path in words and carries the
// operation out. It returns what the value has become, and what was at the end of the path.
func follow(v any, tokens []string, op *Operation, words *strings.Builder) (next, before any) {
	if len(tokens) == 0 {
		return op.Value, v
	}
	token, last := tokens[0], len(tokens) == 1
	switch v := Open(v).(type) {
	case map[string]any:
		WriteKey(words, token)
		switch {
		case !last:
			v[token], before = follow(v[token], tokens[1:], op, words)
		case op.Op == Remove:
			before = v[token]
			delete(v, token)
		default:
			before, v[token] = v[token], op.Value
		}
		return v, before
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i > len(v) || i == len(v) && (!last || op.Op != Add) {
			return v, nil
		}
		if last && op.Op == Add {
			writeItem(words, op.Value, i)
			return slices.Insert(v, i, op.Value), nil
		}
		writeItem(words, v[i], i)
		switch {
		case !last:
			v[i], before = follow(v[i], tokens[1:], op, words)
		case op.Op == Remove:
			before = v[i]
			return slices.Delete(v, i, i+1), before
		default:
			before, v[i] = v[i], op.Value
		}
		return v, before
	}
	return v, nil
}

// WriteKey adds a member of an object to a path.
func WriteKey(words *strings.Builder, key string) {
	if key == "" || strings.ContainsAny(key, ".[]/ ") {
		words.WriteString("[" + key + "]")
		return
	}
	words.WriteString("." + key)
}

// writeItem adds an item of a list to a path: by its name, else by its place.
func writeItem(words *strings.Builder, item any, place int) {
	if o, ok := Open(item).(map[string]any); ok {
		if name, ok := o["name"].(string); ok && name != "" {
			words.WriteString("[" + name + "]")
			return
		}
	}
	words.WriteString("[" + strconv.Itoa(place) + "]")
}

// Open decodes a part of a document that is still in its JSON form, one level of it.
func Open(v any) any {
	if raw, ok := v.(json.RawMessage); ok {
		v, _ = Decode(raw)
	}
	return v
}

// Compact writes a JSON value on one line.
func Compact(v any) json.RawMessage {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // a decoded value always has a JSON form
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
