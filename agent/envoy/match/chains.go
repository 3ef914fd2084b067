package match

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// MaxLeaves bounds the combinations of values that the filter chains of one listener may ask for: repeated fields
// multiply. A bound of this package; Envoy has none.
const MaxLeaves = 1 << 18

// NoIndex stands for no filter chain, DefaultIndex for the default one.
const (
	NoIndex      = -1
	DefaultIndex = -2
)

// chainIndex is the tree by which Envoy finds a filter chain, one level for each kind of criterion in the order in which
// it asks (FilterChainManagerImpl). The order of the chains in the listener has no part in it. Levels at which no chain
// asks for anything are left out, except destination port and IP.
type chainIndex struct {
	chains []*listenerv3.FilterChain
	levels []chainLevel
	// lengths are those of the prefixes at each level, the longest first: of IPv4, of IPv6. There are few of them as a
	// rule, which makes this faster than a trie of bits and smaller by far.
	lengths [][2][]int
	root    *node
	leaves  int
	// conflicts are pairs of chains, each at most once, that ask for the same.
	Conflicts []conflict
	paired    map[[2]int]bool
}

// conflict is two chains, or one with itself, that want the same connections. Envoy refuses the listener.
type conflict struct {
	First, Second int
	Leaf          string // what both want
}

// node is one of the tree. Up to a few edges it is a list, which most nodes stay.
type node struct {
	edges []edge
	index map[key]int // of the edges, when they are many
	chain int         // of a leaf: the index of its chain
}

type edge struct {
	key key
	to  *node
}

// manyEdges is the number from which on a node has an index.
const manyEdges = 8

// get returns the node below a key, nil for none.
func (n *node) get(k key) *node {
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
func (n *node) at(k key) *node {
	if known := n.get(k); known != nil {
		return known
	}
	out := &node{chain: NoIndex}
	n.edges = append(n.edges, edge{k, out})
	switch {
	case n.index != nil:
		n.index[k] = len(n.edges) - 1
	case len(n.edges) >= manyEdges:
		n.index = make(map[key]int, 2*len(n.edges))
		for i := range n.edges {
			n.index[n.edges[i].key] = i
		}
	}
	return out
}

// sorted lists the edges, the most specific first.
func (n *node) sorted() []edge {
	return slices.SortedFunc(slices.Values(n.edges), func(a, b edge) int { return compareKeys(a.key, b.key) })
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

// ambiguous returns the prefix of length 0 that stands beside "no prefix". Envoy makes 0.0.0.0/0 and ::/0 of the latter,
// and which of the two nodes it finds is not defined; here it is the one with the prefix.
func (n *node) ambiguous() (key, bool) {
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if k := (key{prefix: netip.PrefixFrom(a, 0)}); n.get(k) != nil && n.get(key{}) != nil {
			return k, true
		}
	}
	return key{}, false
}

// IndexChains makes the tree of a listener's chains. What cannot be read of a criterion is left out: Envoy would refuse
// the listener, which the check reports. Of chains in conflict the first stays.
func IndexChains(chains []*listenerv3.FilterChain) *chainIndex {
	x := &chainIndex{chains: chains, root: &node{chain: NoIndex}}
	for _, l := range chainLevels {
		asks := func(c *listenerv3.FilterChain) bool { return l.asks(c.GetFilterChainMatch()) }
		if l.Level == LevelDestinationPort || l.Level == LevelDestinationIP || slices.ContainsFunc(chains, asks) {
			x.levels = append(x.levels, l)
		}
	}
	x.lengths = make([][2][]int, len(x.levels))
	wants := make([][]key, len(x.levels))
	way := make([]int, len(x.levels))
	for i, c := range chains {
		for j, l := range x.levels {
			if wants[j] = append(wants[j][:0], key{}); l.asks(c.GetFilterChainMatch()) {
				wants[j] = l.keys(wants[j][:0], c.GetFilterChainMatch())
			}
			for _, k := range wants[j] {
				if k.prefix.IsValid() {
					lengths := &x.lengths[j][family(k.prefix.Addr())]
					*lengths = addLength(*lengths, k.prefix.Bits())
				}
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

// add enters what a chain wants below a node, at a depth; way is where in its wants the levels above it are.
func (x *chainIndex) add(n *node, chain int, wants [][]key, way []int, depth int) {
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
func (x *chainIndex) leafText(chain int, wants [][]key, way []int) string {
	var texts [numLevels]string
	for i, l := range x.levels {
		k := wants[i][way[i]]
		texts[l.Level] = k.String()
		if names := x.chains[chain].GetFilterChainMatch().GetServerNames(); l.Level == LevelServerName && len(names) > 0 {
			texts[l.Level] = names[way[i]]
		}
		if k == (key{}) {
			texts[l.Level] = ""
		}
	}
	out := fmt.Sprintf("destination port %s, prefix %s, server name %s, transport protocol %s, application protocol %s",
		cmp.Or(texts[LevelDestinationPort], anyValue), cmp.Or(texts[LevelDestinationIP], anyValue), clip.Value(cmp.Or(texts[LevelServerName], anyValue)),
		cmp.Or(texts[LevelTransportProtocol], anyValue), cmp.Or(texts[LevelApplicationProtocol], anyValue))
	if t := texts[LevelDirectSourceIP]; t != "" {
		out += ", direct source " + t
	}
	if t := texts[LevelSourceIP]; t != "" {
		out += ", source " + t
	}
	return out
}

// choose returns the key that fits best below a node at a depth, and what is below it; nil for none. scratch is free for
// its use.
func (x *chainIndex) choose(n *node, depth int, s *Seen, scratch []key) (key, *node) {
	for _, k := range x.levels[depth].tries(scratch[:0], s, &x.lengths[depth]) {
		if next := n.get(k); next != nil {
			return k, next
		}
	}
	return key{}, n.get(key{})
}

// find goes down the tree: the first value that exists at a level is final, there is no way back. It returns the chain's
// index and LevelChain, or NoIndex and the level at which nothing fitted.
func (x *chainIndex) find(s *Seen, rec *levels) (int, Level) {
	rec.start(x)
	n := x.root
	scratch := make([]key, 0, 8)
	for depth := range x.levels {
		k, next := x.choose(n, depth, s, scratch)
		rec.note(depth, k, n, next)
		if next == nil {
			return NoIndex, x.levels[depth].Level
		}
		n = next
	}
	return n.chain, LevelChain
}
