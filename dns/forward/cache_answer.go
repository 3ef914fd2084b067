package forward

import (
	"encoding/binary"
	"math"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	MaxTTL      = 7 * 24 * 3600 // RFC 8767 section 4
	maxNegTTL   = 300
	bareNegTTL  = 5 // for negative answers without an SOA record; enough for the connections of one program start
	staleTTL    = 30
	EdnsSize    = 1232 // passes without fragmentation (DNS flag day 2020)
	BareOPT     = 11
	noEDE       = math.MaxUint16
	edeStale    = 3
	edeStaleNX  = 19
	edeNoServer = 22
	edeNetwork  = 23
)

// answer is the forwarded part of a response: header, lower-case question, and records except
// OPT, followed by the offsets of the TTLs, two bytes each. The AD bit is set only if the server is
// trusted.
type answer struct {
	data []byte
	size int    // of the message in data
	ede  uint16 // extended error code, or noEDE
}

// client has what a reply depends on.
type client struct {
	id, flags uint16
	question  []byte // with type and class, in the client's spelling
	edns, do  bool
	dropped   Drop // why addresses are missing in the reply; set with it
}

// failure packs an answer without records into b.
func failure(b, name []byte, qtype uint16, rcode int, ede uint16) answer {
	b = append(b[:0], 0, 0, table.FlagQR>>8, byte(rcode), 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, name...)
	b = binary.BigEndian.AppendUint16(b, qtype)
	b = binary.BigEndian.AppendUint16(b, table.ClassIN)
	return answer{data: b, size: len(b), ede: ede}
}

func (a answer) rcode() int { return int(a.data[3] & 15) }

// ttlAt returns the offset of a record's TTL.
func (a answer) ttlAt(i int) int { return int(binary.BigEndian.Uint16(a.data[a.size+2*i:])) }

// records returns the number of records.
func (a answer) records() int { return (len(a.data) - a.size) / 2 }

// fit returns how many records fit into a number of bytes, and the end of the last one.
func (a answer) fit(qend, bytes int) (n, end int) {
	if a.size <= bytes {
		return a.records(), a.size
	}
	end = qend
	for n < a.records() {
		at := a.ttlAt(n)
		next := at + 6 + int(binary.BigEndian.Uint16(a.data[at+4:]))
		if next > bytes {
			break
		}
		n, end = n+1, next
	}
	return n, end
}

// appendReply appends the reply to a client, with at most limit bytes. It reduces TTLs by age
// seconds. Stale answers get a short TTL.
func (a answer) appendReply(out []byte, c *client, age uint32, limit int, stale bool) []byte {
	ede := a.ede
	if c.dropped = a.dropped(); c.dropped != DropNone {
		ede = edeBlocked
	}
	if stale {
		ede = edeStale
		if a.rcode() == table.RcodeName {
			ede = edeStaleNX
		}
	}
	opt := 0
	if c.edns {
		if opt = BareOPT; ede != noEDE {
			opt += 6
		}
	}
	if a.size <= limit && limit == math.MaxUint16 && a.size+opt > limit {
		opt = 0 // the client of a TCP query cannot be referred elsewhere for the rest
	}
	start, qend := len(out), table.HeaderLen+len(c.question)
	n, end := a.fit(qend, limit-opt)
	out = append(out, a.data[:end]...)
	b := out[start:]
	binary.BigEndian.PutUint16(b, c.id)
	copy(b[table.HeaderLen:], c.question)
	flags := table.FlagQR | table.FlagRA | c.flags&(table.FlagRD|table.FlagCD) | uint16(a.rcode())
	if !stale && (c.do || c.flags&table.FlagAD != 0) {
		flags |= uint16(a.data[3]) & table.FlagAD
	}
	remaining := n
	for i := range 3 {
		had := int(binary.BigEndian.Uint16(b[6+2*i:]))
		has := min(had, remaining)
		remaining -= has
		if has < had && i < 2 { // a missing additional record does not set TC (RFC 2181 section 9)
			flags |= table.FlagTC
		}
		binary.BigEndian.PutUint16(b[6+2*i:], uint16(has))
	}
	binary.BigEndian.PutUint16(b[2:], flags)
	for i := range n {
		at := a.ttlAt(i)
		ttl := binary.BigEndian.Uint32(b[at:])
		if stale {
			ttl = staleTTL
		} else {
			ttl = min(ttl, MaxTTL)
			ttl -= min(ttl, age)
		}
		binary.BigEndian.PutUint32(b[at:], ttl)
	}
	if opt == 0 {
		return out
	}
	binary.BigEndian.PutUint16(b[10:], binary.BigEndian.Uint16(b[10:])+1)
	return appendOPT(out, c.do, ede)
}

// appendOPT appends an OPT record, with an extended error unless ede is noEDE.
func appendOPT(out []byte, do bool, ede uint16) []byte {
	out = append(out, 0, 0, table.TypeOPT, EdnsSize>>8, EdnsSize&0xff, 0, 0, 0, 0, 0, 0)
	n := len(out)
	if do {
		out[n-4] = 0x80
	}
	if ede == noEDE {
		return out
	}
	out[n-1] = 6
	return append(out, 0, optionEDE, 0, 2, byte(ede>>8), byte(ede))
}
