package jsonpatch

import (
	"bytes"
	"encoding/json"
)

// DecodePair reads two JSON values that are to be compared, as [Decode] does each of them, but
// leaves objects and lists that are alike in both as an [encoding/json.RawMessage], and those that
// only one of them has: of two versions of a document that is most.
func DecodePair(a, b []byte) (x, y any, err error) {
	if !json.Valid(a) || !json.Valid(b) {
		return both(a, b, Decode)
	}
	return pairOf(bytes.TrimSpace(a), bytes.TrimSpace(b), maxPairDepth)
}

// both reads two values.
func both[T any](a, b []byte, read func([]byte) (T, error)) (x, y T, err error) {
	if x, err = read(a); err == nil {
		y, err = read(b)
	}
	return x, y, err
}

// maxPairDepth is how deep values are taken apart: every level is gone through once more. What lies
// deeper is decoded.
const maxPairDepth = 50

// pairOf is DecodePair for valid values without space around them.
func pairOf(a, b []byte, depth int) (x, y any, err error) {
	switch {
	case depth == 0:
		return both(a, b, Decode)
	case a[0] == '{' && b[0] == '{' && !bytes.Equal(a, b):
		return objectPair(a, b, depth-1)
	case a[0] == '[' && b[0] == '[' && !bytes.Equal(a, b):
		return listPair(a, b, depth-1)
	}
	return both(a, b, part)
}

func objectPair(a, b []byte, depth int) (x, y any, err error) {
	m, n, err := both(a, b, members)
	if err != nil {
		return nil, nil, err
	}
	for k, v := range m {
		v, raw := v.(json.RawMessage)
		w, also := n[k].(json.RawMessage)
		if !raw || !also {
			continue
		}
		if m[k], n[k], err = pairOf(v, w, depth); err != nil {
			return nil, nil, err
		}
	}
	return m, n, nil
}

// listPair opens the objects in both lists, whose names are looked at.
func listPair(a, b []byte, depth int) (x, y any, err error) {
	l, m, err := both(a, b, items)
	if err != nil {
		return nil, nil, err
	}
	for i := range max(len(l), len(m)) {
		var v, w json.RawMessage
		if i < len(l) {
			v, _ = l[i].(json.RawMessage)
		}
		if i < len(m) {
			w, _ = m[i].(json.RawMessage)
		}
		if v != nil && w != nil && !bytes.Equal(v, w) {
			if l[i], m[i], err = pairOf(v, w, depth); err != nil {
				return nil, nil, err
			}
			continue
		}
		if v != nil && v[0] == '{' {
			if l[i], err = members(v); err != nil {
				return nil, nil, err
			}
		}
		if w != nil && w[0] == '{' {
			if m[i], err = members(w); err != nil {
				return nil, nil, err
			}
		}
	}
	return l, m, nil
}

// part decodes a valid value that holds no others, and leaves objects and lists as they are.
func part(b []byte) (any, error) {
	switch b[0] {
	case '{', '[':
		return json.RawMessage(b), nil
	case '"':
		return text(b)
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case 'n':
		return nil, nil
	}
	return json.Number(b), nil
}

// members splits a valid object into its members; of two with one name the later stays.
func members(b []byte) (map[string]any, error) {
	out := map[string]any{}
	for i := next(b, 1); b[i] != '}'; i = next(b, i) {
		if b[i] == ',' {
			i = next(b, i+1)
		}
		end := skip(b, i)
		name, err := text(b[i:end])
		if err != nil {
			return nil, err
		}
		i = next(b, next(b, end)+1) // past the colon
		end = skip(b, i)
		if out[name], err = part(b[i:end:end]); err != nil {
			return nil, err
		}
		i = end
	}
	return out, nil
}

// items splits a valid list into its items.
func items(b []byte) ([]any, error) {
	out := []any{}
	for i := next(b, 1); b[i] != ']'; i = next(b, i) {
		if b[i] == ',' {
			i = next(b, i+1)
		}
		end := skip(b, i)
		v, err := part(b[i:end:end])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		i = end
	}
	return out, nil
}

// text reads a string literal.
func text(b []byte) (string, error) {
	plain := b[1 : len(b)-1]
	for _, c := range plain {
		if c == '\\' || c >= 0x80 { // bytes that are no UTF-8 are replaced
			var s string
			err := json.Unmarshal(b, &s)
			return s, err
		}
	}
	return string(plain), nil
}

// next is the index of the first byte from i on that is no space.
func next(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skip is the index behind the value that begins at i.
func skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipText(b, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = skipText(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
	}
	return i
}

// skipText is the index behind the string literal that begins at i.
func skipText(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		i += n
		escaped := false
		for j := i - 1; b[j] == '\\'; j-- {
			escaped = !escaped
		}
		if !escaped {
			return i + 1
		}
	}
}
