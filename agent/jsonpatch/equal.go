package jsonpatch

import (
	"bytes"
	"encoding/json"
	"math"
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

func sameNumber(a, b any) bool {
	da, ok := decimalOf(a)
	db, also := decimalOf(b)
	return ok && also && da == db
}

// decimal is a number in a form that is the same for equal numbers: sign, digits without zeros at either end, and the
// power of ten behind the last digit.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// decimalOf returns the decimal of a number, false for other values and for exponents that nobody writes.
func decimalOf(v any) (decimal, bool) {
	var text string
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return decimal{}, false
		}
		text = strconv.FormatFloat(v, 'e', -1, 64)
	case json.Number:
		text = string(v)
	default:
		return decimal{}, false
	}
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return decimal{}, false
	}
	if exponent != "" {
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exponent = int(e)
	}
	d.exponent -= len(fraction)
	d.digits = strings.TrimLeft(digits, "0")
	short := strings.TrimRight(d.digits, "0")
	d.exponent += len(d.digits) - len(short)
	d.digits = short
	if short == "" {
		return decimal{}, true // zero, of either sign
	}
	return d, true
}
