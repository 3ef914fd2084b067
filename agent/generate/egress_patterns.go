package generate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Patterns (RE2) of addresses as Envoy writes them in front of a port: IPv4 with dots, IPv6 in the form of RFC 5952 in
// brackets. Whatever fits a pattern of a prefix is an address within, or no address at all. A matcher of prefixes would
// need the address in a header of its own, which then could say something else than the one by which Envoy dials.
const (
	octet   = "(?:0|[1-9][0-9]{0,2})"
	anyIPv4 = octet + `(?:\.` + octet + "){3}"
	// anyIPv6 is global (2000::/3) and unique local (fc00::/7) addresses.
	anyIPv6 = `\[(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}):[0-9a-f:]*\]`
	// ownPattern is this host, its link and groups: 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3.
	ownPattern = `(?:0|127|169\.254|22[4-9]|2[3-9][0-9])\.`
)

// addressPattern is the pattern of the addresses of a prefix.
func addressPattern(p netip.Prefix) (string, error) {
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

// ipv6Pattern fails for prefixes of which an address may be written in several ways: where a part between colons can be
// zero, or have zeros in front, the text of an address within does not begin with that of the prefix.
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
				return "", fmt.Errorf("%s: a prefix with a part that is zero cannot be told from the text of an address: write longer prefixes, or addresses", p)
			}
			fmt.Fprintf(&out, "%x:", group)
			continue
		}
		if group>>12 == 0 {
			return "", fmt.Errorf("%s: a prefix that ends in a part which may begin with a zero cannot be told from the text of an address: write longer prefixes, or addresses", p)
		}
		for shift := 12; shift >= 0; shift, left = shift-4, left-4 {
			out.WriteString(nibble(group>>shift&0xf, left))
		}
		if i == 14 { // the last part
			out.WriteString(`\]`)
			return out.String(), nil
		}
		out.WriteByte(':')
		break
	}
	out.WriteString(`[0-9a-f:]*\]`)
	return out.String(), nil
}

// nibble is the pattern of one hexadecimal digit of which some bits are given.
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
