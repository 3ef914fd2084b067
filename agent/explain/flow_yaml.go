package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// document is a resource as YAML.
type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) {
	fmt.Fprintf(&d.Builder, format+"\n", args...)
}

func (d *document) head(kind, mesh, name string) {
	d.line("type: %s", kind)
	d.line("mesh: %s", scalar(mesh))
	d.line("name: %s", scalar(name))
}

// scalar writes a string so that YAML reads it as one: plain where that is beyond doubt, else in quotes, whose escapes
// are those of JSON.
func scalar(s string) string {
	plain := len(s) > 0 && s[0] >= 'a' && s[0] <= 'z'
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '/' && i > 0
	}
	if !plain || slices.Contains([]string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}, s) {
		if q := jsonOf(s); q != nil {
			return string(q)
		}
		return strconv.QuoteToASCII(s)
	}
	return s
}

// mapping writes a map in one line, sorted.
func mapping(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, scalar(k)+": "+scalar(m[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
