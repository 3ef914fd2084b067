package effect

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// maxVariants limits the valid other values that are tried for one field.
const maxVariants = 4

// variants returns policies in which the field at a path has another valid value.
func (d *document) variants(path []string, s map[string]any) []*resource.Resource {
	value, ok := at(d.root, path)
	if !ok {
		return nil
	}
	var out []*resource.Resource
	try := func(list []any) {
		for _, other := range list {
			if r := d.policyOf(edit(d.root, path, other)); r != nil && r.Digest != d.policy.Digest {
				if out = append(out, r); len(out) == maxVariants {
					break
				}
			}
		}
	}
	try(otherValues(value, schemaAt(s, path)))
	if text, ok := value.(string); ok && len(out) == 0 { // the error for a wrong value names the valid ones
		try(d.namedValues(path, text))
	}
	return out
}

// namedValues returns the words of the error for a value that is not valid.
func (d *document) namedValues(path []string, text string) []any {
	b, err := json.Marshal(edit(d.root, path, text+"x"))
	if err != nil {
		return nil
	}
	_, err = d.decode(b)
	if err == nil {
		return nil
	}
	var out []any
	for _, word := range strings.FieldsFunc(err.Error(), func(c rune) bool {
		return c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	}) {
		if word != text && word != text+"x" && !slices.Contains(out, any(word)) && len(out) < maxWords {
			out = append(out, word)
		}
	}
	return out
}

// maxWords limits the words of an error that are tried.
const maxWords = 64

// schemaOf returns the JSON Schema of a kind.
func schemaOf(d resource.Descriptor) map[string]any {
	return schema.Of(d, func(string) string { return "" })
}

// schemaAt returns the schema at a path, or nil if it is unknown.
func schemaAt(s map[string]any, path []string) map[string]any {
	for _, token := range path {
		if props, ok := s["properties"].(map[string]any); ok {
			s, _ = props[token].(map[string]any)
		} else if items, ok := s["items"].(map[string]any); ok {
			s = items
		} else {
			s, _ = s["additionalProperties"].(map[string]any)
		}
	}
	return s
}

// otherValues returns values other than v that may be valid instead of it, the most likely first.
func otherValues(v any, s map[string]any) []any {
	var out []any
	switch v := v.(type) {
	case bool:
		return []any{!v}
	case json.Number:
		if f, err := v.Float64(); err == nil {
			for _, n := range []float64{f + 1, f - 1, f / 2, 1} {
				if n != f {
					out = append(out, n)
				}
			}
		}
		return out
	case string:
		return otherTexts(v, s)
	case []any:
		items, _ := s["items"].(map[string]any)
		for i, item := range v {
			for _, other := range otherValues(item, items) {
				next := slices.Clone(v)
				next[i] = other
				out = append(out, next)
			}
			if len(out) > 4*maxVariants {
				break
			}
		}
		if len(v) > 1 {
			out = append([]any{v[:len(v)-1], v[1:]}, out...)
		}
		return out
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, other := range otherValues(v[name], schemaAt(s, []string{name})) {
				next := maps.Clone(v)
				next[name] = other
				out = append(out, next)
			}
		}
	}
	return out
}

// otherTexts returns other texts of the same form.
func otherTexts(v string, s map[string]any) []any {
	var out []any
	if enum, ok := s["enum"].([]string); ok {
		for _, other := range enum {
			if other != v {
				out = append(out, other)
			}
		}
		return out
	}
	if d, err := time.ParseDuration(v); err == nil {
		return []any{(d + time.Second).String(), (d + time.Hour).String(), (d / 2).String()}
	}
	if f, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64); err == nil {
		unit := ""
		if strings.HasSuffix(v, "%") {
			unit = "%"
		}
		for _, n := range []float64{f + 1, f - 1, f / 2} {
			out = append(out, strconv.FormatFloat(n, 'f', -1, 64)+unit)
		}
		return out
	}
	out = append(out, v+"x", "x"+v, v+"1", v+".x", v+"/x")
	if i := strings.LastIndexAny(v, "0123456789"); i >= 0 {
		digit := (v[i]-'0'+1)%10 + '0'
		out = append([]any{v[:i] + string(digit) + v[i+1:]}, out...)
		if first := strings.IndexAny(v, "0123456789"); first < i { // the last digit may be rounded
			digit = (v[first]-'0')%9 + '1'
			out = append(out[:1:1], append([]any{v[:first] + string(digit) + v[first+1:]}, out[1:]...)...)
		}
	}
	return out
}
