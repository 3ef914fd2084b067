package jsonpatch

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// Equal compares two values as RFC 6902 section 4.6 has it: numbers by their value, objects without regard to order.
func Equal(a, b any) bool {
	ra, isRaw := a.(json.RawMessage)
	if rb, ok := b.(json.RawMessage); ok && isRaw && bytes.Equal(ra, rb) {
		return true
	}
	switch a := plain(a).(type) {
	case nil:
		return plain(b) == nil
	case bool:
		b, ok := plain(b).(bool)
		return ok && a == b
	case string:
		b, ok := plain(b).(string)
		return ok && a == b
	case map[string]any:
		b, ok := plain(b).(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, ok := b[k]; !ok || !Equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := plain(b).([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i, v := range a {
			if !Equal(v, b[i]) {
				return false
			}
		}
		return true
	case float64:
		b := plain(b)
		if f, ok := b.(float64); ok {
			return a == f
		}
		return sameNumber(a, b)
	case json.Number:
		b := plain(b)
		if n, ok := b.(json.Number); ok && a == n {
			return true
		}
		return sameNumber(a, b)
	}
	return false // no JSON value
}

// plain decodes a raw part. What is not JSON stays as it is and equals nothing but the same bytes.
func plain(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	d, err := decode(raw)
	if err != nil {
		return v
	}
	return d
}

// sameNumber compares two numbers by their value.
func sameNumber(a, b any) bool {
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// maxExponent bounds the exponents of numbers that are compared: 1e999999999 has a billion digits.
const maxExponent = 1000

// rational returns the value of a number, nil for other values and for numbers beyond [maxExponent].
func rational(v any) *big.Rat {
	var text string
	switch v := v.(type) {
	case float64:
		return new(big.Rat).SetFloat64(v) // nil for what is not finite
	case json.Number:
		text = string(v)
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e < -maxExponent || e > maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}
