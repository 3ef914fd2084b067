package match

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// key is a value that chains match at a level: a prefix, a number, or a text. The zero value is for
// chains without a criterion at that level.
type key struct {
	text   string
	prefix netip.Prefix
	number uint32 // a port, or a source type whose name is the text
	wild   bool   // a server name wildcard whose suffix is the text
}

// String returns the value as in Envoy's config.
func (k key) String() string {
	switch {
	case k.prefix.IsValid():
		return k.prefix.String()
	case k.wild:
		return "*" + k.text
	case k.text != "":
		return k.text
	case k.number != 0:
		return strconv.FormatUint(uint64(k.number), 10)
	}
	return anyValue
}

// anyValue is shown for chains without a criterion at a level.
const anyValue = "any"

// compareKeys orders the most specific keys first: long prefixes, low numbers, exact names, then
// wildcards by length. The zero key comes last.
func compareKeys(a, b key) int {
	switch {
	case a == b:
		return 0
	case a == key{}:
		return 1
	case b == key{}:
		return -1
	case a.wild && b.wild:
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), strings.Compare(a.text, b.text))
	case a.wild != b.wild && a.wild:
		return 1
	case a.wild != b.wild:
		return -1
	}
	return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), a.prefix.Addr().Compare(b.prefix.Addr()),
		cmp.Compare(a.number, b.number), strings.Compare(a.text, b.text))
}

// nameKey returns the key of a server name from the config or from a client.
func nameKey(name string) key {
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "*.") {
		name = name[1:]
	}
	return key{text: name, wild: strings.HasPrefix(name, ".")}
}

// chainLevel is a criterion of filter chains.
type chainLevel struct {
	Level
	asks func(m *listenerv3.FilterChainMatch) bool
	// appendKeys appends the values of a match and omits unreadable ones.
	appendKeys func(b []key, m *listenerv3.FilterChainMatch) []key
	// input returns the property of a connection that is looked up.
	input func(s *Seen) string
	// tries yields the keys that match a connection, the most specific first, given the lengths of
	// prefixes.
	tries func(s *Seen, lengths *[2][]int, yield func(key) bool)
}

// chainLevels lists the criteria in Envoy's order.
var chainLevels = [...]chainLevel{
	{LevelDestinationPort,
		func(m *listenerv3.FilterChainMatch) bool { return m.GetDestinationPort() != nil },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			return append(b, key{number: uint32(uint16(m.GetDestinationPort().GetValue()))})
		},
		func(s *Seen) string { return portText(s.Dst.Port()) },
		func(s *Seen, _ *[2][]int, yield func(key) bool) { yield(key{number: uint32(s.Dst.Port())}) },
	},
	addressLevel(LevelDestinationIP, (*listenerv3.FilterChainMatch).GetPrefixRanges, func(s *Seen) netip.AddrPort {
		return s.Dst
	}),
	{LevelServerName,
		func(m *listenerv3.FilterChainMatch) bool { return len(m.GetServerNames()) > 0 },
		func(b []key, m *listenerv3.FilterChainMatch) []key { return keysOf(b, m.GetServerNames(), nameKey) },
		func(s *Seen) string { return s.ServerName },
		func(s *Seen, _ *[2][]int, yield func(key) bool) {
			if yield(nameKey(s.ServerName)) {
				wildcardKeys(s.ServerName, func(suffix string) bool { return yield(key{text: suffix, wild: true}) })
			}
		},
	},
	{LevelTransportProtocol,
		func(m *listenerv3.FilterChainMatch) bool { return m.GetTransportProtocol() != "" },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			return append(b, key{text: m.GetTransportProtocol()})
		},
		func(s *Seen) string { return s.Transport },
		func(s *Seen, _ *[2][]int, yield func(key) bool) { yield(key{text: s.Transport}) },
	},
	{LevelApplicationProtocol,
		func(m *listenerv3.FilterChainMatch) bool { return len(m.GetApplicationProtocols()) > 0 },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			return keysOf(b, m.GetApplicationProtocols(), textKey)
		},
		func(s *Seen) string { return strings.Join(s.Protocols, ",") },
		func(s *Seen, _ *[2][]int, yield func(key) bool) { // in the client's order
			for i := 0; i < len(s.Protocols) && yield(textKey(s.Protocols[i])); i++ {
			}
		},
	},
	addressLevel(LevelDirectSourceIP, (*listenerv3.FilterChainMatch).GetDirectSourcePrefixRanges,
		func(s *Seen) netip.AddrPort { return s.Direct }),
	{LevelSourceType,
		func(m *listenerv3.FilterChainMatch) bool { return m.GetSourceType() != 0 },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			if _, known := listenerv3.FilterChainMatch_ConnectionSourceType_name[int32(m.GetSourceType())]; !known {
				return b // annotations of the API forbid this value
			}
			return append(b, sourceKey(m.GetSourceType()))
		},
		func(s *Seen) string { return s.sourceType().String() },
		func(s *Seen, _ *[2][]int, yield func(key) bool) { yield(sourceKey(s.sourceType())) },
	},
	addressLevel(LevelSourceIP, (*listenerv3.FilterChainMatch).GetSourcePrefixRanges, func(s *Seen) netip.AddrPort {
		return s.Src
	}),
	{LevelSourcePort,
		func(m *listenerv3.FilterChainMatch) bool { return len(m.GetSourcePorts()) > 0 },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			return keysOf(b, m.GetSourcePorts(), func(p uint32) key { return key{number: p} })
		},
		func(s *Seen) string { return portText(s.Src.Port()) },
		func(s *Seen, _ *[2][]int, yield func(key) bool) { yield(key{number: uint32(s.Src.Port())}) },
	},
}

