package wirejson

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// form is how a message is written as JSON.
type form uint8

const (
	formObject form = iota // its fields by name; also google.protobuf.Empty
	formAny
	formDuration
	formTimestamp
	formWrapper
	formStruct
	formList
	formValue
	formMask
)

func formOf(d protoreflect.MessageDescriptor) form {
	switch d.FullName() {
	case "google.protobuf.Any":
		return formAny
	case "google.protobuf.Duration":
		return formDuration
	case "google.protobuf.Timestamp":
		return formTimestamp
	case "google.protobuf.BoolValue", "google.protobuf.Int32Value", "google.protobuf.Int64Value",
		"google.protobuf.UInt32Value", "google.protobuf.UInt64Value", "google.protobuf.FloatValue",
		"google.protobuf.DoubleValue", "google.protobuf.StringValue", "google.protobuf.BytesValue":
		return formWrapper
	case "google.protobuf.Struct":
		return formStruct
	case "google.protobuf.ListValue":
		return formList
	case "google.protobuf.Value":
		return formValue
	case "google.protobuf.FieldMask":
		return formMask
	default:
		return formObject
	}
}

// wellKnown renders a message that has a form of its own. In secret ones texts are hidden and numbers are zero; in a
// google.protobuf.Value every value is a hidden text.
func (r *Renderer) wellKnown(dst []byte, m *message, lo, hi, depth int, hidden bool) ([]byte, error) {
	base, err := r.open(m, lo, hi, depth)
	if err != nil {
		return dst, err
	}
	switch m.form {
	case formAny:
		dst, err = r.any(dst, base, depth, hidden)
	case formDuration, formTimestamp:
		var seconds, nanos int64
		if !hidden {
			seconds, nanos = int64(r.last(base, 1).number), int64(r.last(base, 2).number)
		}
		if m.form == formDuration {
			dst, err = duration(dst, seconds, nanos)
		} else {
			dst, err = timestamp(dst, seconds, nanos)
		}
	case formWrapper:
		value := r.last(base, 1)
		dst, err = scalar(dst, r.field(m, 1), &value, hidden)
	case formStruct:
		dst, err = r.entriesOf(dst, r.field(m, 1), base, len(r.stack), depth, hidden)
	case formList:
		dst, err = r.values(dst, base, depth, hidden)
	case formValue:
		dst, err = r.value(dst, base, depth, hidden)
	case formMask:
		dst, err = r.mask(dst, base, hidden)
	}
	r.stack = r.stack[:base]
	return dst, err
}

// last returns the last value of a field among those from base on.
func (r *Renderer) last(base int, number protoreflect.FieldNumber) found {
	for i := len(r.stack) - 1; i >= base; i-- {
		if r.stack[i].field.number == number {
			return r.stack[i]
		}
	}
	return found{}
}

func (r *Renderer) any(dst []byte, base, depth int, hidden bool) ([]byte, error) {
	url, value := r.last(base, 1).body, r.last(base, 2).body
	if len(url) == 0 {
		if len(value) > 0 {
			return dst, errors.New("the google.protobuf.Any has a value without a type")
		}
		return append(dst, '{', '}'), nil
	}
	m, err := r.typeByURL(url)
	if err != nil {
		return dst, err
	}
	dst = quote(append(dst, `{"@type":`...), url)
	i := len(r.stack)
	r.stack = append(r.stack, found{body: value})
	if m.form == formObject {
		dst, err = r.members(dst, m, i, i+1, depth+1, hidden)
	} else {
		dst, err = r.wellKnown(append(dst, `,"value":`...), m, i, i+1, depth+1, hidden)
	}
	return append(dst, '}'), err
}

// Bounds of google.protobuf.Duration and Timestamp, from their definitions.
const (
	maxDuration  = 315_576_000_000
	minTimestamp = -62_135_596_800 // 0001-01-01T00:00:00Z
	maxTimestamp = 253_402_300_799 // 9999-12-31T23:59:59Z
	maxNanos     = 999_999_999
)

