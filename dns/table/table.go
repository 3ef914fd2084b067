package table

import (
	"hash/maphash"
	"math/bits"
)

// Table is a set of names with what they resolve to. It never changes; [Table.With] makes another
// one. All methods may be called at the same time. The zero value and nil are empty tables.
type Table struct {
	ttl  uint32
	base *index
	// delta is consulted first; nil for none. It has the seed of base, and a name in it without sets,
	// flags and children is gone.
	delta *index
}

// Flags of a node.
const (
	flagOwned = 1 << iota // a suffix below which there is nothing but what the table has
	flagHost              // a name that somebody has given, other than one that only lies above such names
)

// rrset is the records of a type, ready to follow a question: each begins with a pointer into the
// question.
type rrset struct {
	qtype uint16
	count uint16 // of the records of the type
	more  uint16 // of the records for the additional section, which follow
	body  []byte
}

// index finds nodes by their names. It is one array of places, hashed by open addressing, over
// arrays without pointers.
type index struct {
	seed  maphash.Seed
	slots []uint64 // the upper half of the hash, and the number of the entry plus one
	names []entry
	sets  []set
	bytes []byte // names, and the records of the sets
	// wild and owned have a bit for each number of labels that the parent of a wildcard, or an owned
	// suffix, has; the last bit is for all that are deeper.
	wild, owned uint64
}

type entry struct {
	name     uint32 // where it begins in bytes
	sets     uint32
	group    uint32
	children int32
	nameLen  uint8
	nsets    uint8
	flags    uint8
}

// gone reports whether a name of a delta is not there any more.
func (e *entry) gone() bool { return e.nsets == 0 && e.flags == 0 && e.children == 0 }

type set struct {
	at, len            uint32
	qtype, count, more uint16
}

func depthBit(labels int) uint64 { return 1 << min(labels, 63) }

// find returns the number of an entry; -1 where there is none.
func (x *index) find(name []byte, h uint64) int {
	if x == nil || len(x.slots) == 0 {
		return -1
	}
	mask := uint64(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := x.slots[i]
		if s == 0 {
			return -1
		}
		if s>>32 != h>>32 {
			continue
		}
		n := int(uint32(s)) - 1
		e := &x.names[n]
		if int(e.nameLen) == len(name) && string(x.bytes[e.name:e.name+uint32(e.nameLen)]) == string(name) {
			return n
		}
	}
}

// found is a name that a table has.
type found struct {
	x *index
	e *entry
}

func (f found) ok() bool { return f.e != nil }

// get finds a name.
func (t *Table) get(name []byte) found {
	var h uint64
	switch {
	case t.base != nil:
		h = maphash.Bytes(t.base.seed, name)
	case t.delta != nil:
		h = maphash.Bytes(t.delta.seed, name)
	}
	if n := t.delta.find(name, h); n >= 0 {
		if e := &t.delta.names[n]; !e.gone() {
			return found{t.delta, e}
		}
		return found{}
	}
	if n := t.base.find(name, h); n >= 0 {
		return found{t.base, &t.base.names[n]}
	}
	return found{}
}

// set returns the records of a type; false where the name has none.
func (f found) set(qtype uint16) (rrset, bool) {
	for i := range f.e.nsets {
		if s := &f.x.sets[f.e.sets+uint32(i)]; s.qtype == qtype {
			return rrset{s.qtype, s.count, s.more, f.x.bytes[s.at : s.at+s.len]}, true
		}
	}
	return rrset{}, false
}

// first returns the records of the first type; false where the name has none at all.
func (f found) first() (rrset, bool) {
	if f.e.nsets == 0 {
		return rrset{}, false
	}
	return f.set(f.x.sets[f.e.sets].qtype)
}

// outcome is what a table says about a question.
type outcome int

const (
	elsewhere outcome = iota // the table does not know; others are asked
	positive                 // records
	noData                   // the name is there, without such records
	noName                   // there is no such name
)

// match is the answer of a table.
type match struct {
	outcome outcome
	records rrset
	suffix  int // where the name of the SOA begins in the name asked for: the owned suffix, else the name itself
}

// lookup answers a question for a view; nil is one that sees everything.
func (t *Table) lookup(q *Query, v *View) (m match) {
	if t == nil || t.base == nil && t.delta == nil {
		return match{}
	}
	at := t.get(q.Key())
	suffix, owned := t.owner(q)
	m.suffix = suffix
	if at.ok() && at.e.flags&flagHost != 0 && !v.sees(at.e.group) {
		at = found{}
	}
	if !at.ok() {
		if records, ok := t.port(q, v); ok {
			v.hides(&records)
			m.outcome, m.records = noData, records
			if records.count > 0 && (q.Qtype == TypeSRV || q.Qtype == TypeANY) {
				m.outcome = positive
			}
			return m
		}
		at = t.wildcard(q, owned, v)
	}
	switch {
	case at.ok() && at.e.nsets == 0 && !owned:
		return match{} // it only lies above a name of the table
	case at.ok():
	case owned:
		m.outcome = noName
		return m
	default:
		return match{}
	}
	records, ok := at.set(q.Qtype)
	if q.Qtype == typePort {
		ok = false
	}
	if q.Qtype == TypeANY {
		records, ok = at.first() // RFC 8482 section 4.1
	}
	if ok && at.e.flags&flagHost != 0 && v.hides(&records) {
		ok = false
	}
	m.outcome, m.records = noData, records
	if ok {
		m.outcome = positive
	}
	return m
}

