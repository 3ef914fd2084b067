package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Sampled is a query that was answered.
type Sampled struct {
	Client  netip.AddrPort
	TCP     bool
	Name    string // in the case of the client, without the dot at its end; "" where the question could not be read
	Type    uint16
	Source  string // of the reply: local, cache, forwarded or refused
	Rcode   int    // without what EDNS adds to it
	Answers int    // records in the answer section
	Size    int    // of the reply, in bytes
	Took    time.Duration
}

// Sample makes the server tell of one query in n; 0 of none.
func (s *Server) Sample(n uint32) {
	if s.o.Sampled == nil {
		n = 0
	}
	s.sample.Store(n)
}

// scatter makes of a count a number that looks random. Clients ask for A and AAAA in turn: every
// second query would be of one type.
func scatter(n uint32) uint32 {
	n = (n ^ n>>16) * 0x7feb352d
	n = (n ^ n>>15) * 0x846ca68b
	return n ^ n>>16
}

// tell tells of a reply, if its query is one of those that are told of.
func (s *Server) tell(to forward.ReplyTo, reply []byte, source int) {
	if !to.Sampled || s.o.Sampled == nil || len(reply) < table.HeaderLen {
		return
	}
	x := Sampled{
		Client: to.Addr, TCP: to.Tcp, Source: sourceNames[source], Rcode: rcodeOf(reply), Size: len(reply),
		Answers: int(binary.BigEndian.Uint16(reply[6:])),
	}
	if source == fromOthers {
		x.Took = time.Duration(s.now() - to.At)
	}
	if binary.BigEndian.Uint16(reply[4:]) == 1 {
		if end := table.SkipName(reply, table.HeaderLen); end > 0 && end+4 <= len(reply) {
			var buf [4 * table.MaxName]byte
			x.Name, x.Type = string(table.AppendText(buf[:0], reply[table.HeaderLen:end])), binary.BigEndian.Uint16(reply[end:])
		}
	}
	s.o.Sampled(x)
}
