package dns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"
)

// PastLabel begins names that are asked of other servers, whatever the table has:
// _nearside-past.db.example.com is an alias (CNAME) of what they know as db.example.com. So who
// dials the address that a table has for a name can find out where to go from there. Below owned
// suffixes there are no such names.
const PastLabel = "_nearside-past"

// Past returns the name that is asked past the table. It may be too long for a name.
func Past(name string) string { return PastLabel + "." + name }

// isPast reports whether a name begins so.
func (q *query) isPast() bool {
	return q.depth > 1 && int(q.name[0]) == len(PastLabel) && string(q.name[1:1+len(PastLabel)]) == PastLabel
}

// past asks the other servers for the name behind the label.
func (s *Server) past(q *query, m []byte, to replyTo, tcp bool, c *counters, out []byte) ([]byte, fate, int) {
	const label = headerLen + 1 + len(PastLabel)
	var behind query
	short := slices.Concat(m[:headerLen], m[label:])
	if v, _ := behind.read(short); v != accepted { // as a compressed name of a record behind the question may have it
		c.add(fromNobody, q.qtype, rcodeFormat)
		return q.refuse(out, m, rcodeFormat), replied, fromNobody
	}
	r := &pastReplier{via: to.via, label: string(m[headerLen+1 : label]), not: s.o.PastNot}
	to.via = r
	start := len(out)
	out, f, source := s.elsewhere(&behind, short, to, tcp, c, out)
	if f == replied {
		out = append(out[:start], r.renamed(out[start:], q.limit(tcp))...)
	}
	return out, f, source
}

// pastReplier passes replies on as those to the name with the label.
type pastReplier struct {
	via   replier
	label string
	not   []netip.Prefix
}

func (r *pastReplier) reply(to replyTo, wire []byte) {
	to.via = r.via
	r.via.reply(to, r.renamed(wire, to.max))
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
	out := slices.Clone(wire[:headerLen])
	binary.BigEndian.PutUint16(out[2:], binary.BigEndian.Uint16(out[2:])&^15|rcodeServFail)
	clear(out[4:])
	return out
}
