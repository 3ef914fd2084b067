package table

import (
	"encoding/binary"
	"net/netip"
)

// typeCNAME is the type of aliases.
const typeCNAME = 5

// LeadsHere reports whether an alias (CNAME) in the answer section of a reply leads to a name that
// the table answers for a client. The reply starts at an offset of out, and has one question.
// LeadsHere allocates nothing.
func (a *Answers) LeadsHere(out []byte, start int, client netip.Addr) bool {
	m := out[start:]
	if len(m) < HeaderLen || binary.BigEndian.Uint16(m[4:]) != 1 {
		return false
	}
	at := SkipName(m, HeaderLen)
	if at == 0 || len(m) < at+4 {
		return false
	}
	qtype := binary.BigEndian.Uint16(m[at:])
	if qtype == typeCNAME || qtype == TypeANY {
		return false // the alias is the answer
	}
	at += 4
	for range binary.BigEndian.Uint16(m[6:]) {
		if at = SkipName(m, at); at == 0 || len(m) < at+10 {
			return false
		}
		data := at + 10
		if binary.BigEndian.Uint16(m[at:]) == typeCNAME {
			var q Query
			q.Qtype = qtype
			if q.readTarget(m, data) && a.answers(&q, client) {
				return true
			}
		}
		at = data + int(binary.BigEndian.Uint16(m[at+8:]))
	}
	return false
}

// answers reports whether a query of a client is not forwarded.
func (a *Answers) answers(q *Query, client netip.Addr) bool {
	view, own := a.view(client)
	found := a.Table.lookup(q, view)
	return found.outcome != unknown || a.fails(q, view, own, &found)
}

// readTarget sets the name of the query to the possibly compressed name at a position of a message.
// It returns false if the name is invalid.
func (q *Query) readTarget(m []byte, at int) bool {
	for jumps := 0; at < len(m); {
		n := int(m[at])
		switch {
		case n >= 0xc0:
			if jumps++; at+2 > len(m) || jumps > len(q.labels) {
				return false
			}
			at = int(binary.BigEndian.Uint16(m[at:]) & 0x3fff)
			continue
		case n > 63 || at+1+n > len(m) || q.len+1+n > MaxName:
			return false
		}
		q.name[q.len] = byte(n)
		if n == 0 {
			q.len++
			return true
		}
		q.labels[q.depth] = uint8(q.len)
		q.depth++
		for i, c := range m[at+1 : at+1+n] {
			q.name[q.len+1+i] = Lower(c)
		}
		q.len += 1 + n
		at += 1 + n
	}
	return false
}
