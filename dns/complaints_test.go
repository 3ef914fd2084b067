package dns

import (
	"fmt"
	"testing"

	mdns "github.com/miekg/dns"
)

// A reply of more than 512 bytes is truncated with TC for a client without EDNS, and complete
// over TCP. Neither is a failure.
func complaintLongReply(t *testing.T) {
	var forwarded []string
	for i := range 64 {
		forwarded = append(forwarded, fmt.Sprintf("many.example.org. 60 IN A 192.0.2.%d", i))
	}
	c := newMesh(t, func(q *upstreamQuery) { q.Reply(t, 0, forwarded) }, manyHost("many.mesh", 64))
	for _, name := range []string{"many.mesh", "many.example.org", "many.example.org"} {
		m := c.query(clientKind{}, name, mdns.TypeA)
		if m.Rcode != 0 || !m.Truncated || len(m.Answer) < 25 {
			t.Errorf("%s over UDP: %s, TC %v, %d records", name, mdns.RcodeToString[m.Rcode], m.Truncated, len(m.Answer))
		}
		m = c.query(clientKind{tcp: true}, name, mdns.TypeA)
		if m.Rcode != 0 || m.Truncated || len(m.Answer) != 64 {
			t.Errorf("%s over TCP: %s, TC %v, %d records", name, mdns.RcodeToString[m.Rcode], m.Truncated, len(m.Answer))
		}
	}
}

// A server with a truncated answer is queried over TCP. If that answer is truncated too, a TCP
// client does not get TC.
func complaintTCOverTCP(t *testing.T) {
	c := newMesh(t, func(q *upstreamQuery) {
		b := q.pack(t, 0, []string{q.name() + " 60 IN A 192.0.2.1"})
		b[2] |= 2
		q.send(b)
	}, manyHost("many.mesh", 64))
	for _, k := range []clientKind{{tcp: true}, {tcp: true, size: 512}} {
		if m := c.query(k, "many.mesh", mdns.TypeA); m.Truncated || len(m.Answer) != 64 {
			t.Errorf("%+v: TC %v, %d records", k, m.Truncated, len(m.Answer))
		}
	}
	c.ask(clientKind{tcp: true}, "cut.example.org", mdns.TypeA)
	c.until("an answer", func() bool {
		c.clock.advance(1e6)
		c.f.RunDue()
		return len(c.replies) > 0
	})
	if m := c.answer(); m.Truncated || m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("%v", m)
	}
}

// Clients that query both address families treat a name as nonexistent if one of the replies is
// NXDOMAIN.
func complaintAAAA(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"), host("*.w.mesh", "240.0.0.2"),
		host("api.example.com", "240.0.0.3"))
	for _, name := range []string{"web.mesh", "x.w.mesh", "api.example.com"} {
		for _, k := range kinds {
			if m := c.query(k, name, mdns.TypeAAAA); m.Rcode != 0 || len(m.Answer) != 0 {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// Two simultaneous queries from one socket, as glibc sends them, both get answers in any order.
func complaintPairs(t *testing.T) {
	c := newMesh(t, func(q *upstreamQuery) {
		if q.Question[0].Qtype == mdns.TypeAAAA {
			q.Reply(t, 0, nil, soa60)
			return
		}
		q.Reply(t, 0, []string{q.name() + " 60 IN A 192.0.2.1"})
	}, host("web.mesh", "240.0.0.1"))
	for i := range 500 {
		name := "web.mesh"
		if i%2 == 0 {
			name = fmt.Sprintf("n%d.example.org", i)
		}
		a, aaaa := clientKind{id: uint16(2*i + 1)}, clientKind{id: uint16(2*i + 2)}
		c.write(false, a.message(t, name, mdns.TypeA))
		c.write(false, aaaa.message(t, name, mdns.TypeAAAA))
		if m := c.unpack(c.replyWith(a.id)); firstA(m) == "" {
			t.Fatalf("%s: %v", name, m)
		}
		if m := c.unpack(c.replyWith(aaaa.id)); m.Rcode != 0 || len(m.Ns) != 1 {
			t.Fatalf("%s: %v", name, m)
		}
	}
}

// A thousand queries to a slow server are in flight at the same time, and all are answered.
func complaintCap(t *testing.T) {
	h := newHeld()
	c := newMesh(t, h.do)
	const n = 1000
	for i := range n {
		c.ask(clientKind{id: uint16(i + 1)}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
	}
	var queries []*upstreamQuery
	for range n {
		queries = append(queries, h.next(t))
	}
	for _, q := range queries {
		q.Reply(t, 0, []string{q.name() + " 60 IN A 192.0.2.1"})
		if m := c.answer(); firstA(m) == "" {
			t.Fatal(m)
		}
	}
}
