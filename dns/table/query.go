package table

import "encoding/binary"

// Response codes, including those that need EDNS (RFC 6895).
const (
	RcodeSuccess  = 0
	RcodeFormat   = 1
	RcodeServFail = 2
	RcodeName     = 3
	RcodeNotImp   = 4
	RcodeRefused  = 5
	RcodeNotAuth  = 9
	RcodeBadVers  = 16
)

// Types and classes with special handling.
const (
	TypeA     = 1
	typeNS    = 2
	TypeSOA   = 6
	TypePTR   = 12
	typeHINFO = 13
	TypeAAAA  = 28
	TypeSRV   = 33
	TypeOPT   = 41
	TypeHTTPS = 65
	typeTSIG  = 250
	typeIXFR  = 251
	typeAXFR  = 252
	TypeANY   = 255

	ClassIN = 1
)

const (
	HeaderLen = 12
	FlagQR    = 1 << 15
	flagAA    = 1 << 10
	FlagTC    = 1 << 9
	FlagRD    = 1 << 8
	FlagRA    = 1 << 7
	FlagAD    = 1 << 5
	FlagCD    = 1 << 4
	Opcodes   = 15 << 11
)

// Query is a parsed query. It is reused and shares no memory with the message.
type Query struct {
	Flags uint16
	End   int // end of the question in the message; 0 if the question is unreadable
	Qtype uint16
	// The name of the question in lower-case wire form, and the start of each label.
	name   [MaxName]byte
	len    int
	labels [128]uint8
	depth  int // number of labels, without the root
	EDNS   EDNS
	tsig   int // start of the TSIG record in the message; 0 if there is none
}

// EDNS has the fields of an OPT record (RFC 6891).
type EDNS struct {
	Present bool
	Do      bool
	version uint8
	size    uint16
}

// verdict says how to treat a message.
type verdict int

const (
	Accepted verdict = iota
	Dropped          // not a query: no reply
	Failed           // reply with an error code
)

// Key returns the lower-case wire form of the name.
func (q *Query) Key() []byte { return q.name[:q.len] }

// Read parses a message. If the verdict is Failed, it also returns the response code; End is 0 if
// the question is unreadable and must not be repeated. EDNS is valid for failed messages too, if
// their records are readable. The message must not change while the query is in use.
func (q *Query) Read(m []byte) (verdict, int) {
	q.End, q.Qtype, q.len, q.depth, q.EDNS, q.tsig = 0, 0, 0, 0, EDNS{}, 0
	if len(m) < HeaderLen {
		return Dropped, 0
	}
	q.Flags = binary.BigEndian.Uint16(m[2:])
	if q.Flags&FlagQR != 0 {
		return Dropped, 0
	}
	if q.Flags&Opcodes != 0 || binary.BigEndian.Uint16(m[4:]) != 1 {
		return Failed, q.readUnknown(m)
	}
	at := q.readName(m)
	if at == 0 || len(m) < at+4 {
		return Failed, RcodeFormat
	}
	q.Qtype = binary.BigEndian.Uint16(m[at:])
	class := binary.BigEndian.Uint16(m[at+2:])
	q.End = at + 4
	if !q.readRecords(m, q.End) {
		return Failed, RcodeFormat
	}
	switch {
	case q.tsig > 0:
		return Failed, RcodeNotAuth
	case q.EDNS.version > 0:
		return Failed, RcodeBadVers
	case class != ClassIN, q.Qtype == typeAXFR, q.Qtype == typeIXFR, q.Qtype == TypeOPT:
		return Failed, RcodeRefused
	}
	return Accepted, RcodeSuccess
}

// readUnknown looks for EDNS in a message with another opcode or number of questions, because a
// client that gets no OPT record concludes that the server does not support EDNS (RFC 6891
// section 7). It returns the response code.
func (q *Query) readUnknown(m []byte) int {
	at := HeaderLen
	for range binary.BigEndian.Uint16(m[4:]) {
		if at = SkipName(m, at); at == 0 {
			break
		}
		at += 4
	}
	if at > 0 {
		q.readRecords(m, at)
	}
	if q.Flags&Opcodes != 0 {
		return RcodeNotImp
	}
	return RcodeFormat
}

// readName parses the name of the question and returns its end, or 0 if it is invalid. The
// question has the first name of a message, so it cannot have compression pointers.
func (q *Query) readName(m []byte) int {
	at := HeaderLen
	for {
		if at >= len(m) {
			return 0
		}
		n := int(m[at])
		if n > 63 || at+1+n > len(m) || q.len+1+n > MaxName {
			return 0
		}
		q.name[q.len] = byte(n)
		if n == 0 {
			q.len++
			return at + 1
		}
		q.labels[q.depth] = uint8(q.len)
		q.depth++
		for i, c := range m[at+1 : at+1+n] {
			q.name[q.len+1+i] = Lower(c)
		}
		q.len += 1 + n
		at += 1 + n
	}
}

// readRecords parses the records from a position and evaluates OPT and TSIG. It returns false if
// the message is too short, or if one of these records is duplicate or invalid.
func (q *Query) readRecords(m []byte, at int) bool {
	others := int(binary.BigEndian.Uint16(m[6:])) + int(binary.BigEndian.Uint16(m[8:]))
	all := others + int(binary.BigEndian.Uint16(m[10:]))
	for i := range all {
		name := at
		if at = SkipName(m, at); at == 0 || len(m) < at+10 {
			return false
		}
		typ := binary.BigEndian.Uint16(m[at:])
		if typ == TypeOPT {
			if q.EDNS.Present || i < others || m[name] != 0 {
				return false
			}
			q.EDNS = EDNS{Present: true, size: binary.BigEndian.Uint16(m[at+2:]), version: m[at+5], Do: m[at+6]&0x80 != 0}
		}
		at += 10 + int(binary.BigEndian.Uint16(m[at+8:]))
		if at > len(m) {
			return false
		}
		if typ == typeTSIG {
			if i < others || i != all-1 || !validTSIG(m[name:at]) {
				return false
			}
			q.tsig = name
		}
	}
	return true
}

// SkipName returns the end of a possibly compressed name, or 0 if it is invalid.
func SkipName(m []byte, at int) int {
	for at < len(m) {
		switch n := int(m[at]); {
		case n == 0:
			return at + 1
		case n >= 0xc0:
			if at+2 > len(m) {
				return 0
			}
			return at + 2
		case n > 63:
			return 0
		default:
			at += 1 + n
		}
	}
	return 0
}
