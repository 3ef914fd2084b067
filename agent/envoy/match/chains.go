package match

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
	Conflicts []conflict
	paired    map[[2]int]bool
}

// conflict is two chains, or one with itself, that want the same connections. Envoy refuses the listener.
type conflict struct {
	First, Second int
	Leaf          string // what both want
}

// The levels. 0 or "" is the key of chains that do not ask for anything there.
type (
	portLevel      map[uint16]*destinationIPs
	destinationIPs struct{ prefixMap[nameLevel] }
	// nameLevel has wildcards under their suffix: ".example.com".
	nameLevel      map[string]*transportLevel
	transportLevel struct{ table[protocolLevel] }
	protocolLevel  struct{ table[directIPs] }
	directIPs      struct {
		// only is the index of the chain, plus 1, where one is all there is and it asks for nothing about the source; as
		// a rule that is so, and then there is no tree.
		only int
		tree *prefixMap[*sourceTypes]
	}
	sourceTypes [3]sourceIPs // by listenerv3.FilterChainMatch_ConnectionSourceType
	sourceIPs   struct{ prefixMap[sourcePorts] }
	sourcePorts map[uint32]int // index of the chain
)

// indexChains makes the tree of a listener's chains. What cannot be read of a criterion is left out: Envoy would refuse
// the listener, which the check reports. Of chains in conflict the first stays.
func IndexChains(chains []*listenerv3.FilterChain) *chainIndex {
	x := &chainIndex{chains: chains, ports: portLevel{}}
	for i, c := range chains {
		x.add(i, c.GetFilterChainMatch())
	}
	return x
}

// full reports whether chains were left out for there being too many leaves.
func (x *chainIndex) Full() bool { return x.leaves >= MaxLeaves }

// wanted is what a chain asks for, read.
type wanted struct {
	*listenerv3.FilterChainMatch
	chain          int
	names          []string // their keys
	protocols      []string
	direct, source []netip.Prefix
	anySource      bool // it asks for nothing about the source
}

func (x *chainIndex) add(i int, m *listenerv3.FilterChainMatch) {
	port := uint16(m.GetDestinationPort().GetValue())
	ips := x.ports[port]
	if ips == nil {
		ips = &destinationIPs{}
		x.ports[port] = ips
	}
	w := &wanted{
		FilterChainMatch: m, chain: i, names: texts(orNone(m.GetServerNames()), nameKey), protocols: orNone(m.GetApplicationProtocols()),
		direct: parseRanges(m.GetDirectSourcePrefixRanges()), source: parseRanges(m.GetSourcePrefixRanges()),
		anySource: len(m.GetDirectSourcePrefixRanges())+len(m.GetSourcePrefixRanges())+len(m.GetSourcePorts()) == 0 && m.GetSourceType() == 0,
	}
	newNames := func() nameLevel { return nameLevel{} }
	if len(m.GetPrefixRanges()) == 0 {
		x.addNames(w, ips.atNone(newNames), port, netip.Prefix{})
	}
	for _, p := range parseRanges(m.GetPrefixRanges()) {
		x.addNames(w, ips.at(p, newNames), port, p)
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

func (x *chainIndex) addNames(w *wanted, names nameLevel, port uint16, prefix netip.Prefix) {
	for n, key := range w.names {
		transports := names[key]
		if transports == nil {
			transports = &transportLevel{}
			names[key] = transports
		}
		protocols := transports.at(w.GetTransportProtocol())
		for _, alpn := range w.protocols {
			ips := protocols.at(alpn)
			if x.addOnly(w, ips) {
				continue
			}
			about := func() string {
				return namesText(leafText(port, prefix), orNone(w.GetServerNames())[n], w.GetTransportProtocol(), alpn)
			}
			newTypes := func() *sourceTypes { return &sourceTypes{} }
			tree := ips.grow()
			if len(w.GetDirectSourcePrefixRanges()) == 0 {
				x.addSources(w, tree.atNone(newTypes), about)
			}
			for _, p := range w.direct {
				x.addSources(w, tree.at(p, newTypes), func() string { return about() + ", direct source " + p.String() })
			}
		}
	}
}

// addOnly notes a chain that asks for nothing about the source where there is no other.
func (x *chainIndex) addOnly(w *wanted, ips *directIPs) bool {
	if !w.anySource || ips.only != 0 || ips.tree != nil || x.Full() {
		return false
	}
	ips.only = w.chain + 1
	x.leaves++
	return true
}

// grow returns the tree, made of the only chain where there was none.
func (l *directIPs) grow() *prefixMap[*sourceTypes] {
	if l.tree == nil {
		l.tree = &prefixMap[*sourceTypes]{}
		if l.only != 0 {
			types := l.tree.atNone(func() *sourceTypes { return &sourceTypes{} })
			types[0].atNone(func() sourcePorts { return sourcePorts{} })[0] = l.only - 1
			l.only = 0
		}
	}
	return l.tree
}

// grown is the tree for looking something up.
func (l *directIPs) grown() *prefixMap[*sourceTypes] {
	if l.tree != nil {
		return l.tree
	}
	alone := directIPs{only: l.only}
	return alone.grow()
}

func (x *chainIndex) addSources(w *wanted, types *sourceTypes, about func() string) {
	t := int(w.GetSourceType())
	if t < 0 || t >= len(types) {
		return // the API's own rules refuse it
	}
	newPorts := func() sourcePorts { return sourcePorts{} }
	if len(w.GetSourcePrefixRanges()) == 0 {
		x.addPorts(w, types[t].atNone(newPorts), about)
	}
	for _, p := range w.source {
		x.addPorts(w, types[t].at(p, newPorts), func() string { return about() + ", source " + p.String() })
	}
}

func (x *chainIndex) addPorts(w *wanted, ports sourcePorts, about func() string) {
	for _, port := range orNone(w.GetSourcePorts()) {
		if x.Full() {
			return
		}
		first, taken := ports[port]
		if !taken {
			ports[port] = w.chain
			x.leaves++
			continue
		}
		if pair := [2]int{first, w.chain}; !x.paired[pair] {
			if x.paired == nil {
				x.paired = map[[2]int]bool{}
			}
			x.paired[pair] = true
			x.Conflicts = append(x.Conflicts, conflict{First: first, Second: w.chain, Leaf: about()})
		}
	}
}
