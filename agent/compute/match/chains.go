package match

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// MaxLeaves is the maximum number of value combinations of one listener's filter chains; repeated
// fields multiply them. Envoy has no such limit.
const MaxLeaves = 1 << 18

// NoIndex means that no filter chain matches. DefaultIndex is the default chain.
const (
	NoIndex      = -1
	DefaultIndex = -2
)

// chainIndex is the tree by which Envoy finds a filter chain, with one level for each criterion, in
// Envoy's order (FilterChainManagerImpl). The order of the chains does not matter. The tree omits
// levels without criteria, except destination port and IP.
type chainIndex struct {
	chains []*listenerv3.FilterChain
	levels []*indexLevel
	root   *node
	leaves int
	// Conflicts lists pairs of chains with the same criteria, each pair once.
	Conflicts []conflict
	paired    map[[2]int]bool
}

// conflict is a pair of chains, possibly one chain twice, that match the same connections. Envoy
// rejects the listener.
type conflict struct {
	First, Second int
	Leaf          string // the value combination of both
}

// indexLevel is a level with the keys of all chains. Nodes refer to keys by index; the first is the
// zero key.
type indexLevel struct {
	chainLevel
	keys  []key
	index map[key]int
	// lengths holds the prefix lengths of IPv4 and of IPv6, longest first. There are usually few of
	// them, which makes this faster and much smaller than a bit trie.
	lengths [2][]int
}

// enter returns the index of a key and adds a new one.
func (l *indexLevel) enter(k key) int {
	if i, known := l.index[k]; known {
		return i
	}
	l.keys = append(l.keys, k)
	l.index[k] = len(l.keys) - 1
	if k.prefix.IsValid() {
		lengths := &l.lengths[family(k.prefix.Addr())]
		*lengths = addLength(*lengths, k.prefix.Bits())
	}
	return len(l.keys) - 1
}

// below returns the child of n with a key, or nil.
func (l *indexLevel) below(n *node, k key) *node {
	if i, known := l.index[k]; known {
		return n.get(i)
	}
	return nil
}

// sorted returns the edges of a node, the most specific first.
func (l *indexLevel) sorted(n *node) []edge {
	return slices.SortedFunc(slices.Values(n.edges), func(a, b edge) int {
		return compareKeys(l.keys[a.key], l.keys[b.key])
	})
}

// ambiguous returns the prefix of length 0 that coexists with "no prefix" below a node. Envoy turns
// the latter into 0.0.0.0/0 and ::/0 and may find either node; this package uses the one with the
// prefix.
func (l *indexLevel) ambiguous(n *node) (key, bool) {
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if k := (key{prefix: netip.PrefixFrom(a, 0)}); l.below(n, k) != nil && n.get(0) != nil {
			return k, true
		}
	}
	return key{}, false
}

// search looks for the most specific matching key below a node. A search is reusable.
type search struct {
	level *indexLevel
	in    *node
	key   key
	found *node
	try   func(k key) bool // takes a key; returns true if no chain has it
}

func newSearch() *search {
	q := &search{}
	q.try = func(k key) bool {
		q.key, q.found = k, q.level.below(q.in, k)
		return q.found == nil
	}
	return q
}

// choose returns the most specific matching key below a node and its child, or nil.
func (q *search) choose(l *indexLevel, n *node, s *Seen) (key, *node) {
	q.level, q.in, q.found = l, n, nil
	if len(n.edges) > 1 || n.get(0) == nil {
		l.tries(s, &l.lengths, q.try)
	}
	if q.found == nil {
		return key{}, n.get(0)
	}
	return q.key, q.found
}

// node is a node of the tree. Nodes with few edges, which most are, search them linearly.
type node struct {
	edges []edge
	index map[int]int // edges by key, if there are many
	chain int         // of a leaf: the index of its chain
}

type edge struct {
	key int // index at the level
	to  *node
}

// manyEdges is the number of edges from which a node has an index.
const manyEdges = 8

// get returns the child with a key, or nil.
func (n *node) get(k int) *node {
	if n == nil {
		return nil
	}
	i := -1
	if n.index == nil {
		i = slices.IndexFunc(n.edges, func(e edge) bool { return e.key == k })
	} else if at, ok := n.index[k]; ok {
		i = at
	}
	if i < 0 {
		return nil
	}
	return n.edges[i].to
}

