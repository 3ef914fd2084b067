package table

import "encoding/binary"

// Message sizes over UDP, in bytes: the size that all clients accept, and the size that fits into
// one packet on all networks (RFC 9715).
const (
	MinUDP = 512
	MaxUDP = 1232
	MaxTCP = 65535
)

const optLen = 11

// Limit returns the maximum length of a reply.
func (q *Query) Limit(tcp bool) int {
	if tcp {
		return MaxTCP
	}
	if !q.EDNS.Present {
		return MinUDP
	}
	return max(MinUDP, min(int(q.EDNS.size), MaxUDP))
}

// Refuse appends a reply with a response code and no records.
func (q *Query) Refuse(out, m []byte, rcode int) []byte {
	start := len(out)
	out = q.head(out, m, rcode, 0)
	out = q.appendOPT(out, start, rcode)
	if q.tsig > 0 && rcode == RcodeNotAuth {
		out = q.appendTSIG(out, m, start)
	}
	return out
}

// answer appends the table's answer. turn selects the first address of a list.
func (q *Query) answer(out, m []byte, t *Table, a match, turn uint32, limit int) []byte {
	rcode := RcodeSuccess
	if a.outcome == noName {
		rcode = RcodeName
	}
	start := len(out)
	out = q.head(out, m, rcode, flagAA)
	space := start + limit - len(out)
	if q.EDNS.Present {
		space -= optLen
	}
	switch {
	case a.apex:
		out = t.appendApex(out, start, q.Qtype)
	case a.outcome == positive:
		out = q.records(out, start, &a.records, turn, space)
	default:
		out = t.appendSOA(out, start, HeaderLen+a.suffix)
	}
	return q.appendOPT(out, start, rcode)
}

// head appends the header, and the question as the client wrote it.
func (q *Query) head(out, m []byte, rcode int, flags uint16) []byte {
	start := len(out)
	if q.End == 0 {
		out = append(out, m[:HeaderLen]...)
	} else {
		out = append(out, m[:q.End]...)
	}
	h := out[start:]
	binary.BigEndian.PutUint16(h[2:], FlagQR|flags|FlagRA|q.Flags&(Opcodes|FlagRD|FlagCD)|uint16(rcode&15))
	if q.End == 0 {
		h[4], h[5] = 0, 0
	}
	clear(h[6:HeaderLen])
	return out
}

// appendOPT appends an OPT record if the query has one.
func (q *Query) appendOPT(out []byte, start, rcode int) []byte {
	if !q.EDNS.Present {
		return out
	}
	do := byte(0)
	if q.EDNS.Do {
		do = 0x80
	}
	out = append(out, 0, 0, TypeOPT, MaxUDP>>8, MaxUDP&0xff, byte(rcode>>4), 0, do, 0, 0, 0)
	more := out[start+10:]
	binary.BigEndian.PutUint16(more, binary.BigEndian.Uint16(more)+1)
	return out
}

// records appends as many records as fit. If a record of the requested type does not fit, it sets
// TC; additional records are omitted without TC (RFC 2181 section 9).
func (q *Query) records(out []byte, start int, r *rrset, turn uint32, space int) []byte {
	body := r.body
	answers := len(body)
	if r.more > 0 {
		answers = recordsLen(body, int(r.count))
	}
	count := int(r.count)
	if answers > space {
		out[start+2] |= FlagTC >> 8
		count, answers = fitting(body[:answers], space)
	}
	binary.BigEndian.PutUint16(out[start+6:], uint16(count))
	switch n := int(r.count); {
	case n > 1 && (r.qtype == TypeA || r.qtype == TypeAAAA):
		stride := len(body) / n
		for i := range count {
			at := (int(turn%uint32(n)) + i) % n * stride
			out = append(out, body[at:at+stride]...)
		}
	default:
		out = append(out, body[:answers]...)
	}
	if more := body[answers:]; r.more > 0 && count == int(r.count) && answers+len(more) <= space {
		out = append(out, more...)
		binary.BigEndian.PutUint16(out[start+10:], r.more)
	}
	return out
}

// recordsLen returns the length of the first records of a body.
func recordsLen(body []byte, count int) (n int) {
	for range count {
		n += 12 + int(binary.BigEndian.Uint16(body[n+10:]))
	}
	return n
}

// fitting returns how many records fit into a number of bytes, and their length.
func fitting(body []byte, space int) (count, n int) {
	for n < len(body) {
		next := n + 12 + int(binary.BigEndian.Uint16(body[n+10:]))
		if next > space {
			break
		}
		count, n = count+1, next
	}
	return count, n
}

// appendApex appends the SOA or NS record of an owned suffix, which is the question's name.
func (t *Table) appendApex(out []byte, start int, qtype uint16) []byte {
	if qtype == TypeSOA {
		out = t.appendSOA(out, start, HeaderLen)
		binary.BigEndian.PutUint16(out[start+8:], 0)
	} else {
		const owner = 0xc0
		out = append(out, owner, HeaderLen, 0, byte(qtype), 0, ClassIN)
		out = binary.BigEndian.AppendUint32(out, t.ttl)
		out = append(out, 0, 5, 2, 'n', 's', owner, HeaderLen) // the name server of appendSOA
	}
	binary.BigEndian.PutUint16(out[start+6:], 1)
	return out
}

// appendSOA appends the authority section of a negative answer (RFC 2308) for the suffix at a
// position of the message.
func (t *Table) appendSOA(out []byte, start, at int) []byte {
	p := pointer(at)
	out = binary.BigEndian.AppendUint16(out, p)
	out = append(out, 0, TypeSOA, 0, ClassIN)
	out = binary.BigEndian.AppendUint32(out, t.negative)
	const size = 3 + 2 + 11 + 2 + 20
	out = append(out, 0, size, 2, 'n', 's', byte(p>>8), byte(p))
	out = append(out, 10, 'h', 'o', 's', 't', 'm', 'a', 's', 't', 'e', 'r', byte(p>>8), byte(p))
	for _, v := range [...]uint32{1, 3600, 600, 86400, t.negative} { // serial, refresh, retry, expire, minimum
		out = binary.BigEndian.AppendUint32(out, v)
	}
	binary.BigEndian.PutUint16(out[start+8:], 1)
	return out
}