// port answers for _NAME._tcp.HOST, and for the name between the two; false where it is none of
// them.
func (t *Table) port(q *Query, v *View) (rrset, bool) {
	if q.depth < 2 || q.name[1] != '_' {
		return rrset{}, false
	}
	at := 1 // of the label _tcp
	if string(q.name[:5]) == tcpLabel {
		at = 0
	}
	host := int(q.labels[at]) + len(tcpLabel)
	if host >= q.len || string(q.name[q.labels[at]:host]) != tcpLabel {
		return rrset{}, false
	}
	f := t.get(q.name[host:q.len])
	if !f.ok() || f.e.flags&flagHost == 0 || !v.sees(f.e.group) {
		return rrset{}, false
	}
	for i := range f.e.nsets {
		s := &f.x.sets[f.e.sets+uint32(i)]
		if s.qtype != typePort {
			continue
		}
		body := f.x.bytes[s.at : s.at+s.len]
		n := 1 + int(body[0])
		if at == 0 {
			return rrset{qtype: TypeSRV}, true
		}
		if string(body[:n]) == string(q.name[:n]) {
			return rrset{TypeSRV, s.count, s.more, body[n:]}, true
		}
	}
	return rrset{}, false
}

// tcpLabel is the label _tcp on the wire.
const tcpLabel = "\x04_tcp"

// typePort is no type of DNS: the set holds the label of a named port, and its SRV records for the
// name with that label.
const typePort = 0

func (t *Table) depths(of func(*index) uint64) (d uint64) {
	for _, x := range [2]*index{t.base, t.delta} {
		if x != nil {
			d |= of(x)
		}
	}
	return d
}

// wildcard finds the wildcard that stands for a name that is not there. Below an owned suffix it is
// the one of the closest encloser, or none (RFC 4592 section 3.3.1). Elsewhere names that are not
// in the table may exist all the same, so it is the longest one.
func (t *Table) wildcard(q *Query, owned bool, v *View) found {
	depths := t.depths(func(x *index) uint64 { return x.wild })
	if depths == 0 {
		return found{}
	}
	var buf [MaxName + 2]byte
	for i := 1; i < q.depth; i++ {
		parent := q.name[q.labels[i]:q.len]
		if depths&depthBit(q.depth-i) != 0 && len(parent)+2 <= MaxName {
			name := append(append(buf[:0], 1, '*'), parent...)
			if f := t.get(name); f.ok() && f.e.flags&flagHost != 0 && v.sees(f.e.group) {
				return f
			}
		}
		if owned && t.get(parent).ok() {
			return found{}
		}
	}
	return found{}
}

// Len returns the number of names that somebody has given.
func (t *Table) Len() (n int) {
	if t == nil {
		return 0
	}
	t.each(func(_ *index, e *entry) {
		if e.flags&flagHost != 0 {
			n++
		}
	})
	return n
}

// each calls f with all entries and their indexes, in no order.
func (t *Table) each(f func(x *index, e *entry)) {
	if t.delta != nil {
		for i := range t.delta.names {
			if e := &t.delta.names[i]; !e.gone() {
				f(t.delta, e)
			}
		}
	}
	if t.base == nil {
		return
	}
	for i := range t.base.names {
		e := &t.base.names[i]
		if name := t.base.name(e); t.delta == nil || t.delta.find(name, maphash.Bytes(t.delta.seed, name)) < 0 {
			f(t.base, e)
		}
	}
}

func (x *index) len() int {
	if x == nil {
		return 0
	}
	return len(x.names)
}

// slotsFor is how many places there are for some names: at most half of them are taken.
func slotsFor(names int) int { return 1 << bits.Len(uint(2*names)) }

// newIndex returns an index with room for some names.
func newIndex(seed maphash.Seed, names int) *index {
	return &index{seed: seed, slots: make([]uint64, slotsFor(names)), names: make([]entry, 0, names),
		sets: make([]set, 0, names), bytes: make([]byte, 0, 64*names)}
}

func (x *index) name(e *entry) []byte { return x.bytes[e.name : e.name+uint32(e.nameLen)] }

// insert adds an empty entry for a name that has none, and returns its number.
func (x *index) insert(name []byte) int {
	if slots := slotsFor(len(x.names) + 1); slots > len(x.slots) {
		x.slots = make([]uint64, slots)
		for i := range x.names {
			x.place(x.name(&x.names[i]), i)
		}
	}
	x.names = append(x.names, entry{name: uint32(len(x.bytes)), nameLen: uint8(len(name))})
	x.bytes = append(x.bytes, name...)
	x.place(name, len(x.names)-1)
	return len(x.names) - 1
}

// place puts an entry into the hash table.
func (x *index) place(name []byte, number int) {
	h := maphash.Bytes(x.seed, name)
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = h>>32<<32 | uint64(number+1)
}

// add adds a copy of another index's entry, and returns its number.
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

// addSet adds the records of a type to the entry that got the last set, or to one without sets.
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
	if e.flags&flagOwned != 0 {
		x.owned |= depthBit(labelsOf(name))
	} else if isWildcard(name) {
		x.wild |= depthBit(labelsOf(name) - 1)
	}
}

func isWildcard(name []byte) bool { return len(name) > 2 && name[0] == 1 && name[1] == '*' }

func labelsOf(name []byte) (n int) {
	for i := 0; i < len(name) && name[i] != 0; i += 1 + int(name[i]) {
		n++
	}
	return n
}
