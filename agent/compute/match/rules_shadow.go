package match

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

const (
	maxShadows   = 16      // findings per listener
	shadowBudget = 1 << 15 // leaves to compare
)

// shadows finds chains that never receive some of their connections, because another chain has a
// more specific port or address: Envoy selects that one and does not backtrack.
type shadows struct {
	m      *listenerv3.Listener
	x      *chainIndex
	left   int
	found  map[[2]int]bool
	out    []shadow
	search *search
}

// shadow is a finding about a filter chain that another one hides.
type shadow struct {
	Rule    int
	At      string   // the location in the listener
	Others  []string // related locations
	Message string
}

// FindShadows returns the filter chains of a listener that other chains hide in whole or in part.
func FindShadows(m *listenerv3.Listener, x *chainIndex) []shadow {
	sh := &shadows{m: m, x: x, left: shadowBudget, found: map[[2]int]bool{}, search: newSearch()}
	ports := x.levels[0].keys
	anyPort := x.root.get(0)
	for _, p := range slices.SortedFunc(slices.Values(x.root.edges), func(a, b edge) int {
		return cmp.Compare(ports[a.key].number, ports[b.key].number)
	}) {
		sh.withinPort(p.to, ports[p.key])
		if p.key != 0 && anyPort != nil {
			sh.acrossPorts(anyPort, p.to, ports[p.key])
		}
	}
	return sh.out
}

func (sh *shadows) add(rule int, at string, others []string, format string, args ...any) {
	sh.out = append(sh.out, shadow{rule, at, others, fmt.Sprintf(format, args...)})
}

// withinPort compares each prefix with the prefixes that contain it.
func (sh *shadows) withinPort(ips *node, port key) {
	l := sh.x.levels[1]
	p, both := l.ambiguous(ips)
	if a, b := firstChain(l.below(ips, p)), firstChain(ips.get(0)); both && a != NoIndex && b != NoIndex {
		sh.add(201, finding.Item("filterChains", a, "filterChainMatch", "prefixRanges"),
			[]string{finding.Item("filterChains", b)}, "%s stands beside filter chains without a prefix, "+
				"which mean the same: which of them Envoy finds is not defined; leave the prefix out", p)
	}
	for _, e := range l.sorted(ips) {
		k := l.keys[e.key]
		for outer := range l.covering(ips, k.prefix) {
			if outer != e.to {
				sh.compare(outer, e.to, port, k)
			}
		}
		if anyIP := ips.get(0); anyIP != nil && k.prefix.Bits() > 0 {
			sh.compare(anyIP, e.to, port, k)
		}
	}
}

// acrossPorts compares chains for any port with those for one port, for which Envoy ignores the
// former.
func (sh *shadows) acrossPorts(any, one *node, port key) {
	l := sh.x.levels[1]
	for _, e := range l.sorted(any) {
		inner := one.get(0)
		for covering := range l.covering(one, l.keys[e.key].prefix) {
			inner = covering
			break
		}
		sh.compare(e.to, inner, port, l.keys[e.key])
	}
}

// covering yields the nodes of the prefixes that contain a prefix, including itself, longest first.
func (l *indexLevel) covering(ips *node, p netip.Prefix) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		if !p.IsValid() {
			return
		}
		for _, bits := range l.lengths[family(p.Addr())] {
			if bits > p.Bits() {
				continue
			}
			if outer, err := p.Addr().Prefix(bits); err == nil {
				if n := l.below(ips, key{prefix: outer}); n != nil && !yield(n) {
					return
				}
			}
		}
	}
}

// compare reports the chains of outer whose connections match nothing in inner. Both are nodes
// below the prefixes.
func (sh *shadows) compare(outer, inner *node, port, prefix key) {
	type asked struct {
		name, transport, protocol string
		chain                     int
	}
	var missing []asked
	s := &Seen{}
	sh.below(outer, s, 2, func(n *node) {
		if sh.left--; sh.left >= 0 && !sh.admits(inner, s, 2) {
			missing = append(missing,
				asked{strings.TrimPrefix(s.ServerName, wildName), s.Transport, strings.Join(s.Protocols, ""), firstChain(n)})
		}
	})
	slices.SortFunc(missing, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.transport, b.transport), cmp.Compare(a.protocol, b.protocol))
	})
	for _, m := range missing {
		if m.protocol == "" && sh.serves(m.chain) && slices.ContainsFunc(missing, func(o asked) bool {
			return o.protocol != "" && o.name == m.name && o.transport == m.transport && sh.serves(o.chain)
		}) {
			continue // the finding about the chain of recognized requests suffices
		}
		sh.report(m.chain, inner, port, prefix)
	}
}

