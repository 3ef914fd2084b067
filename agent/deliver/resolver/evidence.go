package resolver

import (
	"context"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// evidenceReplier passes one reply to the goroutine that waits for it.
type evidenceReplier chan names.Evidence

func (r evidenceReplier) Reply(_ forward.ReplyTo, wire []byte) { r <- evidenceOf(wire) }

// askZone asks the upstreams that get queries for names below a suffix for the SOA record of the
// suffix. It does not use the cache. It returns within the time limit of forwarded queries.
func (r *Resolver) askZone(ctx context.Context, suffix string) names.Evidence {
	wire, err := new(mdns.Msg).SetQuestion(mdns.Fqdn(suffix), mdns.TypeSOA).Pack()
	if err != nil {
		return names.NoAnswer
	}
	var q table.Query
	if v, _ := q.Read(wire); v != table.Accepted {
		return names.NoAnswer
	}
	reply := make(evidenceReplier, 1)
	if !r.forward.Ask(&q, wire, forward.ReplyTo{Via: reply, Max: table.MaxTCP, Tcp: true, At: r.forward.Now()}) {
		return names.NoAnswer
	}
	select {
	case e := <-reply:
		return e
	case <-ctx.Done():
		return names.NoAnswer
	}
}

// evidenceOf returns what a reply to the question for a SOA record says about the name.
func evidenceOf(wire []byte) names.Evidence {
	var m mdns.Msg
	switch err := m.Unpack(wire); {
	case err != nil:
		return names.NoAnswer
	case m.Rcode == mdns.RcodeNameError && len(m.Answer) == 0:
		return names.HasNone
	case m.Rcode != mdns.RcodeSuccess && m.Rcode != mdns.RcodeNameError:
		return names.NoAnswer
	}
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == mdns.TypeSOA {
			return names.HasZone
		}
	}
	return names.HasName // also an alias of a name that does not exist
}
