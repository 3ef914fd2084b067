package syntax

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// ParseRange parses a CIDR range as Envoy does: it clears the host bits, clamps a length that is
// too large, and treats a missing length as 0.
func ParseRange(r *corev3.CidrRange) (netip.Prefix, error) {
	return ParsePrefix(r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
}

// ParsePrefix is like ParseRange for an address and a length.
func ParsePrefix(address string, length uint32) (netip.Prefix, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an IP address without a zone", clip.Value(address))
	}
	return a.Prefix(int(min(length, uint32(a.BitLen()))))
}

// ParseRanges returns the valid ranges.
func ParseRanges(rs []*corev3.CidrRange) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(rs))
	for _, r := range rs {
		if p, err := ParseRange(r); err == nil {
			out = append(out, p)
		}
	}
	return out
}
