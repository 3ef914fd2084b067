package dns

import (
	"encoding/binary"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// maxAliases is the maximum number of aliases from a question to its records.
const maxAliases = 16

// finish accounts for the reply to a forwarded query, and returns the reply to send.
func (s *Server) finish(to forward.ReplyTo, wire []byte) []byte {
	s.waiting.release(to)
	if !to.Real {
		wire = s.follow(wire, 0, to, to.Max)
	}
	s.reportSample(to, wire, fromUpstream)
	return wire
}

// follow completes a reply from outside in which an alias leads into the mesh: the records come
// from the table, as the client sees it, and whatever the reply has about such names is dropped.
// The reply starts at an offset of out and is replaced there. It gets at most the given number of
// bytes.
func (s *Server) follow(out []byte, start int, to forward.ReplyTo, most int) []byte {
	answers, client := s.answers.Load(), to.Addr.Addr()
	if !answers.LeadsHere(out, start, client) {
		return out
	}
	var m mdns.Msg
	if err := m.Unpack(out[start:]); err != nil {
		return append(out[:start], failedReply(out[start:])...)
	}
	q := m.Question[0]
	var chain []mdns.RR
	for name := q.Name; len(chain) < maxAliases; {
		i := slices.IndexFunc(m.Answer, func(rr mdns.RR) bool {
			return rr.Header().Rrtype == mdns.TypeCNAME && strings.EqualFold(rr.Header().Name, name)
		})
		if i < 0 {
			return out // the alias that leads here is not part of the chain
		}
		alias, _ := m.Answer[i].(*mdns.CNAME)
		chain, name = append(chain, alias), alias.Target
		found, ok := ask(answers, strings.ToLower(name), q.Qtype, to)
		if !ok {
			continue // outside, too
		}
		m.Rcode, m.AuthenticatedData = found.Rcode, false
		m.Answer, m.Ns = append(chain, found.Answer...), found.Ns
		m.Extra = slices.DeleteFunc(m.Extra, func(rr mdns.RR) bool { return rr.Header().Rrtype != mdns.TypeOPT })
		if m.Rcode == mdns.RcodeServerFailure {
			m.Answer = nil
		}
		break
	}
	m.Compress = true
	m.Truncate(most)
	wire, err := m.Pack()
	if err != nil {
		wire = failedReply(out[start:])
	}
	return append(out[:start], wire...)
}

// ask returns the table's answer to a question for a client, and false if it has none.
func ask(answers *table.Answers, name string, qtype uint16, to forward.ReplyTo) (found mdns.Msg, ok bool) {
	m := mdns.Msg{MsgHdr: mdns.MsgHdr{RecursionDesired: true},
		Question: []mdns.Question{{Name: name, Qtype: qtype, Qclass: mdns.ClassINET}}}
	wire, err := m.Pack()
	if err != nil {
		return found, false
	}
	var q table.Query
	reply, v := answers.Resolve(&q, wire, to.Addr.Addr(), 0, true, nil)
	if v != table.Accepted && v != table.Failed {
		return found, false
	}
	return found, found.Unpack(reply) == nil
}

// loops reports whether the aliases from a name lead back to one of them.
func loops(list []mdns.RR, name string) bool {
	var seen []string
	for len(seen) <= len(list) {
		seen = append(seen, name)
		i := slices.IndexFunc(list, func(rr mdns.RR) bool {
			return rr.Header().Rrtype == mdns.TypeCNAME && strings.EqualFold(rr.Header().Name, name)
		})
		if i < 0 {
			return false
		}
		name = list[i].(*mdns.CNAME).Target
		if slices.ContainsFunc(seen, func(s string) bool { return strings.EqualFold(s, name) }) {
			return true
		}
	}
	return true
}

// uncachedReplier sends replies with TTLs of 0. Caches between the agent and its clients do not
// distinguish the spellings of a name, and must not give the answers for one to clients that use
// the other.
type uncachedReplier struct{ via forward.Replier }

func (r uncachedReplier) Reply(to forward.ReplyTo, wire []byte) {
	to.Via = r.via
	clearTTLs(wire)
	r.via.Reply(to, wire)
}

// clearTTLs sets the TTLs of a reply to 0.
func clearTTLs(m []byte) {
	at := table.SkipName(m, table.HeaderLen) + 4
	n := 0
	for i := range 3 {
		n += int(binary.BigEndian.Uint16(m[6+2*i:]))
	}
	for range n {
		at = table.SkipName(m, at)
		if at == 0 || len(m) < at+10 {
			return
		}
		if binary.BigEndian.Uint16(m[at:]) != table.TypeOPT {
			clear(m[at+4 : at+8])
		}
		at += 10 + int(binary.BigEndian.Uint16(m[at+8:]))
	}
}
