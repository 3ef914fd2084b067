package effect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// leaf is a value that is not a mapping, or an empty mapping.
type leaf struct {
	path   string
	tokens []string // of the path
	value  json.RawMessage
}

// leavesOf returns the values of a conf in document order.
func leavesOf(c resource.Conf) []leaf {
	if c == nil {
		return nil
	}
	doc := JSONOf(c)
	if doc == nil {
		return nil // unreachable: a decoded conf has a JSON form
	}
	var out []leaf
	walk(doc, "", nil, &out)
	return out
}

// JSONOf returns the compact JSON of a value without HTML escapes, or nil if it has none.
func JSONOf(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func walk(doc json.RawMessage, path string, tokens []string, out *[]leaf) {
	if len(doc) < 3 || doc[0] != '{' {
		if path != "" {
			*out = append(*out, leaf{path, tokens, doc})
		}
		return
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	if _, err := d.Token(); err != nil {
		return
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return
		}
		name, _ := key.(string)
		walk(value, join(path, name), append(slices.Clip(tokens), name), out)
	}
}

// join appends a key to a path in the notation of decoding errors.
func join(path, key string) string {
	if key == "" || bytes.ContainsFunc([]byte(key), func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// remains says how much of a value is left in the merged value. An entry of a list is left if the
// merged list has an entry that contains it.
func remains(own, merged json.RawMessage) string {
	if bytes.Equal(own, merged) {
		return api.EffectAll
	}
	var a, b []json.RawMessage
	if json.Unmarshal(own, &a) != nil || json.Unmarshal(merged, &b) != nil {
		return api.EffectAll // unreachable for other values: own decided the merged value
	}
	left := 0
	for _, x := range a {
		if slices.ContainsFunc(b, func(y json.RawMessage) bool { return within(x, y) }) {
			left++
		}
	}
	if left == len(a) {
		return api.EffectAll
	}
	return api.EffectPart
}

// within reports whether y contains all values of x. Both have the same type, so equal values have
// equal bytes.
func within(x, y json.RawMessage) bool {
	var a, b []leaf
	walk(x, "", nil, &a)
	walk(y, "", nil, &b)
	if len(a) == 0 || len(b) == 0 { // not mappings, or empty
		return bytes.Equal(x, y) || len(a) == 0 && len(x) > 0 && x[0] == '{' && len(y) > 0 && y[0] == '{'
	}
	for _, l := range a {
		empty := string(l.value) == "{}" // contained in any mapping with its path
		if !slices.ContainsFunc(b, func(m leaf) bool {
			return m.path == l.path && bytes.Equal(m.value, l.value) || empty && strings.HasPrefix(m.path, l.path+".")
		}) {
			return false
		}
	}
	return true
}
