package match

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// prefixMap finds the longest prefix that holds an address.
type prefixMap[T any] struct {
	nodes map[netip.Prefix]T
	// lengths are those in use, the longest first: of IPv4, of IPv6. There are few of them as a rule, which makes this
	// faster than a trie of bits and smaller by far.
	lengths [2][]int
	none    T // of chains that name no prefix
	hasNone bool
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// at returns the node of a prefix, made by make when it is new.
func (m *prefixMap[T]) at(p netip.Prefix, make func() T) T {
	n, ok := m.nodes[p]
	if !ok {
		if m.nodes == nil {
			m.nodes = map[netip.Prefix]T{}
		}
		n = make()
		m.nodes[p] = n
		lengths := &m.lengths[family(p.Addr())]
		i, found := slices.BinarySearchFunc(*lengths, p.Bits(), func(a, b int) int { return cmp.Compare(b, a) })
		if !found {
			*lengths = slices.Insert(*lengths, i, p.Bits())
		}
	}
	return n
}

// atNone returns the node of those that name no prefix.
func (m *prefixMap[T]) atNone(make func() T) T {
	if !m.hasNone {
		m.none, m.hasNone = make(), true
	}
	return m.none
}

// empty reports whether nothing is in the map.
func (m *prefixMap[T]) empty() bool { return !m.hasNone && len(m.nodes) == 0 }

// find returns the node of the longest prefix that holds the address, and that prefix; the zero prefix stands for the
// node of those that name none. An address that is not valid, as of a peer on a unix socket, is held by that node and
// by 0.0.0.0/0 alone.
//
// Envoy makes 0.0.0.0/0 and ::/0 of "no prefix". Where these stand beside it, which of the two nodes is found is not
// defined; here it is the one with the prefix. See [prefixMap.ambiguous].
func (m *prefixMap[T]) find(a netip.Addr) (node T, p netip.Prefix, ok bool) {
	if !a.IsValid() {
		a = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	for _, bits := range m.lengths[family(a)] {
		if p, err := a.Prefix(bits); err == nil {
			if n, ok := m.nodes[p]; ok {
				return n, p, true
			}
		}
	}
	return m.none, netip.Prefix{}, m.hasNone
}

// ambiguous returns the prefix of length 0 that stands beside "no prefix".
func (m *prefixMap[T]) ambiguous() (netip.Prefix, bool) {
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		p := netip.PrefixFrom(a, 0)
		if _, ok := m.nodes[p]; ok && m.hasNone {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// each calls fn with every node, the longest prefix first, then by address; the zero prefix comes last.
func (m *prefixMap[T]) each(fn func(p netip.Prefix, node T)) {
	keys := make([]netip.Prefix, 0, len(m.nodes))
	for p := range m.nodes {
		keys = append(keys, p)
	}
	slices.SortFunc(keys, comparePrefixes)
	for _, p := range keys {
		fn(p, m.nodes[p])
	}
	if m.hasNone {
		fn(netip.Prefix{}, m.none)
	}
}

// comparePrefixes puts the longest first, then goes by address.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(b.Bits(), a.Bits()), a.Addr().Compare(b.Addr()))
}

// prefixText names a prefix as in Envoy's config; the zero value stands for none.
func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return anyValue
	}
	return p.String()
}

// anyValue is what a level shows for chains that do not ask for anything there.
const anyValue = "any"

// parseRange reads a CIDR range as Envoy does: the bits behind the length are cleared, a length that is too large is
// cut, and one that is missing is 0.
func ParseRange(r *corev3.CidrRange) (netip.Prefix, error) {
	return ParsePrefix(r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
}

func ParsePrefix(address string, length uint32) (netip.Prefix, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an IP address without a zone", clip.Value(address))
	}
	return a.Prefix(int(min(length, uint32(a.BitLen()))))
}

// parseRanges reads those that can be read.
func parseRanges(rs []*corev3.CidrRange) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(rs))
	for _, r := range rs {
		if p, err := ParseRange(r); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// contains reports whether one of the ranges holds the address; no range at all holds every one.
func contains(rs []*corev3.CidrRange, a netip.Addr) bool {
	if len(rs) == 0 {
		return true
	}
	return slices.ContainsFunc(parseRanges(rs), func(p netip.Prefix) bool { return p.Contains(a) })
}
