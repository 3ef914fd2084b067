package table

import "encoding/binary"

const (
	badKey   = 17        // TSIG error (RFC 8945 section 3)
	tsigHead = 10        // type, class, TTL, and length of the data
	tsigMAC  = 6 + 2     // time and fudge, which precede the size of the MAC
	tsigTail = 2 + 2 + 2 // original ID, error, and length of other data, which follow the MAC
	classANY = 255
)

// validTSIG reports whether a record has the form of RFC 8945 section 4.2.
func validTSIG(rr []byte) bool {
	at := plainName(rr, 0)
	if at == 0 || len(rr) < at+tsigHead || binary.BigEndian.Uint16(rr[at+2:]) != classANY ||
		binary.BigEndian.Uint32(rr[at+4:]) != 0 {
		return false
	}
	if at = plainName(rr, at+tsigHead); at == 0 || len(rr) < at+tsigMAC+2 {
		return false
	}
	at += tsigMAC
	at += 2 + int(binary.BigEndian.Uint16(rr[at:]))
	return len(rr) >= at+tsigTail && len(rr) == at+tsigTail+int(binary.BigEndian.Uint16(rr[at+4:]))
}

// plainName returns the end of an uncompressed name, or 0 if it is invalid.
func plainName(b []byte, at int) int {
	for start := at; at < len(b) && b[at] < 64 && at-start < MaxName; at += 1 + int(b[at]) {
		if b[at] == 0 {
			return at + 1
		}
	}
	return 0
}

// appendTSIG appends the TSIG record that tells the client of a signed query that its key is
// unknown (RFC 8945 sections 5.2.1 and 5.3.2). The reply is not signed. If the record does not fit
// into a reply without EDNS, it sets TC instead.
func (q *Query) appendTSIG(out, m []byte, start int) []byte {
	rr := m[q.tsig:]
	key := plainName(rr, 0)
	algorithm := plainName(rr, key+tsigHead)
	mac := algorithm + tsigMAC
	id := mac + 2 + int(binary.BigEndian.Uint16(rr[mac:]))
	if !q.EDNS.Present && len(out)-start+mac+2+tsigTail > MinUDP {
		out[start+2] |= FlagTC >> 8
		return out
	}
	data := len(out) + key + tsigHead
	out = append(out, rr[:mac]...)
	out = append(out, 0, 0, rr[id], rr[id+1], 0, badKey, 0, 0)
	binary.BigEndian.PutUint16(out[data-2:], uint16(len(out)-data))
	more := out[start+10:]
	binary.BigEndian.PutUint16(more, binary.BigEndian.Uint16(more)+1)
	return out
}
