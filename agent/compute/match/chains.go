package match

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// MaxLeaves bounds the combinations of values that the filter chains of one listener may ask for:
// repeated fields multiply. A bound of this package; Envoy has none.
const MaxLeaves = 1 << 18

// NoIndex stands for no filter chain, DefaultIndex for the default one.
const (
	NoIndex      = -1
	DefaultIndex = -2
)

// chainIndex is the tree by which Envoy finds a filter chain, one level for each kind of criterion
// in the order in which it asks (FilterChainManagerImpl). The order of the chains in the listener
// has no part in it. Levels at which no chain asks for anything are left out, except destination
// port and IP.
type chainIndex struct {
	chains []*listenerv3.FilterChain
	levels []*indexLevel
	root   *node
	leaves int
	// conflicts are pairs of chains, each at most once, that ask for the same.
	Conflicts []conflict
	paired    map[[2]int]bool
}

// conflict is two chains, or one with itself, that want the same connections. Envoy refuses the
// listener.
type conflict struct {
	First, Second int
	Leaf          string // what both want
}

// indexLevel is a level with the keys that chains ask for. Nodes know keys by their index; the
// first is the zero key.
type indexLevel struct {
	chainLevel
	keys  []key
	index map[key]int
	// lengths are those of the prefixes, the longest first: of IPv4, of IPv6. There are few of them as
	// a rule, which makes this faster than a trie of bits and smaller by far.
	lengths [2][]int
}

// enter returns the index of a key, which it adds where it is new.
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

// below returns the node below n that has a key, nil for none.
func (l *indexLevel) below(n *node, k key) *node {
	if i, known := l.index[k]; known {
		return n.get(i)
	}
	return nil
}

// sorted lists the edges of a node, the most specific first.
func (l *indexLevel) sorted(n *node) []edge {
	return slices.SortedFunc(slices.Values(n.edges), func(a, b edge) int {
		return compareKeys(l.keys[a.key], l.keys[b.key])
	})
}

// ambiguous returns the prefix of length 0 that stands beside "no prefix" below a node. Envoy makes
// 0.0.0.0/0 and ::/0 of the latter, and which of the two nodes it finds is not defined; here it is
// the one with the prefix.
func (l *indexLevel) ambiguous(n *node) (key, bool) {
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if k := (key{prefix: netip.PrefixFrom(a, 0)}); l.below(n, k) != nil && n.get(0) != nil {
			return k, true
		}
	}
	return key{}, false
}

// search looks for the key below a node that fits best. One is made for many searches.
type search struct {
	level *indexLevel
	in    *node
	key   key
	found *node
	try   func(k key) bool // takes a key and goes on where nothing has it
}

func newSearch() *search {
	q := &search{}
	q.try = func(k key) bool {
		q.key, q.found = k, q.level.below(q.in, k)
		return q.found == nil
	}
	return q
}

// choose returns the key below a node that fits best, and what is below it; nil for none.
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

// node is one of the tree. Up to a few edges it is a list, which most nodes stay.
type node struct {
	edges []edge
	index map[int]int // of the edges by key, when they are many
	chain int         // of a leaf: the index of its chain
}

type edge struct {
	key int // its index at the level
	to  *node
}

// manyEdges is the number from which on a node has an index.
const manyEdges = 8

// get returns the node below a key, nil for none.
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

// at is get, and adds the node where it is new.
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

// collect calls fn with the index of every chain below, some of them several times.
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

// IndexChains makes the tree of a listener's chains. What cannot be read of a criterion is left
// out: Envoy would refuse the listener, which the check reports. Of chains in conflict the first
// stays.
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

// Full reports whether chains were left out for there being too many leaves.
func (x *chainIndex) Full() bool { return x.leaves >= MaxLeaves }

// add enters what a chain wants below a node, at a depth; way is where in its wants the levels
// above it are.
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

// leafText describes a combination of values that a chain asks for.
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

// find goes down the tree: the first value that exists at a level is final, there is no way back.
// It returns the chain's index and LevelChain, or NoIndex and the level at which nothing fitted.
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
