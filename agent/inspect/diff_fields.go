package inspect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/jsonpatch"
)

// fieldDiffs tells a patch of a document in words. The document is changed on the way; of the tokens of each path the
// first skip lead to it.
func fieldDiffs(document any, patch jsonpatch.Patch, skip int) []FieldDiff {
	out := make([]FieldDiff, 0, len(patch))
	for i := range patch {
		tokens, err := jsonpatch.ParsePointer(patch[i].Path)
		if err != nil || len(tokens) < skip {
			continue // Diff writes no such pointers
		}
		var words strings.Builder
		var before any
		document, before = follow(document, tokens[skip:], &patch[i], &words)
		f := FieldDiff{Path: strings.TrimPrefix(words.String(), "."), By: []Ref{}}
		if patch[i].Op != jsonpatch.Add {
			f.Before = encode(before)
		}
		if patch[i].Op != jsonpatch.Remove {
			f.After = encode(patch[i].Value)
		}
		out = append(out, f)
	}
	return out
}

// follow goes down a path to what an operation is about, writes the path in words and carries the operation out. It
// returns what the value has become, and what was at the end of the path.
func follow(v any, tokens []string, op *jsonpatch.Operation, words *strings.Builder) (next, before any) {
	if len(tokens) == 0 {
		return op.Value, v
	}
	token, last := tokens[0], len(tokens) == 1
	switch v := opened(v).(type) {
	case map[string]any:
		writeKey(words, token)
		switch {
		case !last:
			v[token], before = follow(v[token], tokens[1:], op, words)
		case op.Op == jsonpatch.Remove:
			before = v[token]
			delete(v, token)
		default:
			before, v[token] = v[token], op.Value
		}
		return v, before
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i > len(v) || i == len(v) && (!last || op.Op != jsonpatch.Add) {
			return v, nil
		}
		if last && op.Op == jsonpatch.Add {
			writeItem(words, op.Value, i)
			return slices.Insert(v, i, op.Value), nil
		}
		writeItem(words, v[i], i)
		switch {
		case !last:
			v[i], before = follow(v[i], tokens[1:], op, words)
		case op.Op == jsonpatch.Remove:
			before = v[i]
			return slices.Delete(v, i, i+1), before
		default:
			before, v[i] = v[i], op.Value
		}
		return v, before
	}
	return v, nil
}

// writeKey adds a member of an object to a path.
func writeKey(words *strings.Builder, key string) {
	if key == "" || strings.ContainsAny(key, ".[]/ ") {
		words.WriteString("[" + key + "]")
		return
	}
	words.WriteString("." + key)
}

// writeItem adds an item of a list to a path: by its name, else by its place.
func writeItem(words *strings.Builder, item any, place int) {
	if o, ok := opened(item).(map[string]any); ok {
		if name, ok := o["name"].(string); ok && name != "" {
			words.WriteString("[" + name + "]")
			return
		}
	}
	words.WriteString("[" + strconv.Itoa(place) + "]")
}

// opened decodes a part that was left as it was.
func opened(v any) any {
	if raw, ok := v.(json.RawMessage); ok {
		v, _ = jsonpatch.Decode(raw)
	}
	return v
}

// encode writes a JSON value on one line.
func encode(v any) json.RawMessage {
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
