package passthrough

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
)

// targetKind is the kind of a match's destination. Chains are listed in this order.
type targetKind uint8

const (
	addressTarget  targetKind = iota
	networkTarget             // a prefix of addresses
	domainTarget              // one domain
	wildcardTarget            // all domains below one
	anyTarget                 // all domains, equivalent to all addresses
)

// target is the normalized destination of a match.
type target struct {
	kind   targetKind
	prefix netip.Prefix // masked; mapped IPv6 addresses become IPv4
	domain string       // in lower case, without trailing dot and "*"
	text   string       // for names of chains and clusters: an address as written, a domain in lower case
	addr   string       // address of the prefix in Envoy's config
}

// named reports whether the client's name identifies the destination.
func (t *target) named() bool { return t.kind >= domainTarget }

// anywhere reports whether the target includes every address of the family.
func (t *target) anywhere() bool { return t.kind == anyTarget || !t.named() && t.prefix.Bits() == 0 }

// in reports whether the destination can have addresses of a family.
func (t *target) in(v6 bool) bool { return t.named() || t.prefix.Addr().Is6() == v6 }

// never reports whether no client can send the name: Envoy treats "*" as a wildcard only at the
// start.
func (t *target) never() bool { return strings.Contains(t.domain, "*") }

// parseTarget parses the value of a match. The error describes the problem and valid values.
func parseTarget(typ, value string) (target, error) {
	switch typ {
	case typeIP:
		return parseAddress(value)
	case typeCIDR:
		return parseNetwork(value)
	case typeDomain:
		return parseDomain(value)
	}
	return target{}, fmt.Errorf("%q is not a type of match", typ)
}

func parseAddress(s string) (target, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case s == "":
		return target{}, fmt.Errorf("the value is missing: give an IP address")
	case err != nil && strings.Contains(s, "/"):
		return target{}, fmt.Errorf("%s is not an IP address: remove the prefix length, or use type %s",
			show(s), typeCIDR)
	case err != nil:
		return target{}, fmt.Errorf("%s is not an IP address: give IPv4 or IPv6, without spaces, brackets, or a port",
			show(s))
	case a.Zone() != "":
		return target{}, fmt.Errorf("%s has a zone, which is valid on only one host: remove %q", show(s), "%"+a.Zone())
	}
	t := target{kind: addressTarget, text: s, addr: s}
	if a.Is4In6() {
		a = a.Unmap() // the kernel connects to the IPv4 address, so the IPv4 listener receives it
		t.addr = a.String()
	}
	t.prefix = netip.PrefixFrom(a, a.BitLen())
	return t, nil
}

// mappedBits is the prefix length of ::ffff:0:0/96, the IPv4-mapped IPv6 addresses (RFC 4291
// section 2.5.5.2).
const mappedBits = 96

func parseNetwork(s string) (target, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case s == "":
		return target{}, fmt.Errorf("the value is missing: give a network such as 10.0.0.0/8")
	case err != nil && !strings.Contains(s, "/"):
		return target{}, fmt.Errorf("%s is not a network: add a slash and the prefix length, or use type %s",
			show(s), typeIP)
	case err != nil:
		return target{}, fmt.Errorf("%s is not a network: give an IPv4 address with a prefix length of 0 to 32, "+
			"or an IPv6 address without a zone with 0 to 128", show(s))
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= mappedBits {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-mappedBits)
	}
	p = p.Masked()
	return target{kind: networkTarget, prefix: p, text: s, addr: p.Addr().String()}, nil
}

// Limits of domain names in text form (RFC 1035 section 2.3.4).
const (
	maxDomain = 253
	maxLabel  = 63
)

func parseDomain(s string) (target, error) {
	if s == "" {
		return target{}, fmt.Errorf("the value is missing: give a domain such as api.example.com, *.example.com or *")
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return target{}, fmt.Errorf("%s is an IP address: use type %s", show(s), typeIP)
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return target{}, fmt.Errorf("%s is a network: use type %s", show(s), typeCIDR)
	}
	if s == "*" {
		return target{kind: anyTarget, text: s}, nil
	}
	name, wildcard := strings.CutPrefix(s, "*.")
	if !wildcard && s[0] == '*' {
		return target{}, fmt.Errorf("%s is not a domain: a wildcard must be a whole label: use *.%s",
			show(s), toolkit.Clip(strings.TrimLeft(s, "*.")))
	}
	name = lower(strings.TrimSuffix(name, ".")) // clients send no trailing dot
	if err := checkDomain(s, name, wildcard); err != nil {
		return target{}, err
	}
	if wildcard {
		return target{kind: wildcardTarget, domain: "." + name, text: "*." + name}, nil
	}
	return target{kind: domainTarget, domain: name, text: name}, nil
}

// lower converts only ASCII letters. Some other letters would fold to ASCII and yield another name.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// checkDomain validates a name according to RFC 1123 section 2.1, and permits underscores, which
// occur in names of services. s is the original text.
func checkDomain(s, name string, wildcard bool) error {
	if len(name) > maxDomain {
		return fmt.Errorf("%s is not a domain: it has %d characters, and at most %d are allowed",
			show(s), len(name), maxDomain)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		last = label
		if wildcard && label == "*" {
			continue // never matches; reported when the policy is applied
		}
		if label == "" || len(label) > maxLabel {
			return fmt.Errorf("%s is not a domain: each label must have 1 to %d characters", show(s), maxLabel)
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%s is not a domain: label %q begins or ends with '-'", show(s), label)
		}
		for _, r := range label {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			case r == '*':
				return fmt.Errorf("%s is not a domain: a wildcard must be the first label, as in *.example.com", show(s))
			case r == ':':
				return fmt.Errorf("%s is not a domain: give the port in the field port", show(s))
			case r > 0x7f:
				return fmt.Errorf("%s is not a domain: clients send names with other letters in punycode; give that form, "+
					"which begins with xn--", show(s))
			default:
				return fmt.Errorf("%s is not a domain: only letters, digits, '-', '_' and '.' are allowed", show(s))
			}
		}
	}
	if strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%s is not a domain: the last label has no letter", show(s))
	}
	return nil
}

func show(s string) string { return fmt.Sprintf("%q", toolkit.Clip(s)) }
