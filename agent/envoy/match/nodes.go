package match

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// sourceTypeNames are those of listenerv3.FilterChainMatch_ConnectionSourceType.
var sourceTypeNames = [...]string{anyValue, "SAME_IP_OR_LOOPBACK", "EXTERNAL"}

// subtree is a node of the tree.
type subtree interface {
	// collect calls fn with the index of every chain below, some of them several times.
	collect(fn func(chain int))
	// values are what can be chosen at the node, the most specific first.
	values() []string
}

func (l portLevel) collect(fn func(int)) {
	for _, n := range l {
		n.collect(fn)
	}
}

func (l portLevel) values() []string {
	var ports []uint16
	for p := range l {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b uint16) int { return zeroLast(int(a), int(b)) })
	return texts(ports, portText)
}

func (l *destinationIPs) collect(fn func(int)) { collectPrefixes(&l.prefixMap, fn) }
func (l *destinationIPs) values() []string     { return prefixValues(&l.prefixMap) }
func (l *sourceIPs) collect(fn func(int))      { collectPrefixes(&l.prefixMap, fn) }
func (l *sourceIPs) values() []string          { return prefixValues(&l.prefixMap) }

func (l *directIPs) collect(fn func(int)) {
	if l.tree == nil {
		if l.only != 0 {
			fn(l.only - 1)
		}
		return
	}
	collectPrefixes(l.tree, fn)
}

func (l *directIPs) values() []string {
	if l.tree == nil {
		return []string{anyValue}[:min(l.only, 1)]
	}
	return prefixValues(l.tree)
}

// ambiguous is that of the tree.
func (l *directIPs) ambiguous() (netip.Prefix, bool) {
	if l.tree == nil {
		return netip.Prefix{}, false
	}
	return l.tree.ambiguous()
}

func collectPrefixes[T subtree](m *prefixMap[T], fn func(int)) {
	for _, n := range m.nodes {
		n.collect(fn)
	}
	if m.hasNone {
		m.none.collect(fn)
	}
}

func (l nameLevel) collect(fn func(int)) {
	for _, n := range l {
		n.collect(fn)
	}
}

func (l nameLevel) values() []string {
	var names []string
	for n := range l {
		if strings.HasPrefix(n, ".") {
			n = "*" + n
		}
		names = append(names, n)
	}
	// Exact names, then wildcards by length, then those that ask for none.
	slices.SortFunc(names, func(a, b string) int {
		wa, wb := strings.HasPrefix(a, "*"), strings.HasPrefix(b, "*")
		switch {
		case (a == "") != (b == ""):
			return less(b == "")
		case wa != wb:
			return less(wb)
		case wa && len(a) != len(b):
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return texts(names, valueText)
}

func (l *transportLevel) collect(fn func(int)) {
	for i := range l.items {
		l.items[i].value.collect(fn)
	}
}
func (l *transportLevel) values() []string { return sortedValues(l.keys()) }

func (l *protocolLevel) collect(fn func(int)) {
	for i := range l.items {
		l.items[i].value.collect(fn)
	}
}
func (l *protocolLevel) values() []string { return sortedValues(l.keys()) }

func (t *sourceTypes) collect(fn func(int)) {
	for i := range t {
		t[i].collect(fn)
	}
}

func (t *sourceTypes) values() []string {
	var out []string
	for _, k := range []listenerv3.FilterChainMatch_ConnectionSourceType{listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK, listenerv3.FilterChainMatch_EXTERNAL, listenerv3.FilterChainMatch_ANY} {
		if !t[k].empty() {
			out = append(out, sourceTypeNames[k])
		}
	}
	return out
}

func (l sourcePorts) collect(fn func(int)) {
	for _, c := range l {
		fn(c)
	}
}

func (l sourcePorts) values() []string {
	var ports []uint32
	for p := range l {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b uint32) int { return zeroLast(int(a), int(b)) })
	return texts(ports, func(p uint32) string { return portText(uint16(p)) })
}

func prefixValues[T any](m *prefixMap[T]) []string {
	var out []string
	m.each(func(p netip.Prefix, _ T) { out = append(out, prefixText(p)) })
	return out
}

// sortedValues lists keys in their order, "" last.
func sortedValues(keys []string) []string {
	slices.SortFunc(keys, func(a, b string) int {
		if (a == "") != (b == "") {
			return less(b == "")
		}
		return strings.Compare(a, b)
	})
	return texts(keys, valueText)
}

func texts[T any](list []T, text func(T) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return out
}

func valueText(s string) string {
	if s == "" {
		return anyValue
	}
	return s
}

func portText(p uint16) string {
	if p == 0 {
		return anyValue
	}
	return strconv.Itoa(int(p))
}

func less(yes bool) int {
	if yes {
		return -1
	}
	return 1
}

func zeroLast(a, b int) int {
	if (a == 0) != (b == 0) {
		return less(b == 0)
	}
	return a - b
}
