package forward

import (
	"encoding/binary"

	"github.com/nearside-mesh/nearside/dns/table"
)

// maxQueryLen is the maximum length of a query to a server.
const maxQueryLen = table.HeaderLen + table.MaxName + 4 + BareOPT

// wireQuery is a query to a server.
type wireQuery struct {
	id    uint16
	seed  uint64 // for the case of the name's letters; 0 means lower case
	edns  bool
	wants bool // set the AD bit
	pad   bool // hide the length of the name
}

// appendTo appends the query for a question.
func (w wireQuery) appendTo(b []byte, q *question) []byte {
	start, flags := len(b), uint16(table.FlagRD)
	if q.cd {
		flags |= table.FlagCD
	}
	if w.wants {
		flags |= table.FlagAD
	}
	b = binary.BigEndian.AppendUint16(b, w.id)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	if w.edns {
		b[len(b)-1] = 1
	}
	b = appendMixed(b, q.name, w.seed)
	b = binary.BigEndian.AppendUint16(b, q.qtype)
	b = binary.BigEndian.AppendUint16(b, table.ClassIN)
	if w.edns {
		b = appendOPT(b, q.do, noEDE)
	}
	if w.edns && w.pad {
		b = appendPadding(b, start)
	}
	return b
}

// padTo is the block size of padded queries (RFC 8467 section 4.1).
const padTo = 128

// appendPadding adds the padding option (RFC 7830) to the query from start on, which ends with an
// OPT record without options.
func appendPadding(b []byte, start int) []byte {
	end := len(b)
	n := (padTo - (end-start+4)%padTo) % padTo
	b = append(b, 0, optionPadding, 0, byte(n))
	b = append(b, make([]byte, n)...)
	binary.BigEndian.PutUint16(b[end-2:], uint16(4+n))
	return b
}

// appendMixed appends a lower-case name with some letters in upper case, selected by a seed. A
// forged reply must guess them (draft-vixie-dnsext-dns0x20).
func appendMixed(b, name []byte, seed uint64) []byte {
	start := len(b)
	b = append(b, name...)
	if seed == 0 {
		return b
	}
	var bits uint64
	for i, c := range b[start:] {
		if i%64 == 0 { // splitmix64
			seed += 0x9e3779b97f4a7c15
			bits = seed
			bits = (bits ^ bits>>30) * 0xbf58476d1ce4e5b9
			bits = (bits ^ bits>>27) * 0x94d049bb133111eb
			bits ^= bits >> 31
		}
		if bits&1 != 0 && c >= 'a' && c <= 'z' { // length bytes are below 64 and thus not letters
			b[start+i] = c - ('a' - 'A')
		}
		bits >>= 1
	}
	return b
}

// echo is the result of comparing the question of a reply with that of the query.
type echo int

const (
	otherQuestion echo = iota
	otherCase          // only the case of letters differs
	noQuestion
	sameQuestion
)

// echoes compares the question of a reply with that of the query, byte by byte.
func (w wireQuery) echoes(m []byte, q *question) echo {
	end := table.HeaderLen + len(q.name)
	switch {
	case binary.BigEndian.Uint16(m[4:]) == 0:
		return noQuestion
	case len(m) < end+2 || binary.BigEndian.Uint16(m[end:]) != q.qtype:
		return otherQuestion
	}
	got := m[table.HeaderLen:end]
	var sent [table.MaxName]byte
	want := appendMixed(sent[:0], q.name, w.seed)
	same := sameQuestion
	for i, c := range got {
		if c == want[i] {
			continue
		}
		if table.Lower(c) != q.name[i] {
			return otherQuestion
		}
		if w.seed != 0 {
			same = otherCase
		}
	}
	return same
}
