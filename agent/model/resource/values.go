package resource

import (
	"strconv"
	"strings"
	"time"
)

// Raw is a part of a document that nearside keeps as it is: canonical JSON of any value.
type Raw struct{ JSON []byte }

func (r *Raw) decodeNode(_ *decoder, n *node) { r.JSON = canonical(n) }

// MarshalJSON returns the value; an empty Raw is null.
func (r Raw) MarshalJSON() ([]byte, error) {
	if len(r.JSON) == 0 {
		return []byte("null"), nil
	}
	return r.JSON, nil
}

// RawConf is the Conf of a policy that no plugin acts on yet: a mapping, kept as canonical JSON.
type RawConf struct{ JSON []byte }

// Validate accepts any mapping.
func (c *RawConf) Validate(*Validator) {}

func (c *RawConf) decodeNode(d *decoder, n *node) {
	if !d.is(n, nodeMapping, "a mapping") {
		return
	}
	c.JSON = canonical(n)
}

// MarshalJSON returns the mapping; an empty RawConf is {}.
func (c *RawConf) MarshalJSON() ([]byte, error) {
	if len(c.JSON) == 0 {
		return []byte("{}"), nil
	}
	return c.JSON, nil
}

// RawSpec is the Spec of a kind that nearside stores and does not act on: a mapping, kept as
// canonical JSON.
type RawSpec struct{ RawConf }

// Duration is a time span, written as Go and Kuma write it ("10s", "1h30m").
type Duration struct{ time.Duration }

func (t *Duration) decodeNode(d *decoder, n *node) {
	switch n.kind {
	case nodeNull:
		return
	case nodeInt, nodeFloat:
		if n.text == "0" {
			t.Duration = 0
			return
		}
		d.faultf(n.line, "%s is a number without a unit: write it with one, for example \"%ss\"", n.show(), short(n.text))
		return
	case nodeString:
	default:
		d.wrongType(n, `a duration like "10s"`)
		return
	}
	v, err := time.ParseDuration(n.text)
	switch {
	case err != nil:
		d.faultf(n.line, `%s is not a duration: write numbers with units ns, us, ms, s, m or h, for example "10s" or "1h30m"`,
			n.show())
	case v < 0:
		d.faultf(n.line, "%s is negative: a duration is 0s or more", n.show())
	default:
		t.Duration = v
	}
}

// MarshalJSON writes the duration as Go does.
func (t Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, t.String()), nil
}

// IntOrString is a port number or a port name.
type IntOrString struct {
	Int    uint32
	String string // "" when Int is meant
}

func (v *IntOrString) decodeNode(d *decoder, n *node) {
	switch n.kind {
	case nodeNull:
	case nodeInt:
		u, err := strconv.ParseUint(n.text, 10, 32)
		if err != nil {
			d.faultf(n.line, "%s is out of range: a port is 1 to 65535", n.show())
			return
		}
		v.Int = uint32(u)
	case nodeString:
		if n.text == "" {
			d.faultf(n.line, "the name is empty: give a port number or the name of a port")
			return
		}
		v.String = n.text
	default:
		d.wrongType(n, "a number or a name")
	}
}

// MarshalJSON writes the number or the name.
func (v IntOrString) MarshalJSON() ([]byte, error) {
	if v.String != "" {
		return marshalValue(v.String)
	}
	return strconv.AppendUint(nil, uint64(v.Int), 10), nil
}

// maxDecimal bounds the text of a Decimal: more digits than a float64 can tell apart have no use.
const maxDecimal = 32

// Decimal is a decimal number, written as a number (62.5) or, as Kuma writes it, as a string
// ("62.5"). It keeps the form in which it was written.
type Decimal struct {
	value  float64
	text   string
	quoted bool
}

// NewDecimal returns a number in the form in which Kuma writes it: in quotes where it has a
// fraction.
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
			dec.faultf(n.line,
				`%s is not a decimal number: write digits with at most one point, for example "62.5", %d characters at most`,
				n.show(), maxDecimal)
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
