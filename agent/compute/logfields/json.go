package logfields

import (
	"bytes"
	"encoding/json"
)

// maxDepth limits the nesting of values in a JSON line.
const maxDepth = 64

// members calls take with each key and value of a JSON object. Keys have no quotes and are not
// decoded. members returns false if line is not an object, or if take returns false.
func members(line []byte, take func(key, value []byte) bool) bool {
	i := space(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	if i = space(line, i+1); i < len(line) && line[i] == '}' {
		return space(line, i+1) == len(line)
	}
	for {
		end := quoted(line, i)
		if end < 0 {
			return false
		}
		key := line[i+1 : end-1]
		if i = space(line, end); i >= len(line) || line[i] != ':' {
			return false
		}
		i = space(line, i+1)
		if end = value(line, i); end < 0 {
			return false
		}
		if !take(key, line[i:end]) {
			return false
		}
		if i = space(line, end); i >= len(line) {
			return false
		}
		switch line[i] {
		case ',':
			i = space(line, i+1)
		case '}':
			return space(line, i+1) == len(line)
		default:
			return false
		}
	}
}

// space returns the position of the first character from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// quoted returns the end of the string at i, or a negative number.
func quoted(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		escape := bytes.IndexByte(b[i:i+n], '\\')
		if escape < 0 {
			return i + n + 1
		}
		if i += escape + 2; i > len(b) {
			return -1
		}
	}
}

// value returns the end of the value at i, or a negative number.
func value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return quoted(b, i)
	case c == '{' || c == '[':
		return nested(b, i)
	case c == '-' || c >= '0' && c <= '9':
		for i++; i < len(b) && number(b[i]); i++ {
		}
		return i
	}
	for _, word := range [...]string{"null", "true", "false"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return i + len(word)
		}
	}
	return -1
}

func number(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// nested returns the end of the object or list at i, or a negative number.
func nested(b []byte, i int) int {
	var open [maxDepth]byte
	depth := 0
	for i < len(b) {
		switch c := b[i]; c {
		case '"':
			if i = quoted(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			if depth == maxDepth {
				return -1
			}
			open[depth] = c + 2 // the closing bracket in ASCII
			depth++
		case '}', ']':
			if open[depth-1] != c {
				return -1
			}
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// plain returns the value of a string or a number as text. It returns false for other values; there
// is false for null.
func plain(raw []byte) (text []byte, there, ok bool) {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return nil, false, true
	case raw[0] != '"':
		return raw, true, raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'
	case bytes.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1], true, true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil, true, false
	}
	return []byte(s), true, true
}
