// Package value defines values of documents that have their own text form, and merges values field
// by field. Values decode and encode themselves, and retain the form in which they were written.
package value

import (
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Raw is a value of any type that nearside stores unchanged, as canonical JSON.
type Raw struct{ JSON []byte }

// DecodesNull marks null as a valid value.
func (r *Raw) DecodesNull() {}

// DecodeNode decodes the value.
func (r *Raw) DecodeNode(_ *strict.Decoder, n *strict.Node) { r.JSON = n.Canonical() }

// MarshalJSON returns the value; an empty Raw is null.
func (r Raw) MarshalJSON() ([]byte, error) {
	if len(r.JSON) == 0 {
		return []byte("null"), nil
	}
	return r.JSON, nil
}

// Duration is a duration in the format of Go and Kuma ("10s", "1h30m").
type Duration struct{ time.Duration }

// DecodeNode decodes the value.
func (t *Duration) DecodeNode(d *strict.Decoder, n *strict.Node) {
	switch n.Kind {
	case strict.Null:
		return
	case strict.Int, strict.Float:
		if n.Text == "0" {
			t.Duration = 0
			return
		}
		d.Faultf(n.Line, "%s is a number without a unit: add one, for example \"%ss\"",
			n.Show(), strict.Short(n.Text))
		return
	case strict.String:
	default:
		d.WrongType(n, `a duration like "10s"`)
		return
	}
	v, err := time.ParseDuration(n.Text)
	switch {
	case err != nil:
		d.Faultf(n.Line, `%s is not a duration: write numbers with units ns, us, ms, s, m or h, for example "10s" or "1h30m"`,
			n.Show())
	case v < 0:
		d.Faultf(n.Line, "%s is negative: a duration is 0s or more", n.Show())
	default:
		t.Duration = v
	}
}

// MarshalJSON formats the duration like Go.
func (t Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, t.String()), nil
}

// IntOrString is a port number or a port name.
type IntOrString struct {
	Int    uint32
	String string // "" if Int is set
}

// DecodeNode decodes the value.
func (v *IntOrString) DecodeNode(d *strict.Decoder, n *strict.Node) {
	switch n.Kind {
	case strict.Null:
	case strict.Int:
		u, err := strconv.ParseUint(n.Text, 10, 32)
		if err != nil {
			d.Faultf(n.Line, "%s is out of range: a port is 1 to 65535", n.Show())
			return
		}
		v.Int = uint32(u)
	case strict.String:
		if n.Text == "" {
			d.Faultf(n.Line, "the name is empty: give a port number or the name of a port")
			return
		}
		v.String = n.Text
	default:
		d.WrongType(n, "a number or a name")
	}
}

// MarshalJSON returns the number or the name.
func (v IntOrString) MarshalJSON() ([]byte, error) {
	if v.String != "" {
		return strict.MarshalJSON(v.String)
	}
	return strconv.AppendUint(nil, uint64(v.Int), 10), nil
}

// maxDecimal limits the length of a Decimal. More digits exceed the precision of a float64.
const maxDecimal = 32

// Decimal is a decimal number, given as a number (62.5) or, as in Kuma, as a string ("62.5"). It
// retains the original form.
type Decimal struct {
	value  float64
	text   string
	quoted bool
}

// NewDecimal returns a number in Kuma's form: quoted if it has a fraction.
func NewDecimal(f float64) Decimal {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	return Decimal{value: f, text: text, quoted: strings.Contains(text, ".")}
}

// Float returns the number.
func (d *Decimal) Float() float64 { return d.value }

// String returns the number in its original form.
func (d *Decimal) String() string { return d.text }

// DecodeNode decodes the value.
func (d *Decimal) DecodeNode(dec *strict.Decoder, n *strict.Node) {
	switch n.Kind {
	case strict.Null:
		return
	case strict.Int, strict.Float:
	case strict.String:
		if len(n.Text) > maxDecimal || !decimalText(n.Text) {
			dec.Faultf(n.Line,
				`%s is not a decimal number: write digits with at most one point, for example "62.5", %d characters at most`,
				n.Show(), maxDecimal)
			return
		}
	default:
		dec.WrongType(n, "a decimal number")
		return
	}
	f, err := strconv.ParseFloat(n.Text, 64)
	if err != nil {
		dec.Faultf(n.Line, "%s is out of range", n.Show())
		return
	}
	d.value, d.text, d.quoted = f, n.Text, n.Kind == strict.String
}

// decimalText reports whether a string consists of an optional sign and digits with at most one
// point.
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

// MarshalJSON returns the number in its original form.
func (d Decimal) MarshalJSON() ([]byte, error) {
	switch {
	case d.text == "":
		return []byte("0"), nil
	case d.quoted:
		return strict.MarshalJSON(d.text)
	}
	return []byte(d.text), nil
}
