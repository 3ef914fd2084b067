package substitution

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// MaxFormat is the maximum length of a format string in bytes. Envoy has no such limit.
const MaxFormat = 64 << 10

// maxLength is the maximum ":LEN" that Envoy reads. Segments hold at most 2^63-1.
const maxLength uint64 = math.MaxUint64

// Segment is a piece of a format string: text or an operator.
type Segment struct {
	Raw  string // as written
	Text string // of text, with %% replaced by %
	// Operator is the name of an operator, or "" for text.
	Operator string
	Arg      string // between the parentheses, or ""
	Length   int64  // maximum length of the value, or -1
	// Placeholder is true for a name that is replaced before Envoy reads the format.
	Placeholder bool
}

// HTTP reports whether the operator has a value only in logs of requests. In a log of TCP
// connections, Envoy accepts it and prints "-" or 0.
func (s *Segment) HTTP() bool {
	op, ok := findOperator(s.Operator)
	return ok && op.http
}

// FormatError is a fault in a format string.
type FormatError struct {
	Pos    int    // byte offset of the operator in the string, as in Envoy's messages
	Reason string // the fault, and the allowed values
	Near   string // the probably intended operator, or ""
}

// Error returns the position of the fault, the fault, and the probably intended operator.
func (e *FormatError) Error() string {
	s := fmt.Sprintf("at position %d: %s", e.Pos, e.Reason)
	if e.Near != "" {
		s += fmt.Sprintf("; did you mean %%%s%%?", e.Near)
	}
	return s
}

// ParseFormat parses a format string by the rules of Envoy's substitution formatter: "%%" is a
// percent sign, and any other "%" begins a known operator with valid arguments: %NAME%,
// %NAME(ARGUMENT)%, %NAME:LENGTH%, or %NAME(ARGUMENT):LENGTH%. It accepts what all supported
// versions of Envoy accept. placeholders are names without argument and length that are replaced
// before Envoy reads the format.
//
// The segments, in order, make up the string. The error is a [*FormatError].
func ParseFormat(s string, placeholders ...string) ([]Segment, error) {
	if len(s) > MaxFormat {
		return nil, &FormatError{Pos: MaxFormat,
			Reason: fmt.Sprintf("the format has %d bytes, at most %d are allowed", len(s), MaxFormat)}
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		return nil, &FormatError{Pos: i, Reason: "the format has a NUL byte, remove it"}
	}
	out := make([]Segment, 0, strings.Count(s, "%")+1)
	for pos := 0; pos < len(s); {
		n := textLen(s[pos:])
		if n > 0 {
			raw := s[pos : pos+n]
			out = append(out, Segment{Raw: raw, Text: strings.ReplaceAll(raw, "%%", "%"), Length: -1})
			pos += n
			continue
		}
		seg, err := parseOperator(s[pos:], placeholders)
		if err != nil {
			err.Pos = pos
			return nil, err
		}
		out = append(out, seg)
		pos += len(seg.Raw)
	}
	return out, nil
}

// textLen returns the length of the text at the start of s.
func textLen(s string) int {
	n := 0
	for n < len(s) {
		if s[n] != '%' {
			n++
		} else if strings.HasPrefix(s[n:], "%%") {
			n += 2
		} else {
			break
		}
	}
	return n
}

// parseOperator parses the operator at the start of s.
func parseOperator(s string, placeholders []string) (Segment, *FormatError) {
	seg, ok := scanOperator(s)
	if !ok {
		return seg, notAnOperator(s, placeholders)
	}
	if slices.Contains(placeholders, seg.Operator) {
		seg.Placeholder = true
		if len(seg.Raw) != len(seg.Operator)+2 {
			return seg, &FormatError{Reason: fmt.Sprintf("%s takes no argument and no length: write %%%s%%",
				seg.Operator, seg.Operator)}
		}
		return seg, nil
	}
	op, ok := findOperator(seg.Operator)
	if !ok {
		return seg, &FormatError{Reason: fmt.Sprintf("there is no operator %%%s%%", clip.Value(seg.Operator)),
			Near: nearest(seg.Operator, placeholders)}
	}
	return seg, op.fault(&seg)
}

