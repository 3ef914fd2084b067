package envoy

import (
	"net/netip"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// MaxLeaves bounds the combinations of values that the filter chains of one listener may ask for: repeated fields
// multiply. A bound of this package; Envoy has none.
const MaxLeaves = 1 << 18

// chainIndex is the tree by which Envoy finds a filter chain, one level for each kind of criterion in the order in which
// it asks (FilterChainManagerImpl). The order of the chains in the listener has no part in it.
type chainIndex struct {
	chains []*listenerv3.FilterChain
	ports  portLevel
	leaves int
	// conflicts are pairs of chains, each at most once, that ask for the same.
	conflicts []conflict
	paired    map[[2]int]bool
}

// conflict is two chains, or one with itself, that want the same connections. Envoy refuses the listener.
type conflict struct {
	first, second int
	leaf          string // what both want
}

// The levels. 0 or "" is the key of chains that do not ask for anything there.
type (
	portLevel      map[uint16]*destinationIPs
	destinationIPs struct{ prefixMap[nameLevel] }
	// nameLevel has wildcards under their suffix: ".example.com".
	nameLevel      map[string]transportLevel
	transportLevel map[string]protocolLevel
	protocolLevel  map[string]*directIPs
	directIPs      struct{ prefixMap[*sourceTypes] }
	sourceTypes    [3]sourceIPs // by listenerv3.FilterChainMatch_ConnectionSourceType
	sourceIPs      struct{ prefixMap[sourcePorts] }
	sourcePorts    map[uint32]int // index of the chain
)

// indexChains makes the tree of a listener's chains. What cannot be read of a criterion is left out: Envoy would refuse
// the listener, which the check reports. Of chains in conflict the first stays.
func indexChains(chains []*listenerv3.FilterChain) *chainIndex {
	x := &chainIndex{chains: chains, ports: portLevel{}}
	for i, c := range chains {
		x.add(i, c.GetFilterChainMatch())
	}
	return x
}

// full reports whether chains were left out for there being too many leaves.
func (x *chainIndex) full() bool { return x.leaves >= MaxLeaves }

func (x *chainIndex) add(i int, m *listenerv3.FilterChainMatch) {
	port := uint16(m.GetDestinationPort().GetValue())
	ips := x.ports[port]
	if ips == nil {
		ips = &destinationIPs{}
		x.ports[port] = ips
	}
	direct, source := parseRanges(m.GetDirectSourcePrefixRanges()), parseRanges(m.GetSourcePrefixRanges())
	newNames := func() nameLevel { return nameLevel{} }
	destination := parseRanges(m.GetPrefixRanges())
	if len(m.GetPrefixRanges()) == 0 {
		x.addNames(i, m, ips.atNone(newNames), direct, source, func() string { return leafText(port, netip.Prefix{}) })
	}
	for _, p := range destination {
		x.addNames(i, m, ips.at(p, newNames), direct, source, func() string { return leafText(port, p) })
	}
}

// orNone is the list, or the one value that stands for none.
func orNone[T any](list []T) []T {
	if len(list) == 0 {
		return make([]T, 1)
	}
	return list
}

// nameKey is the key of a server name.
func nameKey(name string) string {
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "*.") {
		return name[1:]
	}
	return name
}

func (x *chainIndex) addNames(i int, m *listenerv3.FilterChainMatch, names nameLevel, direct, source []netip.Prefix, leaf func() string) {
	for _, name := range orNone(m.GetServerNames()) {
		key := nameKey(name)
		if names[key] == nil {
			names[key] = transportLevel{}
		}
		protocols := names[key][m.GetTransportProtocol()]
		if protocols == nil {
			protocols = protocolLevel{}
			names[key][m.GetTransportProtocol()] = protocols
		}
		for _, alpn := range orNone(m.GetApplicationProtocols()) {
			ips := protocols[alpn]
			if ips == nil {
				ips = &directIPs{}
				protocols[alpn] = ips
			}
			about := func() string { return namesText(leaf(), name, m.GetTransportProtocol(), alpn) }
			newTypes := func() *sourceTypes { return &sourceTypes{} }
			if len(m.GetDirectSourcePrefixRanges()) == 0 {
				x.addSources(i, m, ips.atNone(newTypes), source, about)
			}
			for _, p := range direct {
				x.addSources(i, m, ips.at(p, newTypes), source, func() string { return about() + ", direct source " + p.String() })
			}
		}
	}
}

func (x *chainIndex) addSources(i int, m *listenerv3.FilterChainMatch, types *sourceTypes, source []netip.Prefix, about func() string) {
	t := int(m.GetSourceType())
	if t < 0 || t >= len(types) {
		return // the API's own rules refuse it
	}
	newPorts := func() sourcePorts { return sourcePorts{} }
	if len(m.GetSourcePrefixRanges()) == 0 {
		x.addPorts(i, m, types[t].atNone(newPorts), about)
	}
	for _, p := range source {
		x.addPorts(i, m, types[t].at(p, newPorts), func() string { return about() + ", source " + p.String() })
	}
}

func (x *chainIndex) addPorts(i int, m *listenerv3.FilterChainMatch, ports sourcePorts, about func() string) {
	for _, port := range orNone(m.GetSourcePorts()) {
		if x.full() {
			return
		}
		first, taken := ports[port]
		if !taken {
			ports[port] = i
			x.leaves++
			continue
		}
		if pair := [2]int{first, i}; !x.paired[pair] {
			if x.paired == nil {
				x.paired = map[[2]int]bool{}
			}
			x.paired[pair] = true
			x.conflicts = append(x.conflicts, conflict{first: first, second: i, leaf: about()})
		}
	}
}
