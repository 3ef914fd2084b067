package match

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
)

const (
	maxShadows   = 16      // findings of one listener
	shadowBudget = 1 << 15 // leaves that are looked at
)

// shadows finds chains that do not get connections which they ask for, since another chain names a more specific port or
// address: Envoy takes that and does not come back. Whoever reads the chains as a list of what is admitted is surprised.
type shadows struct {
	m     *listenerv3.Listener
	x     *chainIndex
	left  int
	found map[[2]int]bool
	out   []shadow
}

// shadow is a finding about filter chains of a listener of which one hides another.
type shadow struct {
	Rule    int
	At      string   // the part of the listener
	Others  []string // further parts that have to do with it
	Message string
}

// findShadows returns the filter chains of a listener that do not get connections which they ask for.
func FindShadows(m *listenerv3.Listener, x *chainIndex) []shadow {
	sh := &shadows{m: m, x: x, left: shadowBudget, found: map[[2]int]bool{}}
	ports := make([]uint16, 0, len(x.ports))
	for p := range x.ports {
		ports = append(ports, p)
	}
	slices.Sort(ports)
	for _, p := range ports {
		sh.withinPort(x.ports[p], p)
		if p != 0 && x.ports[0] != nil {
			sh.acrossPorts(x.ports[0], x.ports[p], p)
		}
	}
	return sh.out
}

func (sh *shadows) add(rule int, at string, others []string, format string, args ...any) {
	sh.out = append(sh.out, shadow{rule, at, others, fmt.Sprintf(format, args...)})
}

// withinPort compares each prefix with those that hold it.
func (sh *shadows) withinPort(ips *destinationIPs, port uint16) {
	p, both := ips.ambiguous()
	if a, b := firstChain(ips.nodes[p]), firstChain(ips.none); both && a != NoIndex && b != NoIndex {
		sh.add(201, finding.Part("filterChains", a, "filterChainMatch", "prefixRanges"), []string{finding.Part("filterChains", b)},
			"%s stands beside filter chains without a prefix, which mean the same: which of them Envoy finds is not defined; leave the prefix out", p)
	}
	ips.each(func(p netip.Prefix, names nameLevel) {
		if !p.IsValid() {
			return
		}
		for _, bits := range ips.lengths[family(p.Addr())] {
			if bits >= p.Bits() {
				continue
			}
			if covering, err := p.Addr().Prefix(bits); err == nil {
				if outer, ok := ips.nodes[covering]; ok {
					sh.compare(outer, names, port, p)
				}
			}
		}
		if ips.hasNone && p.Bits() > 0 {
			sh.compare(ips.none, names, port, p)
		}
	})
}

// acrossPorts compares chains for any port with those of one port: there the former are not looked at.
func (sh *shadows) acrossPorts(any, one *destinationIPs, port uint16) {
	any.each(func(p netip.Prefix, names nameLevel) {
		inner := one.none
		if p.IsValid() {
			for _, bits := range one.lengths[family(p.Addr())] {
				if covering, err := p.Addr().Prefix(min(bits, p.Bits())); err == nil && bits <= p.Bits() && one.nodes[covering] != nil {
					inner = one.nodes[covering]
					break
				}
			}
		}
		sh.compare(names, inner, port, p)
	})
}

// admits reports whether a connection that a chain asks for with these keys finds a chain here, that one or another. An
// empty name stands for a client without one, an empty transport protocol for every one.
func (l nameLevel) admits(key, transport, alpn string) bool {
	if transport == "" {
		return l.admits(key, transportTLS, alpn) && l.admits(key, transportRaw, alpn)
	}
	if strings.HasPrefix(key, ".") {
		key = "x" + key // a name that the wildcard stands for
	}
	transports, _, ok := l.find(key)
	if !ok {
		return false
	}
	protocols := transports.get(transport)
	if protocols == nil {
		if protocols = transports.get(""); protocols == nil {
			return false
		}
	}
	return protocols.get(alpn) != nil || protocols.get("") != nil
}

// compare reports the chains of outer whose connections find nothing in inner.
func (sh *shadows) compare(outer, inner nameLevel, port uint16, p netip.Prefix) {
	if sh.left <= 0 || sh.allAdmitted(outer, inner) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(outer)) {
		transports := outer[name]
		for _, transport := range slices.Sorted(slices.Values(transports.keys())) {
			protocols := transports.get(transport)
			for _, alpn := range slices.Sorted(slices.Values(protocols.keys())) {
				if sh.left--; sh.left < 0 {
					return
				}
				if !inner.admits(name, transport, alpn) {
					sh.report(firstChain(protocols.get(alpn)), inner, port, p)
				}
			}
		}
	}
}

// allAdmitted reports whether there is nothing to report, as it is as a rule. It looks in any order, for as long as the
// budget holds, which then is spent.
func (sh *shadows) allAdmitted(outer, inner nameLevel) bool {
	left := sh.left
	for name, transports := range outer {
		for i := range transports.items {
			transport := &transports.items[i]
			for j := range transport.value.items {
				if left--; left < 0 || !inner.admits(name, transport.key, transport.value.items[j].key) {
					return false
				}
			}
		}
	}
	sh.left = left
	return true
}

func (sh *shadows) report(hidden int, inner nameLevel, port uint16, p netip.Prefix) {
	if hidden == NoIndex {
		return // all below it could not be read
	}
	by := firstChain(inner)
	if by == NoIndex {
		by = hidden // the port is named by chains for other addresses alone
	}
	if sh.found[[2]int{hidden, by}] {
		return
	}
	if len(sh.found) == maxShadows {
		sh.left = 0
		return
	}
	sh.found[[2]int{hidden, by}] = true
	at := finding.Part("filterChains", hidden, "filterChainMatch")
	if tls, http, known := InspectorsOf(sh.m); known {
		m := sh.x.chains[hidden].GetFilterChainMatch()
		if why, field := NeedsInspector(m, uint32(port), tls, http); why != "" {
			// To say it again for the port would not help.
			if own, _ := NeedsInspector(m, m.GetDestinationPort().GetValue(), tls, http); own == "" {
				sh.add(27, at+"/"+field, nil, "no connection to port %s fits filter chain %q: %s", portText(port), clip.Value(ChainName(sh.x.chains[hidden], hidden)), why)
			}
			return
		}
	}
	var others []string
	if by != hidden {
		others = []string{finding.Part("filterChains", by)}
	}
	sh.add(202, at, others,
		"filter chain %q is not looked at for port %s and prefix %s, which other chains name more specifically, and none of them takes its connections: say it there again",
		clip.Value(ChainName(sh.x.chains[hidden], hidden)), portText(port), prefixText(p))
}

// firstChain is the lowest index of the chains below a node, NoIndex for none.
func firstChain(n subtree) int {
	first := NoIndex
	if n != nil {
		n.collect(func(c int) {
			if first == NoIndex || c < first {
				first = c
			}
		})
	}
	return first
}
