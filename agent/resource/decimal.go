package resource

import (
	"strconv"
	"strings"
)

// maxDecimal bounds the text of a Decimal: more digits than a float64 can tell apart have no use.
const maxDecimal = 32

// Decimal is a decimal number, written as a number (62.5) or, as Kuma writes it, as a string ("62.5"). It keeps the
// form in which it was written.
type Decimal struct {
	value  float64
	text   string
	quoted bool
}

// NewDecimal returns a number in the form in which Kuma writes it: in quotes where it has a fraction.
func NewDecimal(f float64) Decimal {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	return Decimal{value: f, text: text, quoted: strings.Contains(text, ".")}
}

// Float returns the number.
func (d *Decimal) Float() float64 { return d.value }

// String returns the number as it was written.
func (d *Decimal) String() string { return d.text }

func (d *Decimal) decodeNode(dec *decoder, n *node) {
	switch n.kind {
	case nodeNull:
		return
	case nodeInt, nodeFloat:
	case nodeString:
		if len(n.text) > maxDecimal || !decimalText(n.text) {
			dec.faultf(n.line, `%s is not a decimal number: write digits with at most one point, for example "62.5", %d characters at most`, n.show(), maxDecimal)
			return
		}
	default:
		dec.wrongType(n, "a decimal number")
		return
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil {
		dec.faultf(n.line, "%s is out of range", n.show())
		return
	}
	d.value, d.text, d.quoted = f, n.text, n.kind == nodeString
}

// decimalText reports whether a string is an optional sign and digits around at most one point.
func decimalText(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	digits, points := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			points++
		case c >= '0' && c <= '9':
			digits++
		default:
			return false
		}
	}
	return digits > 0 && points <= 1
}

// MarshalJSON returns the number in the form in which it was written.
func (d Decimal) MarshalJSON() ([]byte, error) {
	switch {
	case d.text == "":
		return []byte("0"), nil
	case d.quoted:
		return marshalValue(d.text)
	}
	return []byte(d.text), nil
}
