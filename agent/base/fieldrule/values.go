package fieldrule

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/envoyproxy/protoc-gen-validate/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// bounds holds the limits of an ordered value; nil is unlimited.
type bounds[T any] struct{ lt, lte, gt, gte *T }

// reason returns why a value is outside of the bounds, or "". A lower bound that is not below the
// upper one excludes the values between them.
func (b bounds[T]) reason(v T, compare func(a, b T) int) string {
	above := b.gt == nil && b.gte == nil ||
		b.gt != nil && compare(v, *b.gt) > 0 || b.gte != nil && compare(v, *b.gte) >= 0
	below := b.lt == nil && b.lte == nil ||
		b.lt != nil && compare(v, *b.lt) < 0 || b.lte != nil && compare(v, *b.lte) <= 0
	low, high := cmp.Or(b.gt, b.gte), cmp.Or(b.lt, b.lte)
	switch {
	case low == nil || high == nil:
		if above && below {
			return ""
		}
		return "value must be " + b.limit()
	case compare(*high, *low) > 0:
		if above && below {
			return ""
		}
		return fmt.Sprintf("value must be inside range %c%v, %v%c", either(b.gt != nil, '(', '['), *low, *high,
			either(b.lt != nil, ')', ']'))
	case above || below:
		return ""
	}
	return fmt.Sprintf("value must be outside range %c%v, %v%c", either(b.lt != nil, '[', '('), *high, *low,
		either(b.gt != nil, ']', ')'))
}

func (b bounds[T]) limit() string {
	switch {
	case b.lt != nil:
		return fmt.Sprint("less than ", *b.lt)
	case b.lte != nil:
		return fmt.Sprint("less than or equal to ", *b.lte)
	case b.gt != nil:
		return fmt.Sprint("greater than ", *b.gt)
	}
	return fmt.Sprint("greater than or equal to ", *b.gte)
}

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

func numberTests[T int32 | uint32 | uint64 | float32 | float64](b bounds[T], get func(protoreflect.Value) T) []test {
	if b == (bounds[T]{}) {
		return nil
	}
	return []test{func(v protoreflect.Value) string {
		n := get(v)
		if n != n {
			return "" // as in Envoy, no comparison with NaN fails
		}
		return b.reason(n, cmp.Compare[T])
	}}
}

func float32Of(v protoreflect.Value) float32 { return float32(v.Float()) }
func int32Of(v protoreflect.Value) int32     { return int32(v.Int()) }
func uint32Of(v protoreflect.Value) uint32   { return uint32(v.Uint()) }

func durationTests(r *validate.DurationRules) []test {
	b := bounds[time.Duration]{duration(r.Lt), duration(r.Lte), duration(r.Gt), duration(r.Gte)}
	if b == (bounds[time.Duration]{}) {
		return nil
	}
	return []test{func(v protoreflect.Value) string {
		if !v.IsValid() {
			return "value is not a valid duration"
		}
		return b.reason(time.Duration(v.Int()), cmp.Compare[time.Duration])
	}}
}

func duration(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	out := d.AsDuration()
	return &out
}

func boolTests(r *validate.BoolRules) []test {
	if r.Const == nil {
		return nil
	}
	return []test{func(v protoreflect.Value) string {
		if v.Bool() != *r.Const {
			return fmt.Sprint("value must equal ", *r.Const)
		}
		return ""
	}}
}

func enumTests(r *validate.EnumRules, of protoreflect.EnumDescriptor) (out []test) {
	if len(r.NotIn) > 0 {
		out = append(out, func(v protoreflect.Value) string {
			if !slices.Contains(r.NotIn, int32(v.Enum())) {
				return ""
			}
			names := make([]string, len(r.NotIn))
			for i, n := range r.NotIn {
				names[i] = string(of.Values().ByNumber(protoreflect.EnumNumber(n)).Name())
			}
			return fmt.Sprint("value must not be in list ", names)
		})
	}
	if r.GetDefinedOnly() {
		out = append(out, func(v protoreflect.Value) string {
			if of.Values().ByNumber(v.Enum()) == nil {
				return "value must be one of the defined enum values"
			}
			return ""
		})
	}
	return out
}

func bytesTests(r *validate.BytesRules) []test {
	return []test{func(v protoreflect.Value) string {
		return length(uint64(len(v.Bytes())), r.MinLen, r.MaxLen, "bytes")
	}}
}

