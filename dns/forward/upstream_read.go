package forward

import (
	"encoding/binary"
	"math"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Types of records that hold names, and what ends a message that is signed.
const (
	typeNS    = 2
	typeCNAME = 5
	typeTSIG  = 250

	optionEDE = 15 // RFC 8914
)

// response is a message of a server. It is used again and again. The message must not change while
// the response is in use.
type response struct {
	id, flags uint16
	rcode     int // with the upper bits of the OPT record
	qend      int // where the question ends; headerLen where there is none
	qtype     uint16
	// whole says that all records could be read; the fields below hold only then.
	whole bool
	end   int // where the last record ends that is passed on: OPT and what follows it is not
	count [3]uint16
	// ttls has the places of the TTLs of the records, in order.
	ttls   []uint16
	minTTL uint32
	typed  bool // an answer has the type that was asked for
	ns     bool // there is an NS record behind the answers
	soa    int  // place of the TTL of the SOA record behind the answers; 0 without
	negTTL uint32
	edns   bool
	ede    int // code of the extended error; -1 without

	// labels has a bit for each place where a label begins: what a pointer may point to (RFC 1035
	// section 4.1.4). A name can then not run through what is no name, such as a TTL, which changes.
	labels [1 << 14 / 64]uint64
}

// read reads a message. False for what is no response to a single question, or to none. Records are
// not read of a message that was cut.
func (r *response) read(m []byte) bool {
	r.whole, r.end, r.count, r.ttls, r.minTTL = false, 0, [3]uint16{}, r.ttls[:0], math.MaxUint32
	r.typed, r.ns, r.soa, r.negTTL, r.edns, r.ede, r.qtype, r.qend = false, false, 0, 0, false, -1, 0, table.HeaderLen
	if len(m) < table.HeaderLen || len(m) > math.MaxUint16 {
		return false
	}
	r.id, r.flags = binary.BigEndian.Uint16(m), binary.BigEndian.Uint16(m[2:])
	r.rcode = int(r.flags & 15)
	questions := binary.BigEndian.Uint16(m[4:])
	if r.flags&table.FlagQR == 0 || r.flags&table.Opcodes != 0 || questions > 1 {
		return false
	}
	clear(r.labels[:])
	if questions == 1 {
		at := r.name(m, table.HeaderLen)
		if at == 0 || len(m) < at+4 || binary.BigEndian.Uint16(m[at+2:]) != table.ClassIN {
			return false
		}
		r.qtype = binary.BigEndian.Uint16(m[at:])
		r.qend = at + 4
	}
	r.whole = r.flags&table.FlagTC == 0 && r.records(m)
	return true
}

// records reads the three sections.
func (r *response) records(m []byte) bool {
	at, passed := r.qend, true
	r.end = at
	for section := range 3 {
		for range binary.BigEndian.Uint16(m[6+2*section:]) {
			owner := at
			if at = r.name(m, at); at == 0 || len(m) < at+10 {
				return false
			}
			typ := binary.BigEndian.Uint16(m[at:])
			data := at + 10
			end := data + int(binary.BigEndian.Uint16(m[at+8:]))
			if end > len(m) {
				return false
			}
			switch {
			case typ == table.TypeOPT:
				if section < 2 || r.edns || m[owner] != 0 || !r.options(m, at, end) {
					return false
				}
				passed = false
			case typ == typeTSIG:
				passed = false
			case !r.data(m, typ, data, end):
				return false
			case passed:
				r.count[section]++
				r.end = end
				r.record(m, section, typ, at+4, end)
			}
			at = end
		}
	}
	return true
}

// record notes a record that is passed on.
func (r *response) record(m []byte, section int, typ uint16, ttlAt, end int) {
	ttl := binary.BigEndian.Uint32(m[ttlAt:])
	if ttl > math.MaxInt32 {
		ttl = 0 // RFC 2181 section 8
	}
	r.ttls = append(r.ttls, uint16(ttlAt))
	r.minTTL = min(r.minTTL, ttl)
	switch {
	case section == 0:
		r.typed = r.typed || typ == r.qtype
	case section == 1 && typ == typeNS:
		r.ns = true
	case section == 1 && typ == table.TypeSOA && r.soa == 0:
		r.soa, r.negTTL = ttlAt, min(ttl, binary.BigEndian.Uint32(m[end-4:])) // RFC 2308 section 5
	}
}

// options reads an OPT record, whose type is at at.
func (r *response) options(m []byte, at, end int) bool {
	r.edns = true
	r.rcode |= int(m[at+4]) << 4
	for at += 10; at < end; {
		if at+4 > end {
			return false
		}
		code, n := binary.BigEndian.Uint16(m[at:]), int(binary.BigEndian.Uint16(m[at+2:]))
		if at += 4 + n; at > end {
			return false
		}
		if code == optionEDE && n >= 2 && r.ede < 0 {
			r.ede = int(binary.BigEndian.Uint16(m[at-n:]))
		}
	}
	return true
}

// name returns where the name at a place ends, 0 where it is none. A pointer leads to a label that
// stands before the name, and from there only further back: there are no loops.
func (r *response) name(m []byte, at int) int {
	next, size, before := 0, 0, at
	for at < len(m) {
		n := int(m[at])
		if next == 0 && at < 1<<14 {
			r.labels[at/64] |= 1 << (at % 64)
		}
		switch {
		case n == 0:
			if next == 0 {
				next = at + 1
			}
			return next
		case n < 64:
			if size += n + 1; size >= table.MaxName {
				return 0
			}
			at += n + 1
		case n < 0xc0 || at+1 >= len(m):
			return 0
		default:
			target := (n&0x3f)<<8 | int(m[at+1])
			if target >= before || r.labels[target/64]&(1<<(target%64)) == 0 {
				return 0
			}
			if next == 0 {
				next = at + 2
			}
			at, before = target, target
		}
	}
	return 0
}

// data reports whether the data of a record is in form, as far as it has names or is an address.
func (r *response) data(m []byte, typ uint16, at, end int) bool {
	skip, names, rest := layout(typ)
	if names < 0 {
		return end-at == skip
	}
	if typ == typeNAPTR {
		for range 3 { // flags, services, regular expression
			if at+skip >= end {
				return false
			}
			skip += 1 + int(m[at+skip])
		}
	}
	at += skip
	for range names {
		if at >= end {
			return false
		}
		if at = r.name(m, at); at == 0 {
			return false
		}
	}
	return at <= end && (rest < 0 || end-at == rest)
}

const typeNAPTR = 35

// layout returns how the data of a type begins: bytes, then names, then bytes again, any number
// if -1. Without any name (-1) it has a fixed length. Names stand in these types only, or are never
// compressed (RFC 3597).
func layout(typ uint16) (skip, names, rest int) {
	switch typ {
	case table.TypeA:
		return 4, -1, 0
	case table.TypeAAAA:
		return 16, -1, 0
	case typeNS, 3, 4, typeCNAME, 7, 8, 9, table.TypePTR, 39: // MD, MF, MB, MG, MR; DNAME
		return 0, 1, 0
	case table.TypeSOA:
		return 0, 2, 20
	case 14, 17: // MINFO, RP
		return 0, 2, 0
	case 15, 18, 21, 36: // MX, AFSDB, RT, KX
		return 2, 1, 0
	case 26: // PX
		return 2, 2, 0
	case table.TypeSRV:
		return 6, 1, 0
	case typeNAPTR:
		return 4, 1, 0
	case 24, 46: // SIG, RRSIG
		return 18, 1, -1
	case 30, 47: // NXT, NSEC
		return 0, 1, -1
	case 64, 65: // SVCB, HTTPS
		return 2, 1, -1
	}
	return 0, 0, -1
}

// negative reports whether there is no such name, or no record of the type.
func (r *response) negative() bool {
	return r.rcode == table.RcodeName || r.rcode == table.RcodeSuccess && !r.typed && r.qtype != table.TypeANY
}

// lame reports whether the server only knows others that might know: it does not resolve for its
// clients.
func (r *response) lame() bool {
	return r.rcode == table.RcodeSuccess && r.flags&table.FlagRA == 0 && r.count[0] == 0 && r.ns && r.soa == 0
}
