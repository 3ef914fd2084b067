package table

import "encoding/binary"

// Response codes, with those that need EDNS (RFC 6895).
const (
	RcodeSuccess  = 0
	RcodeFormat   = 1
	RcodeServFail = 2
	RcodeName     = 3
	RcodeNotImp   = 4
	RcodeRefused  = 5
	RcodeBadVers  = 16
)

// Types and classes that are distinguished.
const (
	TypeA     = 1
	TypeSOA   = 6
	TypePTR   = 12
	typeHINFO = 13
	TypeAAAA  = 28
	TypeSRV   = 33
	TypeOPT   = 41
	TypeHTTPS = 65
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

// Query is a message that was read as one. It is used again and again, and has no pointers of its
// own.
type Query struct {
	Flags uint16
	End   int // header and question are the first bytes of the message up to here
	Qtype uint16
	// name is the name asked for, in lower case on the wire, with the places at which its labels
	// begin.
	name   [MaxName]byte
	len    int
	labels [128]uint8
	depth  int // labels, without the root
	EDNS   EDNS
}

// EDNS is what an OPT record says (RFC 6891).
type EDNS struct {
	Present bool
	Do      bool
	version uint8
	size    uint16
}

// verdict says what becomes of a message.
type verdict int

const (
	Accepted verdict = iota
	Dropped          // no answer at all: it is no query
	Failed           // answered with a code, which read returns
)

// Key is the name asked for.
func (q *Query) Key() []byte { return q.name[:q.len] }

// Read reads a message. With failed it returns the code of the answer; end is 0 where the question
// could not be read, so that nothing of it is repeated. The message must not change while the query
// is in use.
func (q *Query) Read(m []byte) (verdict, int) {
	q.End, q.Qtype, q.len, q.depth, q.EDNS = 0, 0, 0, 0, EDNS{}
	if len(m) < HeaderLen {
		return Dropped, 0
	}
	q.Flags = binary.BigEndian.Uint16(m[2:])
	switch {
	case q.Flags&FlagQR != 0:
		return Dropped, 0
	case q.Flags&Opcodes != 0:
		return Failed, RcodeNotImp
	case binary.BigEndian.Uint16(m[4:]) != 1:
		return Failed, RcodeFormat
	}
	at := q.readName(m)
	if at == 0 || len(m) < at+4 {
		return Failed, RcodeFormat
	}
	q.Qtype = binary.BigEndian.Uint16(m[at:])
	class := binary.BigEndian.Uint16(m[at+2:])
	q.End = at + 4
	if !q.readRecords(m) {
		return Failed, RcodeFormat
	}
	switch {
	case q.EDNS.version > 0:
		return Failed, RcodeBadVers
	case class != ClassIN, q.Qtype == typeAXFR, q.Qtype == typeIXFR, q.Qtype == TypeOPT:
		return Failed, RcodeRefused
	}
	return Accepted, RcodeSuccess
}

// readName reads the name of the question, and returns where it ends; 0 where it is none. A
// question is the first name of a message, so there is nothing that it could point to.
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

// readRecords reads the records behind the question, of which only OPT counts. False for a message
// that ends too early, or has two of it.
func (q *Query) readRecords(m []byte) bool {
	others := int(binary.BigEndian.Uint16(m[6:])) + int(binary.BigEndian.Uint16(m[8:]))
	all := others + int(binary.BigEndian.Uint16(m[10:]))
	at := q.End
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
	}
	return true
}

// SkipName returns where a name that may end in a pointer ends; 0 where it is none.
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
