package syntax

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// ParseRange reads a CIDR range as Envoy does: the bits behind the length are cleared, a length
// that is too large is cut, and one that is missing is 0.
func ParseRange(r *corev3.CidrRange) (netip.Prefix, error) {
	return ParsePrefix(r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
}

// ParsePrefix is ParseRange for a range in parts.
func ParsePrefix(address string, length uint32) (netip.Prefix, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an IP address without a zone", clip.Value(address))
	}
	return a.Prefix(int(min(length, uint32(a.BitLen()))))
}

// ParseRanges returns those ranges that can be read.
func ParseRanges(rs []*corev3.CidrRange) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(rs))
	for _, r := range rs {
		if p, err := ParseRange(r); err == nil {
			out = append(out, p)
		}
	}
	return out
}
