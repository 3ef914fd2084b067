package jsonpatch

import (
	"fmt"
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
		u, err := unescape(t)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip(s), err)
		}
		tokens[i] = u
	}
	return tokens, nil
}

func unescape(t string) (string, error) {
	if strings.IndexByte(t, '~') < 0 {
		return t, nil
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		c := t[i]
		if c == '~' {
			i++
			switch {
			case i < len(t) && t[i] == '0':
			case i < len(t) && t[i] == '1':
				c = '/'
			default:
				return "", fmt.Errorf("the tilde in %q is followed by neither 0 nor 1: write ~0 for a tilde and ~1 for a slash", clip(t))
			}
		}
		b.WriteByte(c)
	}
	return b.String(), nil
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
	b = append(b, '/')
	for i := range len(token) {
		switch c := token[i]; c {
		case '~':
			b = append(b, "~0"...)
		case '/':
			b = append(b, "~1"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

// index reads a token as the index of a list: digits without a leading zero (RFC 6901 section 4).
func index(token string) (int, error) {
	if token == "" || len(token) > 9 || token[0] == '0' && len(token) > 1 {
		return 0, fmt.Errorf("%q is not the index of a list: digits without a leading zero", clip(token))
	}
	n := 0
	for i := range len(token) {
		c := token[i]
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not the index of a list: digits without a leading zero", clip(token))
		}
		n = 10*n + int(c-'0')
	}
	return n, nil
}

const maxShown = 120

// clip shortens what a message shows.
func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
