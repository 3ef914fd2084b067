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

// past asks the other servers for the name behind the label.
func (s *Server) past(q *table.Query, m []byte, to forward.ReplyTo, tcp bool, c *counters,
	out []byte) ([]byte, fate, int) {
	const label = table.HeaderLen + 1 + len(table.PastLabel)
	var behind table.Query
	short := slices.Concat(m[:table.HeaderLen], m[label:])
	// as a compressed name of a record behind the question may have it
	if v, _ := behind.Read(short); v != table.Accepted {
		c.add(fromNobody, q.Qtype, table.RcodeFormat)
		return q.Refuse(out, m, table.RcodeFormat), replied, fromNobody
	}
	r := &pastReplier{via: to.Via, label: string(m[table.HeaderLen+1 : label]), not: s.o.PastNot}
	to.Via = r
	start := len(out)
	out, f, source := s.elsewhere(&behind, short, to, tcp, c, out)
	if f == replied {
		out = append(out[:start], r.renamed(out[start:], q.Limit(tcp))...)
	}
	return out, f, source
}

// pastReplier passes replies on as those to the name with the label.
type pastReplier struct {
	via   forward.Replier
	label string
	not   []netip.Prefix
}

func (r *pastReplier) Reply(to forward.ReplyTo, wire []byte) {
	to.Via = r.via
	r.via.Reply(to, r.renamed(wire, to.Max))
}

// renamed returns a reply as one to the name with the label, of which the name that was asked for
// is an alias. It has no more than some bytes.
func (r *pastReplier) renamed(wire []byte, most int) []byte {
	var m mdns.Msg
	if err := m.Unpack(wire); err != nil || len(m.Question) != 1 {
		return failedReply(wire)
	}
	m.AuthenticatedData = false // nobody has signed the alias
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
				rr.Header().Name = behind // one spelling for all, which compresses
			}
		}
		m.Answer = slices.Insert(m.Answer, 0, mdns.RR(alias))
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

// failedReply is SERVFAIL without a question, in the place of a reply that cannot be read.
func failedReply(wire []byte) []byte {
	out := slices.Clone(wire[:table.HeaderLen])
	binary.BigEndian.PutUint16(out[2:], binary.BigEndian.Uint16(out[2:])&^15|table.RcodeServFail)
	clear(out[4:])
	return out
}
