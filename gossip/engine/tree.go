package engine

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// leafSize is the maximum number of heads in a leaf, and of heads listed instead of summed.
const leafSize = 16

// maxDepth limits the depth of the tree, so a prefix fits into 64 bits.
const maxDepth = 16

// Digest is the sum of the hashes of heads. The digest of a subtree depends only on its heads, not
// on its structure.
type Digest [2]uint64

func (d *Digest) add(h Hash) {
	d[0] += binary.BigEndian.Uint64(h[:8])
	d[1] += binary.BigEndian.Uint64(h[8:])
}

func (d *Digest) subtract(h Hash) {
	d[0] -= binary.BigEndian.Uint64(h[:8])
	d[1] -= binary.BigEndian.Uint64(h[8:])
}

// Prefix identifies a subtree: the slots whose first Depth hexadecimal digits equal those of Bits.
type Prefix struct {
	Depth uint8
	Bits  uint64 // left-aligned; lower bits are zero
}

func (p Prefix) holds(s Slot) bool {
	return p.Depth == 0 || (binary.BigEndian.Uint64(s[:8])^p.Bits)>>(64-4*uint(p.Depth)) == 0
}

func (p Prefix) child(i int) Prefix {
	return Prefix{p.Depth + 1, p.Bits | uint64(i)<<(60-4*uint(p.Depth))}
}

// valid reports whether the depth is allowed and the bits below it are zero.
func (p Prefix) valid() bool {
	return p.Depth < maxDepth && (p.Depth == 0 && p.Bits == 0 || p.Depth > 0 && p.Bits<<(4*uint(p.Depth)) == 0)
}

func digit(s Slot, depth uint8) int {
	b := s[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 15)
}

// tree is a 16-ary tree of heads by slot, with the sum of each subtree.
type tree struct {
	sum   Digest
	count int
	kids  *[16]tree // nil: a leaf with items
	items []Head
}

// hash returns the contribution of a head to sums.
func (h Head) hash() Hash { return sum("nearside head", h.append(nil)) }

// put adds a head. The tree must not contain its slot.
func (t *tree) put(h Head) { t.insert(h, h.hash(), 0) }

func (t *tree) insert(h Head, hash Hash, depth uint8) {
	t.sum.add(hash)
	t.count++
	if t.kids == nil && (len(t.items) < leafSize || depth == maxDepth-1) {
		t.items = append(t.items, h)
		return
	}
	if t.kids == nil {
		t.kids = new([16]tree)
		for _, i := range t.items {
			t.kids[digit(i.Slot, depth)].insert(i, i.hash(), depth+1)
		}
		t.items = nil
	}
	t.kids[digit(h.Slot, depth)].insert(h, hash, depth+1)
}

// drop removes a head. The tree must contain it.
func (t *tree) drop(h Head) { t.remove(h, h.hash(), 0) }

func (t *tree) remove(h Head, hash Hash, depth uint8) {
	t.sum.subtract(hash)
	t.count--
	if t.kids == nil {
		t.items = slices.DeleteFunc(t.items, func(i Head) bool { return i.Slot == h.Slot })
		return
	}
	t.kids[digit(h.Slot, depth)].remove(h, hash, depth+1)
	if t.count <= leafSize/2 {
		t.items = t.heads(make([]Head, 0, leafSize))
		t.kids = nil
	}
}

// heads appends all heads of the subtree.
func (t *tree) heads(to []Head) []Head {
	to = append(to, t.items...)
	if t.kids != nil {
		for i := range t.kids {
			to = t.kids[i].heads(to)
		}
	}
	return to
}

// at returns the heads below a prefix, sorted by slot.
func (t *tree) at(p Prefix) []Head {
	n := t
	for d := uint8(0); d < p.Depth && n.kids != nil; d++ {
		n = &n.kids[p.Bits>>(60-4*uint(d))&15]
	}
	out := slices.DeleteFunc(n.heads(nil), func(h Head) bool { return !p.holds(h.Slot) })
	slices.SortFunc(out, func(a, b Head) int { return cmp.Compare(string(a.Slot[:]), string(b.Slot[:])) })
	return out
}

// sums returns the shortened sums and the head counts of the 16 children of a prefix.
func (t *tree) sums(p Prefix) (out [16]uint64, counts [16]int) {
	n := t
	for d := uint8(0); d < p.Depth && n.kids != nil; d++ {
		n = &n.kids[p.Bits>>(60-4*uint(d))&15]
	}
	if n.kids != nil {
		for i := range n.kids {
			out[i], counts[i] = n.kids[i].sum.short(), n.kids[i].count
		}
		return out, counts
	}
	var full [16]Digest
	for _, h := range n.items {
		if p.holds(h.Slot) {
			i := digit(h.Slot, p.Depth)
			full[i].add(h.hash())
			counts[i]++
		}
	}
	for i := range full {
		out[i] = full[i].short()
	}
	return out, counts
}

// short returns the prefix of a sum used in comparisons. Different sums collide with probability
// 2^-48.
func (d Digest) short() uint64 { return d[0] & (1<<(8*sumSize) - 1) }
