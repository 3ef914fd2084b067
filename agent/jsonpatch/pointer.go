package jsonpatch

import (
	"fmt"
	"strconv"
	"strings"
)

// ParsePointer splits a JSON Pointer (RFC 6901) into its unescaped tokens; "" is the whole document and has none. It
// fails when the pointer does not begin with a slash, or when a tilde is not followed by 0 or 1.
func ParsePointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("%q does not begin with a slash: a path is empty or a list of /token", clip(s))
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		if strings.Count(t, "~") != strings.Count(t, "~0")+strings.Count(t, "~1") {
			return nil, fmt.Errorf("%q: the tilde in %q is followed by neither 0 nor 1: write ~0 for a tilde and ~1 for a slash", clip(s), clip(t))
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// FormatPointer is the inverse of ParsePointer.
func FormatPointer(tokens []string) string {
	var b []byte
	for _, t := range tokens {
		b = appendToken(b, t)
	}
	return string(b)
}

func appendToken(b []byte, token string) []byte {
	token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
	return append(append(b, '/'), token...)
}

// index reads a token as the index of a list: digits without a leading zero (RFC 6901 section 4).
func index(token string) (int, error) {
	n, err := strconv.ParseUint(token, 10, 30)
	if err != nil || token[0] == '0' && len(token) > 1 {
		return 0, fmt.Errorf("%q is not the index of a list: digits without a leading zero", clip(token))
	}
	return int(n), nil
}

const maxShown = 120

// clip shortens what a message shows.
func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
