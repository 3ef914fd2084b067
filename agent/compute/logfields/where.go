package logfields

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Condition compares a field with a value. It is safe for concurrent use.
type Condition struct {
	Field Field

	operator string
	text     []byte
	number   float64
	numeric  bool
	at       time.Time // zero: the value is not a time
	pattern  *regexp.Regexp
	literal  []byte // a line without it does not match; nil: any line may match
}

// Limits of conditions.
const (
	MaxConditions = 16
	maxCondition  = 1 << 10 // bytes
)

// operators are in the order in which they are searched at one position.
var operators = []string{"!=", "!~", ">=", "<=", "=", "~", ">", "<"}

// ParseCondition parses FIELD OPERATOR VALUE, such as "path~^/api/". The operators are = and !=
// (equal), ~ and !~ (a regular expression of RE2 matches a part of the value), and >, >=, <, and <=
// (numbers, durations such as 500ms, sizes such as 10KiB, and times of RFC 3339).
func ParseCondition(text string) (*Condition, error) {
	if len(text) > maxCondition {
		return nil, fmt.Errorf("the condition has %d bytes; at most %d are allowed", len(text), maxCondition)
	}
	at := strings.IndexAny(text, "=!~<>")
	operator := ""
	for _, o := range operators {
		if at > 0 && operator == "" && strings.HasPrefix(text[at:], o) {
			operator = o
		}
	}
	if operator == "" {
		return nil, fmt.Errorf("%q is not a condition; give FIELD OPERATOR VALUE with one of the operators "+
			"= != ~ !~ > >= < <=, such as 'duration>500ms'", text)
	}
	field, err := Named(text[:at])
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	c := &Condition{Field: field, operator: operator}
	value := text[at+len(operator):]
	switch operator {
	case "~", "!~":
		if c.pattern, err = regexp.Compile(value); err != nil {
			return nil, fmt.Errorf("%q: the regular expression is invalid; see https://github.com/google/re2/wiki/Syntax", text)
		}
		if prefix, _ := c.pattern.LiteralPrefix(); operator == "~" {
			c.literal = searchable(prefix)
		}
		return c, nil
	}
	c.text = []byte(strings.TrimSpace(value))
	c.number, c.numeric = quantity(string(c.text))
	if !c.numeric {
		c.at, _ = time.Parse(time.RFC3339Nano, string(c.text))
	}
	switch {
	case operator[0] == '<' || operator[0] == '>':
		if !c.numeric && c.at.IsZero() {
			return nil, fmt.Errorf("%q: %s compares numbers (503), durations (500ms), sizes (10KiB), and times "+
				"(2026-01-31T12:00:00Z); use = or ~ for text", text, operator)
		}
	case operator == "=" && !c.numeric:
		c.literal = searchable(string(c.text))
	}
	return c, nil
}

// searchable returns the text if text and JSON lines contain it in the same form, or nil.
func searchable(text string) []byte {
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/._-:?&=", c) >= 0) {
			return nil
		}
	}
	if len(text) < 2 {
		return nil
	}
	return []byte(text)
}

// units are suffixes of numbers. Durations are in milliseconds, sizes in bytes.
var units = []struct {
	suffix string
	factor float64
}{
	{"us", 1e-3}, {"ms", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1 << 10}, {"MiB", 1 << 20},
	{"GiB", 1 << 30}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3},
}

// quantity parses a number with an optional unit.
func quantity(text string) (float64, bool) {
	factor := 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, factor = rest, u.factor
			break
		}
	}
	n, ok := decimal([]byte(text))
	return n * factor, ok
}

// decimal parses a decimal number without an exponent.
func decimal(text []byte) (float64, bool) {
	whole := len(text) > 0 && len(text) <= 15
	n := 0
	for _, c := range text {
		whole = whole && c >= '0' && c <= '9'
		n = n*10 + int(c-'0')
	}
	if whole {
		return float64(n), true
	}
	for _, c := range text {
		if (c < '0' || c > '9') && c != '.' && c != '-' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

// May reports whether a line can match. It reads no fields, so it is fast.
func (c *Condition) May(line []byte) bool {
	// An escaped JSON line may contain the text in another form.
	return c.literal == nil || bytes.Contains(line, c.literal) || bytes.IndexByte(line, '\\') >= 0
}

// Matches reports whether a value fulfills the condition. known is false if it is not a value that
// the operator compares.
func (c *Condition) Matches(value []byte) (matches, known bool) {
	if len(value) == 1 && value[0] == '-' {
		value = nil // Envoy's text for no value
	}
	switch c.operator {
	case "~":
		return c.pattern.Match(value), true
	case "!~":
		return !c.pattern.Match(value), true
	case "=":
		return c.equal(value), true
	case "!=":
		return !c.equal(value), true
	}
	if len(value) == 0 {
		return false, true
	}
	order := 0
	if c.numeric {
		n, ok := decimal(value)
		if !ok {
			return false, false
		}
		switch {
		case n < c.number:
			order = -1
		case n > c.number:
			order = 1
		}
	} else {
		at, err := time.Parse(time.RFC3339Nano, string(value))
		if err != nil {
			return false, false
		}
		order = at.Compare(c.at)
	}
	switch c.operator {
	case ">":
		return order > 0, true
	case ">=":
		return order >= 0, true
	case "<":
		return order < 0, true
	}
	return order <= 0, true
}

func (c *Condition) equal(value []byte) bool {
	if bytes.Equal(value, c.text) || string(c.text) == "-" && len(value) == 0 {
		return true
	}
	if c.numeric {
		n, ok := decimal(value)
		return ok && n == c.number
	}
	return false
}
