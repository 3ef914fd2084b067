package dns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// passthrough forwards a query for the name behind the label.
func (s *Server) passthrough(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, c *counters,
	out []byte) ([]byte, disposition, int) {
	const label = table.HeaderLen + 1 + len(table.PassthroughLabel)
	var behind table.Query
	short := slices.Concat(m[:table.HeaderLen], m[label:])
	// A question with a compressed name is invalid without the label.
	if v, _ := behind.Read(short); v != table.Accepted {
		c.add(fromNone, q.Qtype, table.RcodeFormat)
		return q.Refuse(out, m, table.RcodeFormat), replied, fromNone
	}
	r := &aliasReplier{via: to.Via, label: string(m[table.HeaderLen+1 : label]), not: s.o.PassthroughDeny}
	to.Via, to.Real = r, true
	start := len(out)
	out, f, source := s.forward(&behind, short, &to, tcp, c, out)
	if f == replied {
		out = append(out[:start], r.renamed(out[start:], q.Limit(tcp))...)
	}
	return out, f, source
}

// aliasReplier changes replies about a name into replies about the name with the label.
type aliasReplier struct {
	via   forward.Replier
	label string
	not   []netip.Prefix
}

func (r *aliasReplier) Reply(to forward.ReplyTo, wire []byte) {
	to.Via = r.via
	r.via.Reply(to, r.renamed(wire, to.Max))
}

// renamed returns a reply for the name with the label, in which that name is an alias of the
// original name. The reply has at most the given number of bytes.
func (r *aliasReplier) renamed(wire []byte, most int) []byte {
	var m mdns.Msg
	if err := m.Unpack(wire); err != nil || len(m.Question) != 1 {
		return failedReply(wire)
	}
	m.AuthenticatedData = false // the alias is not signed
	q := &m.Question[0]
	behind := q.Name
	q.Name = r.label + "." + behind
	m.Answer = slices.DeleteFunc(m.Answer, func(rr mdns.RR) bool {
		a, ok := addressOf(rr)
		return ok && slices.ContainsFunc(r.not, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	if len(m.Answer) > 0 {
		alias := &mdns.CNAME{Hdr: mdns.RR_Header{Name: q.Name, Rrtype: mdns.TypeCNAME, Class: mdns.ClassINET,
			Ttl: m.Answer[0].Header().Ttl}, Target: behind}
		for _, rr := range m.Answer {
			alias.Hdr.Ttl = min(alias.Hdr.Ttl, rr.Header().Ttl)
			if strings.EqualFold(rr.Header().Name, behind) {
				rr.Header().Name = behind // one spelling compresses better
			}
		}
		m.Answer = slices.Insert(m.Answer, 0, mdns.RR(alias))
	}
	if loops(m.Answer, q.Name) {
		m.Rcode, m.Answer, m.Ns = mdns.RcodeServerFailure, nil, nil
	}
	m.Compress = true
	m.Truncate(most)
	out, err := m.Pack()
	if err != nil {
		return failedReply(wire)
	}
	return out
}

func addressOf(rr mdns.RR) (a netip.Addr, ok bool) {
	switch rr := rr.(type) {
	case *mdns.A:
		a, ok = netip.AddrFromSlice(rr.A)
	case *mdns.AAAA:
		a, ok = netip.AddrFromSlice(rr.AAAA)
	}
	return a.Unmap(), ok
}

// failedReply returns SERVFAIL without a question, for a reply that cannot be read.
func failedReply(wire []byte) []byte {
	out := slices.Clone(wire[:table.HeaderLen])
	binary.BigEndian.PutUint16(out[2:], binary.BigEndian.Uint16(out[2:])&^15|table.RcodeServFail)
	clear(out[4:])
	return out
}
