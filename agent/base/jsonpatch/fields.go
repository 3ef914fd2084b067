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
	// Path is a field path such as "spec.to[0].default.idleTimeout". Items of lists are identified
	// by name if they have one.
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"` // absent if the field did not exist
	After  json.RawMessage `json:"after,omitempty"`  // absent if the field does not exist any more
}

// Fields returns the changes of a patch with readable paths. It applies the patch to the document
// in place. skip is the number of pointer tokens that lead to the document.
func Fields(document any, patch Patch, skip int) []FieldChange {
	out := make([]FieldChange, 0, len(patch))
	for i := range patch {
		tokens, err := ParsePointer(patch[i].Path)
		if err != nil || len(tokens) < skip {
			continue // Diff returns no such pointers
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

// FieldsBetween returns the differences between two JSON documents.
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

// follow descends to the target of an operation, appends the readable path to words, and applies
// the operation. It returns the new value of v and the previous value of the target.
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

// WriteKey appends a member of an object to a path.
func WriteKey(words *strings.Builder, key string) {
	if key == "" || strings.ContainsAny(key, ".[]/ ") {
		words.WriteString("[" + key + "]")
		return
	}
	words.WriteString("." + key)
}

// writeItem appends an item of a list to a path, by name or by index.
func writeItem(words *strings.Builder, item any, index int) {
	if o, ok := Open(item).(map[string]any); ok {
		if name, ok := o["name"].(string); ok && name != "" {
			words.WriteString("[" + name + "]")
			return
		}
	}
	words.WriteString("[" + strconv.Itoa(index) + "]")
}

// Open decodes one level of a raw part.
func Open(v any) any {
	if raw, ok := v.(json.RawMessage); ok {
		v, _ = Decode(raw)
	}
	return v
}

// Compact returns the JSON of a value on one line.
func Compact(v any) json.RawMessage {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // unreachable: a decoded value has a JSON form
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
