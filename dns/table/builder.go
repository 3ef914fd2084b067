package table

import "hash/maphash"

// builder collects nodes. With a table under it, these are only what differs from it.
type builder struct {
	ttl   uint32
	under *Table
	errs  []error
	buf   [2 * MaxName]byte

	seed  maphash.Seed
	slots []uint64 // as those of an index
	nodes []*node  // in the order in which they came, which is the same for the same hosts

	// What nodes are made of is allocated for many at a time.
	spare     []node
	spareSets []rrset
	arena     []byte
	grain     int // nodes at a time
	sets      []rrset
	body      []byte
	records   int // in all nodes
	size      int // bytes of these and of the names
}

func newBuilder(ttl uint32, under *Table, nodes int) *builder {
	b := &builder{ttl: ttl, under: under, grain: min(max(nodes, 4), 256), slots: make([]uint64, slotsFor(nodes)),
		nodes: make([]*node, 0, nodes)}
	if under != nil && under.base != nil {
		b.seed = under.base.seed
	} else {
		b.seed = maphash.MakeSeed()
	}
	return b
}

// find returns the node of a name among those that were collected; nil where there is none.
func (b *builder) find(name []byte, h uint64) *node {
	mask := uint64(len(b.slots) - 1)
	for i := h & mask; b.slots[i] != 0; i = (i + 1) & mask {
		if s := b.slots[i]; s>>32 == h>>32 {
			if n := b.nodes[uint32(s)-1]; string(n.name) == string(name) {
				return n
			}
		}
	}
	return nil
}

// insert adds an empty node.
func (b *builder) insert(name []byte, h uint64) *node {
	if 2*(len(b.nodes)+1) > len(b.slots) {
		b.slots = make([]uint64, 2*len(b.slots))
		for i, n := range b.nodes {
			place(b.slots, maphash.Bytes(b.seed, n.name), i)
		}
	}
	if len(b.spare) == 0 {
		b.spare = make([]node, b.grain)
	}
	n := &b.spare[0]
	b.spare = b.spare[1:]
	n.name = b.keep(name)
	b.nodes = append(b.nodes, n)
	place(b.slots, h, len(b.nodes)-1)
	return n
}

// place puts a number at a free place of a hash table.
func place(slots []uint64, h uint64, number int) {
	mask := uint64(len(slots) - 1)
	i := h & mask
	for slots[i] != 0 {
		i = (i + 1) & mask
	}
	slots[i] = h>>32<<32 | uint64(number+1)
}

// keep copies bytes to where they stay.
func (b *builder) keep(p []byte) []byte {
	if cap(b.arena)-len(b.arena) < len(p) {
		b.arena = make([]byte, 0, max(64*b.grain, len(p)))
	}
	at := len(b.arena)
	b.arena = append(b.arena, p...)
	b.size += len(p)
	return b.arena[at:len(b.arena):len(b.arena)]
}

// keepSets is keep for sets.
func (b *builder) keepSets(sets []rrset) []rrset {
	if len(sets) == 0 {
		return nil
	}
	if cap(b.spareSets)-len(b.spareSets) < len(sets) {
		b.spareSets = make([]rrset, 0, max(b.grain, len(sets)))
	}
	at := len(b.spareSets)
	b.spareSets = append(b.spareSets, sets...)
	b.records += len(sets)
	return b.spareSets[at:len(b.spareSets):len(b.spareSets)]
}

// each calls f with all nodes, those that are gone too.
func (b *builder) each(f func(name []byte, n *node)) {
	for _, n := range b.nodes {
		f(n.name, n)
	}
}