// addressLevel returns a level of prefixes. An invalid address, such as that of a peer on a unix
// socket, is only within 0.0.0.0/0.
func addressLevel(l Level, ranges func(*listenerv3.FilterChainMatch) []*corev3.CidrRange,
	addr func(*Seen) netip.AddrPort) chainLevel {
	return chainLevel{l,
		func(m *listenerv3.FilterChainMatch) bool { return len(ranges(m)) > 0 },
		func(b []key, m *listenerv3.FilterChainMatch) []key {
			return keysOf(b, syntax.ParseRanges(ranges(m)), func(p netip.Prefix) key { return key{prefix: p} })
		},
		func(s *Seen) string { return addrText(addr(s).Addr()) },
		func(s *Seen, lengths *[2][]int, yield func(key) bool) {
			a := addr(s).Addr()
			if !a.IsValid() {
				a = netip.AddrFrom4([4]byte{255, 255, 255, 255})
			}
			for _, bits := range lengths[family(a)] {
				if p, err := a.Prefix(bits); err == nil && !yield(key{prefix: p}) {
					return
				}
			}
		},
	}
}

func keysOf[T any](b []key, list []T, of func(T) key) []key {
	for _, v := range list {
		b = append(b, of(v))
	}
	return b
}

func textKey(s string) key { return key{text: s} }

// sourceKey returns the key of a source type. The type ANY is the zero key.
func sourceKey(t listenerv3.FilterChainMatch_ConnectionSourceType) key {
	if t == listenerv3.FilterChainMatch_ANY {
		return key{}
	}
	return key{text: t.String(), number: uint32(t)}
}

// wants returns the values of a match as written, or nothing if it has no criterion.
func (l chainLevel) wants(m *listenerv3.FilterChainMatch) []string {
	switch {
	case !l.asks(m):
		return nil
	case l.Level == LevelServerName:
		return m.GetServerNames()
	}
	keys := l.appendKeys(nil, m)
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.String()
	}
	return out
}

// fits reports whether one criterion of a match holds for a connection.
func (l *indexLevel) fits(m *listenerv3.FilterChainMatch, s *Seen) bool {
	wants := l.appendKeys(nil, m)
	fits := !l.asks(m) || slices.Contains(wants, key{})
	if !fits {
		l.tries(s, &l.lengths, func(k key) bool {
			fits = slices.Contains(wants, k)
			return !fits
		})
	}
	return fits
}

func portText(p uint16) string { return key{number: uint32(p)}.String() }

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
