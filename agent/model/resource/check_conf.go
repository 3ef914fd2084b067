package resource

import (
	"regexp"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Checks that the confs of several policies share. They accept nil; a conf reports its missing
// required fields itself.

// maxHeader limits the name of a header, and maxPattern the length of a regular expression.
const (
	maxHeader  = 256
	maxPattern = 1024
)

// Timeout checks a timeout: 0s, which disables it, or at least a millisecond, Envoy's unit.
func (v *Validator) Timeout(d *Duration) {
	if d != nil && d.Duration > 0 && d.Duration < time.Millisecond {
		v.Faultf("%s is less than a millisecond, which Envoy treats as no limit: give 1ms or more, or 0s for no limit", d)
	}
}

// Positive checks a duration that must not be 0s.
func (v *Validator) Positive(d *Duration) {
	if d != nil && d.Duration < time.Millisecond {
		v.Faultf("%s is too short: give 1ms or more", d)
	}
}

// AtLeastOne checks a count that must not be 0.
func (v *Validator) AtLeastOne(n *uint32) {
	if n != nil && *n == 0 {
		v.Faultf("0 is not allowed: give 1 or more")
	}
}

// Percent checks an integer percentage.
func (v *Validator) Percent(n *uint32) {
	if n != nil && *n > 100 {
		v.Faultf("%d is not a percentage: 0 to 100 is allowed", *n)
	}
}

// Percentage checks a decimal percentage.
func (v *Validator) Percentage(d *Decimal) {
	if d != nil && !(d.Float() >= 0 && d.Float() <= 100) {
		v.Faultf("%s is not a percentage: 0 to 100 is allowed", d)
	}
}

// HeaderName checks the name of an HTTP header: a token by RFC 9110 section 5.1, in lower case as
// in HTTP/2.
func (v *Validator) HeaderName(s string) {
	switch {
	case s == "":
		v.Faultf("the name of the header is missing")
		return
	case len(s) > maxHeader:
		v.Faultf("the name of the header has %d characters, at most %d are allowed", len(s), maxHeader)
		return
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			v.Faultf("%s has capital letters: write the name of the header in lower case", strict.Quote(s))
			return
		case !headerChar(c):
			v.Faultf("%s is not the name of a header: the character %q is not allowed", strict.Quote(s), c)
			return
		}
	}
}

func headerChar(c byte) bool {
	if alnum(c) {
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

// HeaderValue checks the value of an HTTP header: no control characters (RFC 9110 section 5.5).
func (v *Validator) HeaderValue(s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			v.Faultf("%s contains a control character, which headers must not contain", strict.Quote(s))
			return
		}
	}
}

// Pattern checks a regular expression of the syntax that Envoy takes, which is RE2's.
func (v *Validator) Pattern(s string) {
	if len(s) > maxPattern {
		v.Faultf("the pattern has %d characters, at most %d are allowed", len(s), maxPattern)
		return
	}
	if s == "" {
		v.Faultf("the pattern is empty: write .* for any value")
		return
	}
	if _, err := regexp.Compile(s); err != nil {
		v.Faultf("%s is not a regular expression of RE2: %v", strict.Quote(s), err)
	}
}
