package dns

import "encoding/binary"

// Response codes, with those that need EDNS (RFC 6895).
const (
	rcodeSuccess  = 0
	rcodeFormat   = 1
	rcodeServFail = 2
	rcodeName     = 3
	rcodeNotImp   = 4
	rcodeRefused  = 5
	rcodeBadVers  = 16
)

// Types and classes that are told apart.
const (
	typeA     = 1
	typeSOA   = 6
	typePTR   = 12
	typeHINFO = 13
	typeAAAA  = 28
	typeSRV   = 33
	typeOPT   = 41
	typeHTTPS = 65
	typeIXFR  = 251
	typeAXFR  = 252
	typeANY   = 255

	classIN = 1
)

const (
	headerLen = 12
	flagQR    = 1 << 15
	flagAA    = 1 << 10
	flagTC    = 1 << 9
	flagRD    = 1 << 8
	flagRA    = 1 << 7
	flagAD    = 1 << 5
	flagCD    = 1 << 4
	opcodes   = 15 << 11
)

// query is a message that was read as one. It is used again and again, and has no pointers of its
// own.
type query struct {
	flags uint16
	end   int // header and question are the first bytes of the message up to here
	qtype uint16
	// name is the name asked for, in lower case on the wire, with the places at which its labels
	// begin.
	name   [maxName]byte
	len    int
	labels [128]uint8
	depth  int // labels, without the root
	edns   edns
}

// edns is what an OPT record says (RFC 6891).
type edns struct {
	present bool
	do      bool
	version uint8
	size    uint16
}

// verdict says what becomes of a message.
type verdict int

const (
	accepted verdict = iota
	dropped          // no answer at all: it is no query
	failed           // answered with a code, which read returns
)

// key is the name asked for.
func (q *query) key() []byte { return q.name[:q.len] }

// read reads a message. With failed it returns the code of the answer; end is 0 where the question
// could not be read, so that nothing of it is repeated. The message must not change while the query
// is in use.
func (q *query) read(m []byte) (verdict, int) {
	q.end, q.qtype, q.len, q.depth, q.edns = 0, 0, 0, 0, edns{}
	if len(m) < headerLen {
		return dropped, 0
	}
	q.flags = binary.BigEndian.Uint16(m[2:])
	switch {
	case q.flags&flagQR != 0:
		return dropped, 0
	case q.flags&opcodes != 0:
		return failed, rcodeNotImp
	case binary.BigEndian.Uint16(m[4:]) != 1:
		return failed, rcodeFormat
	}
	at := q.readName(m)
	if at == 0 || len(m) < at+4 {
		return failed, rcodeFormat
	}
	q.qtype = binary.BigEndian.Uint16(m[at:])
	class := binary.BigEndian.Uint16(m[at+2:])
	q.end = at + 4
	if !q.readRecords(m) {
		return failed, rcodeFormat
	}
	switch {
	case q.edns.version > 0:
		return failed, rcodeBadVers
	case class != classIN, q.qtype == typeAXFR, q.qtype == typeIXFR, q.qtype == typeOPT:
		return failed, rcodeRefused
	}
	return accepted, rcodeSuccess
}

// readName reads the name of the question, and returns where it ends; 0 where it is none. A
// question is the first name of a message, so there is nothing that it could point to.
func (q *query) readName(m []byte) int {
	at := headerLen
	for {
		if at >= len(m) {
			return 0
		}
		n := int(m[at])
		if n > 63 || at+1+n > len(m) || q.len+1+n > maxName {
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
			q.name[q.len+1+i] = lower(c)
		}
		q.len += 1 + n
		at += 1 + n
	}
}

// readRecords reads the records behind the question, of which only OPT counts. False for a message
// that ends too early, or has two of it.
func (q *query) readRecords(m []byte) bool {
	others := int(binary.BigEndian.Uint16(m[6:])) + int(binary.BigEndian.Uint16(m[8:]))
	all := others + int(binary.BigEndian.Uint16(m[10:]))
	at := q.end
	for i := range all {
		name := at
		if at = skipName(m, at); at == 0 || len(m) < at+10 {
			return false
		}
		typ := binary.BigEndian.Uint16(m[at:])
		if typ == typeOPT {
			if q.edns.present || i < others || m[name] != 0 {
				return false
			}
			q.edns = edns{present: true, size: binary.BigEndian.Uint16(m[at+2:]), version: m[at+5], do: m[at+6]&0x80 != 0}
		}
		at += 10 + int(binary.BigEndian.Uint16(m[at+8:]))
		if at > len(m) {
			return false
		}
	}
	return true
}

// skipName returns where a name that may end in a pointer ends; 0 where it is none.
func skipName(m []byte, at int) int {
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
