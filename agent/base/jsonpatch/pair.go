package jsonpatch

import (
	"bytes"
	"encoding/json"
)

// DecodePair decodes two JSON values for comparison. The result is the same as from [Decode],
// except that objects and lists that are equal in both, or exist only in one of them, remain an
// [encoding/json.RawMessage]. In two versions of a document, most parts are equal.
func DecodePair(a, b []byte) (x, y any, err error) {
	if !json.Valid(a) || !json.Valid(b) {
		return both(a, b, Decode)
	}
	return pairOf(bytes.TrimSpace(a), bytes.TrimSpace(b), maxPairDepth)
}

// both calls read for two values.
func both[T any](a, b []byte, read func([]byte) (T, error)) (x, y T, err error) {
	if x, err = read(a); err == nil {
		y, err = read(b)
	}
	return x, y, err
}

// maxPairDepth limits the depth to which values are split, since each level scans the text again.
// Deeper values are decoded.
const maxPairDepth = 50

// pairOf is DecodePair for valid values without surrounding space.
func pairOf(a, b []byte, depth int) (x, y any, err error) {
	switch {
	case depth == 0:
		return both(a, b, Decode)
	case a[0] == '{' && b[0] == '{' && !bytes.Equal(a, b):
		return objectPair(a, b, depth-1)
	case a[0] == '[' && b[0] == '[' && !bytes.Equal(a, b):
		return listPair(a, b, depth-1)
	}
	return both(a, b, shallow)
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

// listPair also splits objects that only one list has, because Diff reads their names.
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

// shallow decodes a valid scalar and returns objects and lists as raw parts.
func shallow(b []byte) (any, error) {
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

// members splits a valid object into its members. For duplicate names, the last one applies.
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
		i = next(b, next(b, end)+1) // skip the colon
		end = skip(b, i)
		if out[name], err = shallow(b[i:end:end]); err != nil {
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
		v, err := shallow(b[i:end:end])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		i = end
	}
	return out, nil
}

// text decodes a string literal.
func text(b []byte) (string, error) {
	plain := b[1 : len(b)-1]
	for _, c := range plain {
		if c == '\\' || c >= 0x80 { // invalid UTF-8 is replaced
			var s string
			err := json.Unmarshal(b, &s)
			return s, err
		}
	}
	return string(plain), nil
}

// next returns the index of the first non-space byte from i.
func next(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skip returns the index after the value that begins at i.
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

// skipText returns the index after the string literal that begins at i.
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
