package substitution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// MaxFormat is the length in bytes of a format string, a bound of this package: Envoy has none.
const MaxFormat = 64 << 10

// maxLength is the bound of a ":LEN" that every Envoy can read: 32 bits.
const maxLength = 1<<32 - 1

// Segment is a piece of a format string: text, or one operator.
type Segment struct {
	Raw  string // as written
	Text string // of text, with %% read as %
	// Operator is the name of an operator, "" for text.
	Operator string
	Arg      string // between the parentheses, "" for none
	Length   int64  // to which the value is cut, -1 for no bound
	// Placeholder is true for a name that somebody replaces before Envoy sees the format.
	Placeholder bool
}

// HTTP reports whether the operator has a value in the log of requests alone. In that of TCP
// connections Envoy accepts it and prints "-" or 0.
func (s *Segment) HTTP() bool {
	op, ok := findOperator(s.Operator)
	return ok && op.http
}

// FormatError is a fault in a format string.
type FormatError struct {
	Pos    int    // of the operator in the string, in bytes from 0, as in Envoy's own messages
	Reason string // what is wrong, and what is allowed
	Near   string // the operator that was likely meant, "" when none is like it
}

// Error says where the fault is, what it is and what was likely meant.
func (e *FormatError) Error() string {
	s := fmt.Sprintf("at position %d: %s", e.Pos, e.Reason)
	if e.Near != "" {
		s += fmt.Sprintf("; did you mean %%%s%%?", e.Near)
	}
	return s
}

// ParseFormat reads a format string by the rules of Envoy's substitution formatter: "%%" is a
// percent sign, and any other "%" begins an operator, %NAME%, %NAME(ARGUMENT)%, %NAME:LENGTH% or
// %NAME(ARGUMENT):LENGTH%, that exists and takes what it is given. Where versions of Envoy differ,
// what they all accept is accepted. placeholders are names without argument and length that
// somebody replaces before Envoy sees the format.
//
// The pieces, in order, make up the string. The error is a [*FormatError].
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

// textLen is the length of the text that s begins with.
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

// parseOperator reads the operator that s begins with.
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
	given := strings.Contains(seg.Raw, "(")
	switch {
	case op.arg == argNone && given && seg.Arg != "":
		return seg, &FormatError{Reason: fmt.Sprintf("%s takes no argument: write %%%s%%", op.name, op.name)}
	case op.arg == argRequired && seg.Arg == "":
		return seg, &FormatError{Reason: fmt.Sprintf("%s needs an argument: write %%%s(%s)%%", op.name, op.name, op.form())}
	case seg.Length >= 0 && !op.length:
		return seg, &FormatError{Reason: fmt.Sprintf("%s takes no length: remove :%d", op.name, seg.Length)}
	}
	if op.check != nil && seg.Arg != "" {
		if reason := op.check(seg.Arg); reason != "" {
			return seg, &FormatError{Reason: fmt.Sprintf("%s(%s): %s", op.name, clip.Value(seg.Arg), reason)}
		}
	}
	return seg, nil
}

// scanOperator takes %NAME[(ARGUMENT)][:LENGTH]% from the beginning of s. The argument ends at the
// first parenthesis behind which the operator does, as in %CEL(f(x))%. A line break ends an
// argument in no version.
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

// end takes [:LENGTH]% from a position of s.
func (seg *Segment) end(s string, at int) bool {
	length := int64(-1)
	if at < len(s) && s[at] == ':' {
		n, digits := int64(0), 0
		for at++; at < len(s) && s[at] >= '0' && s[at] <= '9'; at++ {
			if n = n*10 + int64(s[at]-'0'); n > maxLength {
				return false
			}
			digits++
		}
		if digits == 0 {
			return false
		}
		length = n
	}
	if at == len(s) || s[at] != '%' {
		return false
	}
	seg.Length, seg.Raw = length, s[:at+1]
	return true
}

func nameByte(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' }

// notAnOperator says why no operator begins at a percent sign.
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

// AppendFormat appends the format string that the pieces make, with the values of placeholders in
// their place. A value that is text stands there with its percent signs doubled, so that it cannot
// be read as an operator; one that is a format itself stands there as it is.
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