func stringTests(r *validate.StringRules) (out []test) {
	if len(r.In) > 0 {
		out = append(out, func(v protoreflect.Value) string {
			if !slices.ContainsFunc(r.In, func(s string) bool { return s == string(v.Bytes()) }) {
				return fmt.Sprint("value must be in list ", r.In)
			}
			return ""
		})
	}
	if r.MinLen != nil || r.MaxLen != nil {
		out = append(out, func(v protoreflect.Value) string {
			return length(uint64(utf8.RuneCount(v.Bytes())), r.MinLen, r.MaxLen, "runes")
		})
	}
	if r.MaxBytes != nil {
		out = append(out, func(v protoreflect.Value) string {
			return length(uint64(len(v.Bytes())), nil, r.MaxBytes, "bytes")
		})
	}
	if r.Prefix != nil {
		prefix := []byte(*r.Prefix)
		out = append(out, func(v protoreflect.Value) string {
			if !bytes.HasPrefix(v.Bytes(), prefix) {
				return fmt.Sprintf("value does not have prefix %q", *r.Prefix)
			}
			return ""
		})
	}
	if r.Suffix != nil {
		suffix := []byte(*r.Suffix)
		out = append(out, func(v protoreflect.Value) string {
			if !bytes.HasSuffix(v.Bytes(), suffix) {
				return fmt.Sprintf("value does not have suffix %q", *r.Suffix)
			}
			return ""
		})
	}
	if matches, pattern := pattern(r); matches != nil {
		out = append(out, func(v protoreflect.Value) string {
			if !matches(v.Bytes()) {
				return fmt.Sprintf("value does not match regex pattern %q", pattern)
			}
			return ""
		})
	}
	return out
}

// length returns why a length is outside of limits (nil: unlimited), or "".
func length(n uint64, least, most *uint64, unit string) string {
	switch {
	case (least == nil || n >= *least) && (most == nil || n <= *most):
		return ""
	case most == nil:
		return fmt.Sprintf("value length must be at least %d %s", *least, unit)
	case least == nil:
		return fmt.Sprintf("value length must be at most %d %s", *most, unit)
	case *least == *most:
		return fmt.Sprintf("value length must be %d %s", *least, unit)
	}
	return fmt.Sprintf("value length must be between %d and %d %s, inclusive", *least, *most, unit)
}

// reason returns why a number of items or pairs is outside of the limits, or "".
func (s size) reason(n uint64, of string) string {
	switch {
	case n >= s.least && (s.most == 0 || n <= s.most):
		return ""
	case s.least == s.most:
		return fmt.Sprintf("value must contain exactly %d %s(s)", s.least, of)
	case s.most == 0:
		return fmt.Sprintf("value must contain at least %d %s(s)", s.least, of)
	case s.least == 0:
		return fmt.Sprintf("value must contain no more than %d %s(s)", s.most, of)
	}
	return fmt.Sprintf("value must contain between %d and %d %ss, inclusive", s.least, s.most, of)
}

// Patterns of the option well_known_regex.
const (
	headerName   = "^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$"
	headerValue  = "^[^\x00-\b\n-\x1f\x7f]*$"
	headerString = "^[^\x00\n\r]*$"
)

// pattern returns a function that matches the pattern of a string, or nil. Most patterns are those
// of headers, which need no regular expression.
func pattern(r *validate.StringRules) (matches func([]byte) bool, pattern string) {
	switch known := r.GetWellKnownRegex(); {
	case known == validate.KnownRegex_UNKNOWN:
		if r.Pattern == nil {
			return nil, ""
		}
		re, err := regexp.Compile(*r.Pattern)
		if err != nil {
			return func([]byte) bool { return false }, *r.Pattern
		}
		return re.Match, *r.Pattern
	case !r.GetStrict():
		return func(b []byte) bool { return !bytes.ContainsAny(b, "\x00\n\r") }, headerString
	case known == validate.KnownRegex_HTTP_HEADER_NAME:
		return isHeaderName, headerName
	}
	return isHeaderValue, headerValue
}

func isHeaderName(s []byte) bool {
	if len(s) > 0 && s[0] == ':' {
		s = s[1:]
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && strings.IndexByte(headerSigns, c) < 0 {
			return false
		}
	}
	return len(s) > 0
}

const headerSigns = "!#$%&'*+,-.^_|~`"

func isHeaderValue(s []byte) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isEmpty reports whether a string or unsigned number is the zero value.
func isEmpty(v protoreflect.Value) bool {
	switch x := v.Interface().(type) {
	case []byte:
		return len(x) == 0
	case uint32:
		return x == 0
	}
	return false
}
