package table

import (
	"hash/maphash"
	"math/bits"
)

func (x *index) len() int {
	if x == nil {
		return 0
	}
	return len(x.names)
}

// slotsFor returns the size of a hash table that is at most half full.
func slotsFor(names int) int { return 1 << bits.Len(uint(2*names)) }

// newIndex returns an index with capacity for a number of names.
func newIndex(seed maphash.Seed, names int) *index {
	return &index{seed: seed, slots: make([]uint64, slotsFor(names)), names: make([]entry, 0, names),
		sets: make([]set, 0, names), bytes: make([]byte, 0, 64*names)}
}

func (x *index) name(e *entry) []byte { return x.bytes[e.name : e.name+uint32(e.nameLen)] }

// insert adds an empty entry for a new name, and returns its number.
func (x *index) insert(name []byte) int {
	if slots := slotsFor(len(x.names) + 1); slots > len(x.slots) {
		x.slots = make([]uint64, slots)
		for i := range x.names {
			x.setSlot(x.name(&x.names[i]), i)
		}
	}
	x.names = append(x.names, entry{name: uint32(len(x.bytes)), nameLen: uint8(len(name))})
	x.bytes = append(x.bytes, name...)
	x.setSlot(name, len(x.names)-1)
	return len(x.names) - 1
}

// setSlot puts an entry into the hash table.
func (x *index) setSlot(name []byte, number int) {
	h := maphash.Bytes(x.seed, name)
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = h>>32<<32 | uint64(number+1)
}

// add copies an entry of another index, and returns its number.
func (x *index) add(from *index, old *entry) int {
	i := x.insert(from.name(old))
	e := &x.names[i]
	e.flags, e.group, e.children = old.flags, old.group, old.children
	x.mark(e)
	for _, s := range from.sets[old.sets : old.sets+uint32(old.nsets)] {
		x.addSet(e, &rrset{s.qtype, s.count, s.more, from.bytes[s.at : s.at+s.len]})
	}
	return i
}

// addSet adds the records of a type to an entry. The entry has no sets yet, or received the last
// set.
func (x *index) addSet(e *entry, s *rrset) {
	if e.nsets == 0 {
		e.sets = uint32(len(x.sets))
	}
	e.nsets++
	x.sets = append(x.sets, set{uint32(len(x.bytes)), uint32(len(s.body)), s.qtype, s.count, s.more})
	x.bytes = append(x.bytes, s.body...)
}

// mark records the depth of an owned suffix or a wildcard.
func (x *index) mark(e *entry) {
	name := x.name(e)
	if e.flags&flagsOfSuffix != 0 {
		if bit := depthBit(labelsOf(name)); isReverse(name) {
			x.reverse |= bit
		} else {
			x.owned |= bit
		}
	} else if isWildcard(name) {
		x.wild |= depthBit(labelsOf(name) - 1)
	}
}

// isReverse reports whether a name is below arpa.
func isReverse(name []byte) bool {
	const arpa = "\x04arpa\x00"
	return len(name) >= len(arpa) && string(name[len(name)-len(arpa):]) == arpa
}

func isWildcard(name []byte) bool { return len(name) > 2 && name[0] == 1 && name[1] == '*' }

func labelsOf(name []byte) (n int) {
	for i := 0; i < len(name) && name[i] != 0; i += 1 + int(name[i]) {
		n++
	}
	return n
}
