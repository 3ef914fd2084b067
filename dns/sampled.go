package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Sampled is an answered query.
type Sampled struct {
	Client  netip.AddrPort
	TCP     bool
	Name    string // as the client wrote it, without the final dot; "" if the question is unreadable
	Type    uint16
	Source  string // of the reply: local, cache, forwarded, or refused
	Rcode   int    // without the extended bits of EDNS
	Answers int    // number of records in the answer section
	Size    int    // of the reply, in bytes
	Elapsed time.Duration
	// Server is the server that answered, or whose cached answer this is, if it was the client's
	// choice; invalid for other cached answers and for local ones. Network is the network of the
	// client, "" for that of this process.
	Server  netip.AddrPort
	Network string
	Dropped string // why addresses are missing in the reply, such as private; "" if none are
}

// Sample makes the server report one in n queries; 0 reports none.
func (s *Server) Sample(n uint32) {
	if s.o.Sampled == nil {
		n = 0
	}
	s.sample.Store(n)
}

// scatter hashes a counter. Clients query A and AAAA alternately, so every second query would
// always have the same type.
func scatter(n uint32) uint32 {
	n = (n ^ n>>16) * 0x7feb352d
	n = (n ^ n>>15) * 0x846ca68b
	return n ^ n>>16
}

// reportSample reports a reply if its query is a sample.
func (s *Server) reportSample(to forward.ReplyTo, reply []byte, source int) {
	if !to.Sampled || s.o.Sampled == nil || len(reply) < table.HeaderLen {
		return
	}
	x := Sampled{
		Client: to.Addr, TCP: to.Tcp, Source: sourceNames[source], Rcode: rcodeOf(reply), Size: len(reply),
		Answers: int(binary.BigEndian.Uint16(reply[6:])),
	}
	x.Network, x.Dropped = to.Origin.Network(), to.Dropped.String()
	switch {
	case source == fromUpstream:
		x.Server = to.Server
	case source == fromCache && to.Origin != nil:
		x.Server = to.Origin.Server()
	}
	if source == fromUpstream {
		x.Elapsed = time.Duration(s.now() - to.At)
	}
	if binary.BigEndian.Uint16(reply[4:]) == 1 {
		if end := table.SkipName(reply, table.HeaderLen); end > 0 && end+4 <= len(reply) {
			var buf [4 * table.MaxName]byte
			x.Name, x.Type = string(table.AppendText(buf[:0], reply[table.HeaderLen:end])), binary.BigEndian.Uint16(reply[end:])
		}
	}
	s.o.Sampled(x)
}
