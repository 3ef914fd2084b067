// Package params checks the parameters of API requests against their limits: type, range, length,
// allowed values, and number. A parameter that a route does not have, one that is given too often,
// and a query that cannot be parsed are errors too, so no part of a query is silently ignored.
// docs/openapi.yaml shows the same limits.
package params

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Types of values.
const (
	String  = "string"
	Integer = "integer"
	Boolean = "boolean"
)

// Limits are the limits of a parameter.
type Limits struct {
	Type     string // [String], [Integer], or [Boolean]
	Min, Max int    // of an integer
	// MaxLength bounds the characters of a string, or of each item of a list.
	MaxLength int
	// Pattern is a regular expression for strings. The handler of the route checks it.
	Pattern string
	Enum    []string // allowed values; empty: all
	Default string   // value of an absent parameter; "": none
	Required,
	Comma bool // a list, separated by commas
	Many int // the parameter may be repeated, up to this number; 0: given once
}

// IsList reports whether the value is a list.
func (l *Limits) IsList() bool { return l.Comma || l.Many > 0 }

// Check returns the answer to a request whose query or path values are not within the limits of its
// route, or nil.
func Check(method, pattern string, r *http.Request) *api.Error {
	for _, name := range InPath(pattern) {
		l := OfPath(name)
		if why := l.fault(r.PathValue(name)); why != "" {
			return api.NewInvalid("path parameter "+name+": "+why, api.InvalidParameter{Field: name, Reason: why})
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return api.NewInvalid("the query cannot be parsed; separate parameters with &, and encode other special " +
			"characters with %")
	}
	known := strings.Fields(api.QueryParameters(method, pattern))
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			allowed := "this path has " + cmp.Or(strings.Join(known, ", "), "no query parameters")
			name = clip.Value(name)
			return api.NewInvalid("unknown query parameter "+name+"; "+allowed,
				api.InvalidParameter{Field: name, Reason: "unknown; " + allowed})
		}
		l := Of(method, pattern, name)
		if why := l.check(query[name]); why != "" {
			return api.NewInvalid("query parameter "+name+": "+why, api.InvalidParameter{Field: name, Reason: why})
		}
	}
	return nil
}

// InPath returns the names of the parameters in the pattern of a route.
func InPath(pattern string) (names []string) {
	for _, segment := range strings.Split(pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok && segment != "{$}" {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// check returns why values of a parameter are invalid, or "".
func (l *Limits) check(values []string) string {
	switch most := max(1, l.Many); {
	case len(values) > most && l.Many > 0:
		return fmt.Sprintf("is given %d times; give it at most %d times", len(values), most)
	case len(values) > most && l.Type == Boolean:
		return fmt.Sprintf("%q is invalid; give true or false, once", clip.Value(strings.Join(values, ",")))
	case len(values) > most && l.Type == Integer:
		return fmt.Sprintf("%q is invalid; give one whole number from %d to %d",
			clip.Value(strings.Join(values, ",")), l.Min, l.Max)
	case len(values) > most:
		return fmt.Sprintf("is given %d times; give it once", len(values))
	}
	for _, v := range values {
		items := []string{v}
		if l.Comma {
			items = strings.Split(v, ",")
		}
		for _, item := range items {
			if why := l.fault(item); why != "" {
				return why
			}
		}
	}
	return ""
}

// fault returns why a value is invalid, or "". The handlers decide about empty strings: most take
// them as absent.
func (l *Limits) fault(v string) string {
	invalid := func(allowed string, args ...any) string {
		return fmt.Sprintf("%q is invalid; ", clip.Value(v)) + fmt.Sprintf(allowed, args...)
	}
	switch l.Type {
	case Boolean:
		if v != "true" && v != "false" {
			return invalid("give true or false, once")
		}
	case Integer:
		if n, err := strconv.Atoi(v); err != nil || n < l.Min || n > l.Max {
			return invalid("give one whole number from %d to %d", l.Min, l.Max)
		}
	case String:
		if n := utf8.RuneCountInString(v); l.MaxLength > 0 && n > l.MaxLength {
			return invalid("it has %d characters, at most %d are allowed", n, l.MaxLength)
		}
		if v != "" && len(l.Enum) > 0 && !slices.Contains(l.Enum, v) {
			return invalid("use one of %s", strings.Join(l.Enum, ", "))
		}
	}
	return ""
}
