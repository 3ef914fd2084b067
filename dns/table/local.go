package table

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// localSuffix is a suffix whose names never leave the host.
type localSuffix struct {
	name, why string
	flags     uint8
}

// localSuffixes lists the suffixes whose names never leave the host: special-use names, and the
// reverse names of addresses that differ from network to network.
var localSuffixes = slices.Concat([]localSuffix{
	{"localhost", "it names this host (RFC 6761 section 6.3)", flagOwned | flagLocal},
	{"invalid", "its names never exist (RFC 6761 section 6.4)", flagOwned | flagLocal},
	{"onion", "DNS has no names of Tor (RFC 7686)", flagOwned | flagLocal},
}, localReverse())

// localReverse returns the reverse names of private and other local addresses (RFC 6303 section 4,
// RFC 7793). The server of a container or a VPN may know them.
func localReverse() (out []localSuffix) {
	for _, p := range [...]string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "255.255.255.255/32", "::/128", "::1/128", "fd00::/8",
		"fe80::/10", "2001:db8::/32",
	} {
		for _, name := range ReverseSuffixes(netip.MustParsePrefix(p)) {
			why := fmt.Sprintf("it has the reverse names of %s (RFC 6303, RFC 7793)", p)
			out = append(out, localSuffix{name, why, flagOwned | flagLocal | flagDefault})
		}
	}
	return out
}

// LocalSuffix returns the local suffix of a name, and why its names never leave the host. It
// returns "" for other names.
func LocalSuffix(name string) (suffix, why string) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, s := range localSuffixes {
		if below, ok := strings.CutSuffix(name, s.name); ok && (below == "" || strings.HasSuffix(below, ".")) {
			return s.name, s.why
		}
	}
	return "", ""
}

// localHosts are the local names that exist (RFC 6761 section 6.3).
func localHosts() []Host {
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	return []Host{
		{Name: "localhost", Addrs: loopback, Group: Everyone}, {Name: "*.localhost", Addrs: loopback, Group: Everyone},
		{Name: ReverseName(loopback[0]), PTR: "localhost", Group: Everyone},
		{Name: ReverseName(loopback[1]), PTR: "localhost", Group: Everyone},
	}
}

// addLocal adds the local suffixes and names.
func (b *builder) addLocal() {
	for _, s := range localSuffixes {
		b.own(s.name, s.flags)
	}
	for _, h := range localHosts() {
		b.add(&h)
	}
}