// serves reports whether a chain ends in an HTTP connection manager.
func (sh *shadows) serves(chain int) bool {
	if chain == NoIndex {
		return false
	}
	list := sh.x.chains[chain].GetFilters()
	return len(list) > 0 && list[len(list)-1].GetTypedConfig().GetTypeUrl() == HcmURL
}

// wildName stands for the variable labels of a wildcard. It never occurs in a config.
const wildName = "\x00"

// below calls fn for each combination of server name, transport protocol, and application protocol
// of the chains below a node at a depth. s is a matching connection.
func (sh *shadows) below(n *node, s *Seen, depth int, fn func(n *node)) {
	if depth == len(sh.x.levels) || sh.x.levels[depth].Level > LevelApplicationProtocol {
		fn(n)
		return
	}
	for i := range n.edges {
		if sh.left <= 0 {
			return
		}
		switch k := sh.x.levels[depth].keys[n.edges[i].key]; sh.x.levels[depth].Level {
		case LevelServerName:
			if s.ServerName = k.text; k.wild {
				s.ServerName = wildName + k.text
			}
		case LevelTransportProtocol:
			s.Transport = k.text
		case LevelApplicationProtocol:
			s.Protocols = []string{k.text}
		}
		sh.below(n.edges[i].to, s, depth+1, fn)
	}
}

// admits reports whether a connection matches a chain below a node at a depth, regardless of its
// source. An empty transport protocol stands for all of them.
func (sh *shadows) admits(n *node, s *Seen, depth int) bool {
	for ; n != nil && depth < len(sh.x.levels) && sh.x.levels[depth].Level <= LevelApplicationProtocol; depth++ {
		if sh.x.levels[depth].Level == LevelTransportProtocol && s.Transport == "" {
			defer func() { s.Transport = "" }()
			for _, s.Transport = range []string{transportTLS, transportRaw} {
				if !sh.admits(n, s, depth) {
					return false
				}
			}
			return true
		}
		_, n = sh.search.choose(sh.x.levels[depth], n, s)
	}
	return n != nil
}

func (sh *shadows) report(hidden int, inner *node, port, prefix key) {
	if hidden == NoIndex {
		return // all of its values are unreadable
	}
	by := firstChain(inner)
	if by == NoIndex {
		by = hidden // only chains for other addresses name the port
	}
	if sh.found[[2]int{hidden, by}] {
		return
	}
	if len(sh.found) == maxShadows {
		sh.left = 0
		return
	}
	sh.found[[2]int{hidden, by}] = true
	at := finding.Item("filterChains", hidden, "filterChainMatch")
	if tls, http, known := InspectorsOf(sh.m); known {
		m := sh.x.chains[hidden].GetFilterChainMatch()
		if why, field := NeedsInspector(m, port.number, tls, http); why != "" {
			// A second finding for the port would be redundant.
			if own, _ := NeedsInspector(m, m.GetDestinationPort().GetValue(), tls, http); own == "" {
				sh.add(27, at+"/"+field, nil, "no connection to port %s matches filter chain %q: %s",
					port, clip.Value(ChainName(sh.x.chains[hidden], hidden)), why)
			}
			return
		}
	}
	var others []string
	if by != hidden {
		others = []string{finding.Item("filterChains", by)}
	}
	sh.add(202, at, others,
		"filter chain %q is not looked at for port %s and prefix %s, which other chains name more specifically, "+
			"and none of them takes its connections: say it there again",
		clip.Value(ChainName(sh.x.chains[hidden], hidden)), port, prefix)
}

// firstChain returns the lowest index of the chains below a node, or NoIndex.
func firstChain(n *node) int {
	first := NoIndex
	n.collect(func(c int) {
		if first == NoIndex || c < first {
			first = c
		}
	})
	return first
}
