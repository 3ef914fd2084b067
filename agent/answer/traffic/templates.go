package traffic

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Limits of Templates.
const (
	maxTemplates = 256
	maxNesting   = 64
)

// Templates returns the log formats in resources, given as JSON: each text and each list of fields
// below a key "format".
func Templates(docs ...json.RawMessage) []logline.Format {
	var out []logline.Format
	seen := map[string]bool{}
	for _, doc := range docs {
		var v any
		if json.Unmarshal(doc, &v) == nil {
			out = appendTemplates(out, v, seen, 0)
		}
	}
	return out
}

func appendTemplates(out []logline.Format, v any, seen map[string]bool, depth int) []logline.Format {
	if depth > maxNesting {
		return out
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			out = appendTemplates(out, x, seen, depth+1)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key != "format" {
				out = appendTemplates(out, v[key], seen, depth+1)
				continue
			}
			text, _ := json.Marshal(v[key]) // never fails
			if f, ok := templateOf(v[key]); ok && !seen[string(text)] && len(out) < maxTemplates {
				seen[string(text)] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// templateOf returns the format in a field: a text, or an object with the text or the fields.
func templateOf(v any) (logline.Format, bool) {
	switch v := v.(type) {
	case string:
		return logline.Format{Text: v}, v != ""
	case map[string]any:
		for _, key := range [...]string{"plain", "json", "value"} {
			switch body := v[key].(type) {
			case string:
				return logline.Format{Text: body}, body != ""
			case []any:
				fields := map[string]any{}
				for _, x := range body {
					field, _ := x.(map[string]any)
					if name, ok := field["key"].(string); ok {
						fields[name] = field["value"]
					}
				}
				return logline.Format{JSON: fields}, len(fields) > 0
			}
		}
	}
	return logline.Format{}, false
}
