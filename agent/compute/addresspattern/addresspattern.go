// Package addresspattern returns RE2 patterns for the text of IP addresses, as Envoy writes them
// before a port: IPv4 with dots, and IPv6 in the form of RFC 5952 in brackets. Text that matches
// the pattern of a prefix is either an address within it or no address at all. A prefix matcher
// would need the address in a separate header, which could differ from the one that Envoy dials.
package addresspattern

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Patterns of addresses.
const (
	octet = "(?:0|[1-9][0-9]{0,2})"
	// AnyIPv4 matches every IPv4 address.
	AnyIPv4 = octet + `(?:\.` + octet + "){3}"
	// AnyIPv6 matches global (2000::/3) and unique local (fc00::/7) addresses.
	AnyIPv6 = `\[(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}):[0-9a-f:]*\]`
	// Own matches this host, its link, and multicast groups: 0.0.0.0/8, 127.0.0.0/8,
	// 169.254.0.0/16, and 224.0.0.0/3.
	Own = `(?:0|127|169\.254|22[4-9]|2[3-9][0-9])\.`
)

// Of returns the pattern of the addresses of a prefix. It fails if such a pattern could also match
// addresses outside the prefix.
func Of(p netip.Prefix) (string, error) {
	if p.Addr().Is4() {
		return ipv4Pattern(p), nil
	}
	return ipv6Pattern(p)
}

func ipv4Pattern(p netip.Prefix) string {
	b, bits := p.Masked().Addr().As4(), p.Bits()
	parts := make([]string, len(b))
	for i, n := range b {
		switch left := bits - 8*i; {
		case left >= 8:
			parts[i] = strconv.Itoa(int(n))
		case left <= 0:
			parts[i] = octet
		default:
			var values []string
			for v := int(n); v < int(n)+1<<(8-left); v++ {
				values = append(values, strconv.Itoa(v))
			}
			parts[i] = "(?:" + strings.Join(values, "|") + ")"
		}
	}
	return strings.Join(parts, `\.`)
}

// ipv6Pattern returns the pattern of the addresses of an IPv6 prefix. It fails if an address within
// the prefix may not begin with the text of the prefix: a group between colons could be zero or
// have leading zeros.
func ipv6Pattern(p netip.Prefix) (string, error) {
	p = p.Masked()
	if p.IsSingleIP() {
		return `\[` + p.Addr().String() + `\]`, nil
	}
	b := p.Addr().As16()
	var out strings.Builder
	out.WriteString(`\[`)
	for left, i := p.Bits(), 0; left > 0; left, i = left-16, i+2 {
		group := uint16(b[i])<<8 | uint16(b[i+1])
		if left >= 16 {
			if group == 0 {
				return "", fmt.Errorf("%s: a prefix with a part that is zero cannot be told from the text of an address: write "+
					"longer prefixes, or addresses", p)
			}
			fmt.Fprintf(&out, "%x:", group)
			continue
		}
		if group>>12 == 0 {
			return "", fmt.Errorf("%s: a prefix that ends in a part which may begin with a zero cannot be told from the text "+
				"of an address: write longer prefixes, or addresses", p)
		}
		for shift := 12; shift >= 0; shift, left = shift-4, left-4 {
			out.WriteString(nibble(group>>shift&0xf, left))
		}
		if i == 14 { // the last group
			out.WriteString(`\]`)
			return out.String(), nil
		}
		out.WriteByte(':')
		break
	}
	out.WriteString(`[0-9a-f:]*\]`)
	return out.String(), nil
}

// nibble returns the pattern of a hexadecimal digit whose first bits are given.
func nibble(value uint16, bits int) string {
	switch {
	case bits >= 4:
		return fmt.Sprintf("%x", value)
	case bits <= 0:
		return "[0-9a-f]"
	}
	var digits strings.Builder
	for v := value; v < value+1<<(4-bits); v++ {
		fmt.Fprintf(&digits, "%x", v)
	}
	return "[" + digits.String() + "]"
}