// fault returns the fault in the argument or the length of a segment, or nil.
func (o *operator) fault(seg *Segment) *FormatError {
	reason := ""
	switch {
	case o.arg == argNone && seg.Arg != "":
		return &FormatError{Reason: fmt.Sprintf("%s takes no argument: write %%%s%%", o.name, o.name)}
	case o.arg == argRequired && seg.Arg == "":
		return &FormatError{Reason: fmt.Sprintf("%s needs an argument: write %%%s(%s)%%", o.name, o.name, o.form())}
	case seg.Length >= 0 && !o.length:
		return &FormatError{Reason: fmt.Sprintf("%s takes no length: remove :%d", o.name, seg.Length)}
	case seg.Arg == "":
	case o.name == coalesce:
		_, reason = coalesced(seg.Arg)
	case o.check != nil:
		reason = o.check(seg.Arg)
	}
	if reason == "" {
		return nil
	}
	return &FormatError{Reason: fmt.Sprintf("%s(%s): %s", o.name, clip.Value(seg.Arg), reason)}
}

// scanOperator reads %NAME[(ARGUMENT)][:LENGTH]% from the start of s. The argument ends at the
// first parenthesis after which the operator ends, as in %CEL(f(x))%. An argument never contains a
// line break.
func scanOperator(s string) (Segment, bool) {
	seg := Segment{Length: -1}
	at := 1
	for at < len(s) && nameByte(s[at]) {
		at++
	}
	if seg.Operator = s[1:at]; seg.Operator == "" {
		return seg, false
	}
	if at == len(s) || s[at] != '(' {
		return seg, seg.end(s, at)
	}
	for end := at + 1; end < len(s) && s[end] != '\n'; end++ {
		if s[end] == ')' && seg.end(s, end+1) {
			seg.Arg = s[at+1 : end]
			return seg, true
		}
	}
	return seg, false
}

// end reads [:LENGTH]% at a position of s.
func (seg *Segment) end(s string, at int) bool {
	length := int64(-1)
	if at < len(s) && s[at] == ':' {
		at++
		begin := at
		for at < len(s) && s[at] >= '0' && s[at] <= '9' {
			at++
		}
		n, err := strconv.ParseUint(s[begin:at], 10, 64)
		if err != nil {
			return false
		}
		length = int64(min(n, math.MaxInt64)) // #nosec G115 -- bounded
	}
	if at == len(s) || s[at] != '%' {
		return false
	}
	seg.Length, seg.Raw = length, s[:at+1]
	return true
}

func nameByte(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' }

// notAnOperator returns why no operator begins at a percent sign.
func notAnOperator(s string, placeholders []string) *FormatError {
	name := s[1:]
	for i := range len(name) {
		if c := name[i]; !nameByte(c) && !(c >= 'a' && c <= 'z') {
			name = name[:i]
			break
		}
	}
	const remedy = "write %% for a percent sign"
	upper := strings.ToUpper(name)
	switch {
	case name == "":
		return &FormatError{Reason: "no operator begins at this %: " + remedy}
	case name != upper:
		return &FormatError{Reason: fmt.Sprintf("%%%s is not an operator: their names are in upper case; %s",
			clip.Value(name), remedy), Near: nearest(upper, placeholders)}
	}
	rest := s[1+len(name):]
	reason := fmt.Sprintf("the operator %%%s is not closed by %%", clip.Value(name))
	switch {
	case strings.HasPrefix(rest, "(") && !strings.Contains(rest, ")"):
		reason = fmt.Sprintf("the argument of %%%s is not closed: write %%%s(…)%%", clip.Value(name), clip.Value(name))
	case strings.HasPrefix(rest, "(") && strings.Contains(rest[:strings.Index(rest, ")")], "\n"):
		reason = fmt.Sprintf("the argument of %%%s has a line break: remove it", clip.Value(name))
	case strings.HasPrefix(rest, ":"):
		reason = fmt.Sprintf("the length of %%%s is not a number from 0 to %d followed by %%", clip.Value(name), maxLength)
	}
	e := &FormatError{Reason: reason + ", or " + remedy}
	if _, ok := findOperator(name); !ok && !slices.Contains(placeholders, name) {
		e.Near = nearest(name, placeholders)
	}
	return e
}

// AppendFormat appends the format string of the segments, with the values of placeholders. It
// doubles percent signs in a value that is text, so that it cannot be read as an operator. It
// inserts a value that is a format unchanged.
func AppendFormat(b []byte, segs []Segment, value func(placeholder string) (v string, format bool)) []byte {
	for i := range segs {
		if !segs[i].Placeholder {
			b = append(b, segs[i].Raw...)
			continue
		}
		v, format := value(segs[i].Operator)
		for {
			if format {
				b = append(b, v...)
				break
			}
			text, rest, found := strings.Cut(v, "%")
			b = append(b, text...)
			if !found {
				break
			}
			b = append(b, '%', '%')
			v = rest
		}
	}
	return b
}