// at returns the child with a key and adds a new one.
func (n *node) at(k int) *node {
	if known := n.get(k); known != nil {
		return known
	}
	out := &node{chain: NoIndex}
	n.edges = append(n.edges, edge{k, out})
	switch {
	case n.index != nil:
		n.index[k] = len(n.edges) - 1
	case len(n.edges) >= manyEdges:
		n.index = make(map[int]int, 2*len(n.edges))
		for i := range n.edges {
			n.index[n.edges[i].key] = i
		}
	}
	return out
}

// collect calls fn with the index of every chain below, possibly several times.
func (n *node) collect(fn func(chain int)) {
	if n == nil {
		return
	}
	if n.chain != NoIndex {
		fn(n.chain)
	}
	for i := range n.edges {
		n.edges[i].to.collect(fn)
	}
}

// IndexChains builds the tree of a listener's chains. It omits unreadable values: Envoy rejects the
// listener, and the check reports it. Of conflicting chains the first one stays.
func IndexChains(chains []*listenerv3.FilterChain) *chainIndex {
	x := &chainIndex{chains: chains, root: &node{chain: NoIndex}}
	for _, l := range chainLevels {
		asks := func(c *listenerv3.FilterChain) bool { return l.asks(c.GetFilterChainMatch()) }
		if l.Level == LevelDestinationPort || l.Level == LevelDestinationIP || slices.ContainsFunc(chains, asks) {
			x.levels = append(x.levels, &indexLevel{chainLevel: l, keys: []key{{}}, index: map[key]int{{}: 0}})
		}
	}
	var keys []key
	wants, way := make([][]int, len(x.levels)), make([]int, len(x.levels))
	for i, c := range chains {
		for j, l := range x.levels {
			if keys = append(keys[:0], key{}); l.asks(c.GetFilterChainMatch()) {
				keys = l.appendKeys(keys[:0], c.GetFilterChainMatch())
			}
			wants[j] = wants[j][:0]
			for _, k := range keys {
				wants[j] = append(wants[j], l.enter(k))
			}
		}
		x.add(x.root, i, wants, way, 0)
	}
	return x
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Full reports whether chains were omitted because there are too many leaves.
func (x *chainIndex) Full() bool { return x.leaves >= MaxLeaves }

// add inserts the values of a chain below a node at a depth. way holds the values chosen at the
// levels above.
func (x *chainIndex) add(n *node, chain int, wants [][]int, way []int, depth int) {
	if depth < len(wants) {
		for i, k := range wants[depth] {
			if x.Full() {
				return
			}
			way[depth] = i
			x.add(n.at(k), chain, wants, way, depth+1)
		}
		return
	}
	x.leaves++
	if n.chain == NoIndex {
		n.chain = chain
		return
	}
	if pair := [2]int{n.chain, chain}; !x.paired[pair] {
		if x.paired == nil {
			x.paired = map[[2]int]bool{}
		}
		x.paired[pair] = true
		x.Conflicts = append(x.Conflicts, conflict{First: n.chain, Second: chain, Leaf: x.leafText(chain, wants, way)})
	}
}

// leafText describes a value combination of a chain.
func (x *chainIndex) leafText(chain int, wants [][]int, way []int) string {
	var texts [numLevels]string
	for i, l := range x.levels {
		k := l.keys[wants[i][way[i]]]
		texts[l.Level] = k.String()
		if names := x.chains[chain].GetFilterChainMatch().GetServerNames(); l.Level == LevelServerName && len(names) > 0 {
			texts[l.Level] = names[way[i]]
		}
		if k == (key{}) {
			texts[l.Level] = ""
		}
	}
	out := fmt.Sprintf("destination port %s, prefix %s, server name %s, transport protocol %s, application protocol %s",
		cmp.Or(texts[LevelDestinationPort], anyValue), cmp.Or(texts[LevelDestinationIP], anyValue),
		clip.Value(cmp.Or(texts[LevelServerName], anyValue)),
		cmp.Or(texts[LevelTransportProtocol], anyValue), cmp.Or(texts[LevelApplicationProtocol], anyValue))
	if t := texts[LevelDirectSourceIP]; t != "" {
		out += ", direct source " + t
	}
	if t := texts[LevelSourceIP]; t != "" {
		out += ", source " + t
	}
	return out
}

// find descends the tree. The first existing value at a level is final: there is no backtracking.
// It returns the chain's index and LevelChain, or NoIndex and the level at which nothing matched.
func (x *chainIndex) find(s *Seen, rec *levels) (int, Level) {
	rec.start(x)
	n := x.root
	q := newSearch()
	for _, l := range x.levels {
		k, next := q.choose(l, n, s)
		rec.note(l, k, n, next)
		if next == nil {
			return NoIndex, l.Level
		}
		n = next
	}
	return n.chain, LevelChain
}