func duration(dst []byte, seconds, nanos int64) ([]byte, error) {
	switch {
	case seconds < -maxDuration || seconds > maxDuration:
		return dst, fmt.Errorf("the duration of %d seconds is out of range: at most %d are allowed", seconds, maxDuration)
	case nanos < -maxNanos || nanos > maxNanos:
		return dst, fmt.Errorf("the %d nanoseconds of the duration are out of range: at most %d are allowed", nanos, maxNanos)
	case seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0:
		return dst, fmt.Errorf("the %d seconds and the %d nanoseconds of the duration differ in sign", seconds, nanos)
	}
	dst = append(dst, '"')
	if seconds < 0 || nanos < 0 {
		dst = append(dst, '-')
		seconds, nanos = -seconds, -nanos
	}
	dst = strconv.AppendInt(dst, seconds, 10)
	return append(fraction(dst, nanos), 's', '"'), nil
}

func timestamp(dst []byte, seconds, nanos int64) ([]byte, error) {
	switch {
	case seconds < minTimestamp || seconds > maxTimestamp:
		return dst, fmt.Errorf("the time of %d seconds since 1970 is out of range: the years 1 to 9999 are allowed", seconds)
	case nanos < 0 || nanos > maxNanos:
		return dst, fmt.Errorf("the %d nanoseconds of the time are out of range: 0 to %d are allowed", nanos, maxNanos)
	}
	dst = time.Unix(seconds, 0).UTC().AppendFormat(append(dst, '"'), "2006-01-02T15:04:05")
	return append(fraction(dst, nanos), 'Z', '"'), nil
}

// fraction renders nanoseconds with 0, 3, 6 or 9 digits.
func fraction(dst []byte, nanos int64) []byte {
	if nanos == 0 {
		return dst
	}
	digits := 9
	for nanos%1000 == 0 {
		nanos /= 1000
		digits -= 3
	}
	dst = append(dst, ".000000000"[:1+digits]...)
	for i := len(dst) - 1; nanos > 0; i-- {
		dst[i] += byte(nanos % 10)
		nanos /= 10
	}
	return dst
}

// values renders a google.protobuf.ListValue.
func (r *Renderer) values(dst []byte, base, depth int, hidden bool) ([]byte, error) {
	if base == len(r.stack) {
		return append(dst, '[', ']'), nil
	}
	start := len(dst)
	for i, end := base, len(r.stack); i < end; i++ {
		var err error
		if dst, err = r.message(append(dst, ','), r.stack[i].field.message, i, i+1, depth+1, hidden); err != nil {
			return dst, err
		}
	}
	dst[start] = '['
	return append(dst, ']'), nil
}

// value renders a google.protobuf.Value, of whose oneof only one member is left on the stack.
func (r *Renderer) value(dst []byte, base, depth int, hidden bool) ([]byte, error) {
	if base == len(r.stack) {
		return dst, errors.New("the google.protobuf.Value has no value")
	}
	end := len(r.stack)
	last := r.stack[end-1]
	f := last.field
	switch {
	case f.message != nil:
		return r.message(dst, f.message, base, end, depth+1, hidden)
	case hidden:
		return quote(dst, []byte(Redacted)), nil
	case f.kind == protoreflect.DoubleKind:
		if v := math.Float64frombits(last.number); math.IsNaN(v) || math.IsInf(v, 0) {
			return dst, fmt.Errorf("JSON has no number %v", v)
		}
	}
	return scalar(dst, f, &last, false)
}

// mask renders a google.protobuf.FieldMask: its paths in lowerCamelCase, as far as the way back leads to the same ones.
func (r *Renderer) mask(dst []byte, base int, hidden bool) ([]byte, error) {
	dst = append(dst, '"')
	if hidden {
		return append(dst, '"'), nil
	}
	for i, o := range r.stack[base:] {
		if !protoreflect.FullName(o.body).IsValid() {
			return dst, fmt.Errorf("the path %q of the field mask is not valid", o.body)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		for k := 0; k < len(o.body); k++ {
			c := o.body[k]
			switch {
			case 'A' <= c && c <= 'Z', c == '_' && (k+1 == len(o.body) || o.body[k+1] < 'a' || o.body[k+1] > 'z'):
				return dst, fmt.Errorf("the path %q of the field mask cannot be written in lowerCamelCase", o.body)
			case c == '_':
				k++
				c = o.body[k] - 'a' + 'A'
			}
			dst = append(dst, c)
		}
	}
	return append(dst, '"'), nil
}
