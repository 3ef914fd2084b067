package table

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// MaxName is the maximum length of a name in wire form, including length bytes and the root (RFC
// 1035 section 2.3.4).
const MaxName = 255

// AppendName appends the wire form of a name in lower case. Labels may have letters, digits, '-',
// and '_'; the first label may be "*". A final dot is optional.
func AppendName(b []byte, name string) ([]byte, error) {
	s := strings.TrimSuffix(name, ".")
	start := len(b)
	if s == "" {
		return b, errors.New("the name is empty")
	}
	for i := 0; ; i++ {
		label, rest, more := strings.Cut(s, ".")
		if err := checkLabel(label, i == 0); err != nil {
			return b[:start], fmt.Errorf("%q: %w", Clip(name), err)
		}
		b = append(b, byte(len(label)))
		for j := range len(label) {
			b = append(b, Lower(label[j]))
		}
		if s = rest; !more {
			break
		}
	}
	b = append(b, 0)
	if n := len(b) - start; n > MaxName {
		return b[:start], fmt.Errorf("%q has %d bytes, at most %d are allowed", Clip(name), n, MaxName)
	}
	return b, nil
}

func checkLabel(label string, first bool) error {
	switch {
	case label == "":
		return errors.New("a label is empty; remove the extra dot")
	case len(label) > 63:
		return fmt.Errorf("a label has %d bytes, at most 63 are allowed", len(label))
	case label == "*" && first:
		return nil
	}
	for i := range len(label) {
		if c := Lower(label[i]); (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("the label %q has %q; letters, digits, '-' and '_' are allowed, and * as the whole first label",
				label, c)
		}
	}
	return nil
}

func Lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func Clip(s string) string {
	if len(s) > MaxName {
		return s[:MaxName] + "…"
	}
	return s
}

// AppendText appends the text form of a wire-format name without the final dot. It escapes dots,
// backslashes, and bytes that are not printable ASCII (RFC 1035 section 5.1).
func AppendText(b, wire []byte) []byte {
	for i := 0; i < len(wire) && wire[i] != 0; {
		n := int(wire[i])
		if i > 0 {
			b = append(b, '.')
		}
		for _, c := range wire[i+1 : min(i+1+n, len(wire))] {
			switch {
			case c == '.' || c == '\\':
				b = append(b, '\\', c)
			case c <= ' ' || c > '~':
				b = append(b, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
			default:
				b = append(b, c)
			}
		}
		i += 1 + n
	}
	return b
}

// ReverseName returns the name that has the PTR record of an address (RFC 1035 section 3.5, RFC
// 3596 section 2.5).
func ReverseName(a netip.Addr) string {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa", b[3], b[2], b[1], b[0])
	}
	const hex = "0123456789abcdef"
	b := a.As16()
	out := make([]byte, 0, 72)
	for i := len(b) - 1; i >= 0; i-- {
		out = append(out, hex[b[i]&15], '.', hex[b[i]>>4], '.')
	}
	return string(append(out, "ip6.arpa"...))
}

// ReverseSuffixes returns the reverse-name suffixes that contain exactly the addresses of a
// prefix: one if the prefix ends at a label boundary, otherwise up to 128 (IPv4) or 8 (IPv6).
func ReverseSuffixes(p netip.Prefix) []string {
	p = p.Masked()
	step := 8
	if p.Addr().Is6() {
		step = 4
	}
	bits := (p.Bits() + step - 1) / step * step
	drop := p.Addr().BitLen()/step - bits/step // number of labels to remove
	a := p.Addr()
	out := make([]string, 0, 1<<(bits-p.Bits()))
	for range 1 << (bits - p.Bits()) {
		name := ReverseName(a)
		for range drop {
			_, name, _ = strings.Cut(name, ".")
		}
		out = append(out, name)
		a = plus(a, a.BitLen()-bits)
	}
	return out
}

// plus adds 2^bit to an address.
func plus(a netip.Addr, bit int) netip.Addr {
	b := a.AsSlice()
	carry := 1 << (bit % 8)
	for i := len(b) - 1 - bit/8; i >= 0 && carry > 0; i-- {
		carry += int(b[i])
		b[i] = byte(carry)
		carry >>= 8
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}
