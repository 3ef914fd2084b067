package table

import "hash/maphash"

// Table is an immutable set of names and their records. [Table.With] returns a changed copy. It
// is safe for concurrent use. The zero value and nil are empty tables.
type Table struct {
	ttl      uint32
	negative uint32 // TTL of negative answers
	base     *index
	// delta is searched before base; nil if there is none. It has the seed of base. An entry
	// without sets, flags, and children hides a removed name of base.
	delta *index
}

// Flags of an entry.
const (
	flagOwned   = 1 << iota // a suffix that the table owns
	flagHost                // a name of a host, not only a parent of names
	flagLocal               // an owned suffix whose names are known before there is a mesh
	flagForward             // a suffix that the table does not own, possibly below one that it owns
	flagDefault             // an owned suffix, except for clients of other servers than the default ones

	flagsOfSuffix = flagOwned | flagForward
)

// rrset has the records of one type in wire form. Each owner is a pointer into the question.
type rrset struct {
	qtype uint16
	count uint16 // number of records of the type
	more  uint16 // number of additional records, which follow in body
	body  []byte
}

// index finds entries by name. It is a hash table with open addressing; its arrays hold no
// pointers.
type index struct {
	seed  maphash.Seed
	slots []uint64 // upper half of the hash, and entry number + 1
	names []entry
	sets  []set
	bytes []byte // names and records
	// Bit sets of label counts: of the parents of wildcards, and of suffixes. The last bit
	// stands for all greater counts.
	wild, owned uint64
	reverse     uint64 // like owned, for suffixes of reverse names, which have many label counts
}

type entry struct {
	name     uint32 // offset in bytes
	sets     uint32
	group    uint32
	children int32
	nameLen  uint8
	nsets    uint8
	flags    uint8
}

// gone reports whether the entry is empty, so that the name does not exist.
func (e *entry) gone() bool { return e.nsets == 0 && e.flags == 0 && e.children == 0 }

type set struct {
	at, len            uint32
	qtype, count, more uint16
}

func depthBit(labels int) uint64 { return 1 << min(labels, 63) }

// find returns the number of a name's entry, or -1.
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

// found is an entry of a table.
type found struct {
	x *index
	e *entry
}

func (f found) ok() bool { return f.e != nil }

// get finds the entry of a name.
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

// set returns the records of a type, and false if there are none.
func (f found) set(qtype uint16) (rrset, bool) {
	for i := range f.e.nsets {
		if s := &f.x.sets[f.e.sets+uint32(i)]; s.qtype == qtype {
			return rrset{s.qtype, s.count, s.more, f.x.bytes[s.at : s.at+s.len]}, true
		}
	}
	return rrset{}, false
}

// first returns the records of the first type, and false if there are none.
func (f found) first() (rrset, bool) {
	if f.e.nsets == 0 {
		return rrset{}, false
	}
	return f.set(f.x.sets[f.e.sets].qtype)
}

// outcome is the result of a lookup.
type outcome int

const (
	unknown  outcome = iota // the table does not own the name: the query is forwarded
	positive                // records
	noData                  // the name exists, without records of this type
	noName                  // the name does not exist
)

// match is the answer of a table.
type match struct {
	outcome outcome
	records rrset
	group   uint32 // of the name; Everyone if the table lacks it
	suffix  int    // offset of the SOA record's name in the question's name: the owned suffix, or the whole name
	apex    bool   // the answer is the SOA or NS record of an owned suffix
	local   bool   // the suffix is local
	doubt   bool   // other servers than the default ones may have the name
}

// lookup answers a question for a view.
func (t *Table) lookup(q *Query, v *View) (m match) {
	if t == nil || t.base == nil && t.delta == nil {
		return match{}
	}
	at := t.get(q.Key())
	m.group = Everyone
	suffix, flags := t.owner(q)
	owned := flags&flagOwned != 0
	if m.local = flags&flagLocal != 0; owned {
		m.suffix, m.doubt = suffix, flags&flagDefault != 0
	}
	if owned && suffix == 0 && (q.Qtype == TypeSOA || q.Qtype == typeNS) {
		m.outcome, m.apex = positive, true
		return m
	}
	if at.ok() && at.e.flags&flagHost != 0 && !v.sees(at.e.group) {
		at = found{}
	}
	if !at.ok() {
		if records, group, ok := t.port(q, v); ok {
			v.hides(&records)
			m.outcome, m.records, m.group, m.doubt = noData, records, group, false
			if records.count > 0 && (q.Qtype == TypeSRV || q.Qtype == TypeANY) {
				m.outcome = positive
			}
			return m
		}
		at = t.wildcard(q, owned, v)
	}
	switch {
	case at.ok() && at.e.nsets == 0 && !owned:
		return match{} // only a parent of names in the table
	case at.ok():
	case owned && suffix == 0: // a view hides the host
		m.outcome = noData
		return m
	case owned:
		m.outcome = noName
		return m
	default:
		return match{}
	}
	if at.e.flags&flagHost != 0 {
		m.group, m.doubt = at.e.group, false
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

// port answers questions for _NAME._tcp.HOST and _tcp.HOST. It returns false for other names.
func (t *Table) port(q *Query, v *View) (records rrset, group uint32, ok bool) {
	if q.depth < 2 || q.name[1] != '_' {
		return rrset{}, 0, false
	}
	at := 1 // index of the label _tcp
	if string(q.name[:5]) == tcpLabel {
		at = 0
	}
	host := int(q.labels[at]) + len(tcpLabel)
	if host >= q.len || string(q.name[q.labels[at]:host]) != tcpLabel {
		return rrset{}, 0, false
	}
	f := t.get(q.name[host:q.len])
	if !f.ok() || f.e.flags&flagHost == 0 || !v.sees(f.e.group) {
		return rrset{}, 0, false
	}
	for i := range f.e.nsets {
		s := &f.x.sets[f.e.sets+uint32(i)]
		if s.qtype != typePort {
			continue
		}
		body := f.x.bytes[s.at : s.at+s.len]
		n := 1 + int(body[0])
		if at == 0 {
			return rrset{qtype: TypeSRV}, f.e.group, true
		}
		if string(body[:n]) == string(q.name[:n]) {
			return rrset{TypeSRV, s.count, s.more, body[n:]}, f.e.group, true
		}
	}
	return rrset{}, 0, false
}

// tcpLabel is the label _tcp in wire form.
const tcpLabel = "\x04_tcp"

// typePort is not a DNS type. Its set has the label of a named port, and the SRV records of the
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

// wildcard returns the wildcard that matches a name without an entry. Below an owned suffix, only
// the wildcard of the closest encloser matches (RFC 4592 section 3.3.1). Elsewhere, upstreams may
// have names that the table does not, so the longest wildcard matches.
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

// Len returns the number of hosts.
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

// each calls f with all entries and their indexes, in no particular order.
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
