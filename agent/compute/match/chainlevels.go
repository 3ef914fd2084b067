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

// key is a value that chains ask for at a level: a prefix, a number or a text. The zero value is
// that of chains which do not ask for anything there.
type key struct {
	text   string
	prefix netip.Prefix
	number uint32 // a port, or a type of sources whose name is the text
	wild   bool   // a wildcard for server names, whose suffix is the text
}

// String names the value as in Envoy's config.
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

// anyValue is what a level shows for chains that do not ask for anything there.
const anyValue = "any"

// compareKeys puts the most specific first: long prefixes, low numbers, exact names, then wildcards
// by their length. What asks for nothing comes last.
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

// nameKey is the key of a server name, as it stands in the config or as a client sends it.
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
	// appendKeys appends what a match asks for, without what cannot be read.
	appendKeys func(b []key, m *listenerv3.FilterChainMatch) []key
	// input is what of a connection is looked up.
	input func(s *Seen) string
	// tries yields the keys that fit a connection, the most specific first, where prefixes have
	// certain lengths.
	tries func(s *Seen, lengths *[2][]int, yield func(key) bool)
}

// chainLevels are the criteria in the order in which Envoy asks.
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
				return b // the API's own rules refuse it
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

// addressLevel is a level of prefixes. An address that is not valid, as of a peer on a unix socket,
// is held by 0.0.0.0/0 alone.
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

// sourceKey is the key of a type of sources; any source is what asks for nothing.
func sourceKey(t listenerv3.FilterChainMatch_ConnectionSourceType) key {
	if t == listenerv3.FilterChainMatch_ANY {
		return key{}
	}
	return key{text: t.String(), number: uint32(t)}
}

// wants lists what a match asks for, as it writes it; nothing where it asks for nothing.
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

// fits reports whether what a match asks for holds of a connection, taken by itself.
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
