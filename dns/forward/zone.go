package forward

import (
	"context"

	"github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// ZoneAnswer is what the servers answered to the question for a SOA record.
type ZoneAnswer int

// Answers to the question for a SOA record.
const (
	ZoneUnknown ZoneAnswer = iota // no server answered
	ZoneExists                    // the name is a zone
	NameExists                    // the name exists in a zone
	NameUnknown                   // the name does not exist, so no name below it exists (RFC 8020)
)

// zoneReplier passes one reply to the goroutine that waits for it.
type zoneReplier chan ZoneAnswer

func (r zoneReplier) Reply(_ ReplyTo, wire []byte) { r <- zoneAnswer(wire) }

// AskZone asks the servers that get queries for names below a suffix for the SOA record of the
// suffix. It does not use the cache. It returns within the time limit of questions.
func (f *Forwarder) AskZone(ctx context.Context, suffix string) ZoneAnswer {
	wire, err := new(dns.Msg).SetQuestion(dns.Fqdn(suffix), dns.TypeSOA).Pack()
	if err != nil {
		return ZoneUnknown
	}
	var q table.Query
	if v, _ := q.Read(wire); v != table.Accepted {
		return ZoneUnknown
	}
	reply := make(zoneReplier, 1)
	if !f.Ask(&q, wire, ReplyTo{Via: reply, Max: table.MaxTCP, Tcp: true, At: f.Now()}) {
		return ZoneUnknown
	}
	select {
	case a := <-reply:
		return a
	case <-ctx.Done():
		return ZoneUnknown
	}
}

func zoneAnswer(wire []byte) ZoneAnswer {
	var m dns.Msg
	switch err := m.Unpack(wire); {
	case err != nil:
		return ZoneUnknown
	case m.Rcode == dns.RcodeNameError && len(m.Answer) == 0:
		return NameUnknown
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return ZoneUnknown
	}
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == dns.TypeSOA {
			return ZoneExists
		}
	}
	return NameExists // also an alias of a name that does not exist
}
