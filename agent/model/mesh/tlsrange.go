package mesh

import (
	"fmt"
	"slices"
	"strings"
)

// TLSRange is the range of TLS versions and ciphers of the connections between proxies. The numbers
// of versions are those of Envoy: 1 is TLS 1.0, and 4 is TLS 1.3. It includes no version if Min is
// greater than Max.
type TLSRange struct {
	Min, Max int
	Ciphers  []string // for TLS 1.2 and older; empty: all
}

// DefaultTLS is the range of proxies without a policy.
func DefaultTLS() TLSRange { return TLSRange{Min: 3, Max: 4} }

// Covers reports whether a range includes another one.
func (r TLSRange) Covers(o TLSRange) bool {
	versions := o.Min > o.Max || r.Min <= o.Min && o.Max <= r.Max
	return versions && (len(r.Ciphers) == 0 || len(o.Ciphers) > 0 && r.names(o.Ciphers))
}

func (r TLSRange) names(ciphers []string) bool {
	return !slices.ContainsFunc(ciphers, func(c string) bool { return !slices.Contains(r.Ciphers, c) })
}

// Union returns the smallest range that covers two ranges.
func (r TLSRange) Union(o TLSRange) TLSRange {
	out := TLSRange{Min: min(r.Min, o.Min), Max: max(r.Max, o.Max)}
	switch {
	case r.Min > r.Max:
		out.Min, out.Max = o.Min, o.Max
	case o.Min > o.Max:
		out.Min, out.Max = r.Min, r.Max
	}
	if len(r.Ciphers) > 0 && len(o.Ciphers) > 0 {
		out.Ciphers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Ciphers, o.Ciphers))))
	}
	return out
}

// String returns the versions and ciphers as text.
func (r TLSRange) String() string {
	var s string
	switch {
	case r.Min > r.Max:
		s = "no TLS version"
	case r.Min == r.Max:
		s = fmt.Sprintf("TLS 1.%d", r.Min-1)
	default:
		s = fmt.Sprintf("TLS 1.%d to 1.%d", r.Min-1, r.Max-1)
	}
	if len(r.Ciphers) > 0 {
		s += " with " + strings.Join(r.Ciphers, ", ")
	}
	return s
}
