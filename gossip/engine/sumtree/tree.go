// Package sumtree holds items by a hash, with the sum of the items of each subtree, so two trees
// find their differences in a few steps.
package sumtree

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	// LeafSize is the maximum number of items in a leaf.
	LeafSize = 16
	// MaxDepth limits the depth of the tree, so a prefix fits into 64 bits.
	MaxDepth = 16
	// ShortSize is the length of a shortened sum in bytes.
	ShortSize = 6
)

// Item is an item of a tree.
type Item interface {
	Position() [16]byte // position in the tree; differs between items
	Term() [16]byte     // term of sums
}

// Digest is a sum of the terms of items. That of a subtree depends only on its items, not on its
// structure.
type Digest [2]uint64

// Add adds the term of an item.
func (d *Digest) Add(h [16]byte) {
	d[0] += binary.BigEndian.Uint64(h[:8])
	d[1] += binary.BigEndian.Uint64(h[8:])
}

func (d *Digest) subtract(h [16]byte) {
	d[0] -= binary.BigEndian.Uint64(h[:8])
	d[1] -= binary.BigEndian.Uint64(h[8:])
}

// Prefix identifies a subtree: the positions whose first Depth hexadecimal digits equal those of
// Bits.
type Prefix struct {
	Depth uint8
	Bits  uint64 // left-aligned; lower bits are zero
}

// Holds reports whether a position is in the subtree.
func (p Prefix) Holds(s [16]byte) bool {
	return p.Depth == 0 || (binary.BigEndian.Uint64(s[:8])^p.Bits)>>(64-4*uint(p.Depth)) == 0
}

// Child returns one of the 16 children.
func (p Prefix) Child(i int) Prefix {
	return Prefix{p.Depth + 1, p.Bits | uint64(i)<<(60-4*uint(p.Depth))}
}

// Valid reports whether the depth is allowed and the bits below it are zero.
func (p Prefix) Valid() bool {
	return p.Depth < MaxDepth && (p.Depth == 0 && p.Bits == 0 || p.Depth > 0 && p.Bits<<(4*uint(p.Depth)) == 0)
}

func digit(s [16]byte, depth uint8) int {
	b := s[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 15)
}

// Tree is a 16-ary tree of items. The zero value is an empty tree.
type Tree[T Item] struct {
	Sum   Digest
	Count int
	kids  *[16]Tree[T] // nil: a leaf with items
	items []T
}

// Put adds an item. The tree must not contain its position.
func (t *Tree[T]) Put(h T) { t.insert(h, h.Term(), 0) }

func (t *Tree[T]) insert(h T, hash [16]byte, depth uint8) {
	t.Sum.Add(hash)
	t.Count++
	if t.kids == nil && (len(t.items) < LeafSize || depth == MaxDepth-1) {
		t.items = append(t.items, h)
		return
	}
	if t.kids == nil {
		t.kids = new([16]Tree[T])
		for _, i := range t.items {
			t.kids[digit(i.Position(), depth)].insert(i, i.Term(), depth+1)
		}
		t.items = nil
	}
	t.kids[digit(h.Position(), depth)].insert(h, hash, depth+1)
}

// Drop removes an item. The tree must contain it.
func (t *Tree[T]) Drop(h T) { t.remove(h, h.Term(), 0) }

func (t *Tree[T]) remove(h T, hash [16]byte, depth uint8) {
	t.Sum.subtract(hash)
	t.Count--
	if t.kids == nil {
		t.items = slices.DeleteFunc(t.items, func(i T) bool { return i.Position() == h.Position() })
		return
	}
	t.kids[digit(h.Position(), depth)].remove(h, hash, depth+1)
	if t.Count <= LeafSize/2 {
		t.items = t.all(make([]T, 0, LeafSize))
		t.kids = nil
	}
}

// all appends all items of the subtree.
func (t *Tree[T]) all(to []T) []T {
	to = append(to, t.items...)
	if t.kids != nil {
		for i := range t.kids {
			to = t.kids[i].all(to)
		}
	}
	return to
}

// At returns the items below a prefix, sorted by position.
func (t *Tree[T]) At(p Prefix) []T {
	n := t
	for d := uint8(0); d < p.Depth && n.kids != nil; d++ {
		n = &n.kids[p.Bits>>(60-4*uint(d))&15]
	}
	out := slices.DeleteFunc(n.all(nil), func(h T) bool { return !p.Holds(h.Position()) })
	slices.SortFunc(out, func(a, b T) int {
		x, y := a.Position(), b.Position()
		return cmp.Compare(string(x[:]), string(y[:]))
	})
	return out
}

// Sums returns the shortened sums and the item counts of the 16 children of a prefix.
func (t *Tree[T]) Sums(p Prefix) (out [16]uint64, counts [16]int) {
	n := t
	for d := uint8(0); d < p.Depth && n.kids != nil; d++ {
		n = &n.kids[p.Bits>>(60-4*uint(d))&15]
	}
	if n.kids != nil {
		for i := range n.kids {
			out[i], counts[i] = n.kids[i].Sum.short(), n.kids[i].Count
		}
		return out, counts
	}
	var full [16]Digest
	for _, h := range n.items {
		if p.Holds(h.Position()) {
			i := digit(h.Position(), p.Depth)
			full[i].Add(h.Term())
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
func (d Digest) short() uint64 { return d[0] & (1<<(8*ShortSize) - 1) }

// Append appends the encoding of a prefix.
func (p Prefix) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(append(b, p.Depth), p.Bits)
}

// ParsePrefix decodes the prefix at the start of b.
func ParsePrefix(b []byte) (Prefix, error) {
	if len(b) < 9 {
		return Prefix{}, errors.New("prefix is truncated")
	}
	p := Prefix{Depth: b[0], Bits: binary.BigEndian.Uint64(b[1:])}
	if !p.Valid() {
		return Prefix{}, fmt.Errorf("prefix of depth %d is not valid", p.Depth)
	}
	return p, nil
}

// ParseDigest decodes a digest.
func ParseDigest(b []byte) (d Digest, err error) {
	if len(b) != 16 {
		return d, errors.New("digest has another length than 16 bytes")
	}
	return Digest{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// Append appends the encoding of a digest.
func (d Digest) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, d[0]), d[1])
}
