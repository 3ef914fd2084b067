package dns

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

const soa60 = "example.org. 900 IN SOA ns.example.org. host.example.org. 1 7200 900 86400 60"

// Row 43: forwarded answers keep their compression.
func testAnswersStayCompressed(t *testing.T) {
	wires := make(chan []byte, 10)
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		sent := q.pack(t, 0, []string{"www.example.org. 60 IN CNAME a.example.org.", "a.example.org. 60 IN A 192.0.2.1",
			"a.example.org. 60 IN A 192.0.2.2"})
		wires <- sent
		q.send(sent)
	})
	c := newTester(t, forward.Options{}, s)
	c.ask(clientKind{}, "www.example.org", mdns.TypeA)
	got, sent := c.wire(), <-wires
	end := len(sent) - forward.BareOPT // our query has EDNS, but the client's does not
	if !bytes.Equal(got[table.HeaderLen+17+4:], sent[table.HeaderLen+17+4:end]) {
		t.Errorf("the records are\n% x, want\n% x", got[table.HeaderLen:], sent[table.HeaderLen:end])
	}
	if reused, _ := c.send(clientKind{}, "www.example.org", mdns.TypeA); !bytes.Equal(reused[table.HeaderLen:],
		got[table.HeaderLen:]) {
		t.Errorf("from the cache:\n% x, want\n% x", reused, got)
	}
}

// Rows 42 and 44: a server may send more than requested. The client gets as much as fits, and TC.
func testServerThatIgnoresSizes(t *testing.T) {
	for _, n := range []int{55, 180} { // 900 and 3,000 bytes
		var answer []string
		for i := range n {
			answer = append(answer, fmt.Sprintf(" 60 IN A 192.0.2.%d", i))
		}
		s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
			if q.tcp {
				t.Error("asked over TCP")
			}
			var named []string
			for _, a := range answer {
				named = append(named, q.name()+a)
			}
			q.Reply(t, 0, named)
		})
		c := newTester(t, forward.Options{}, s)
		for i, k := range []clientKind{{}, {size: 800}, {size: 4096}, {tcp: true}} {
			name := fmt.Sprintf("big%d.example.org", i)
			c.ask(k, name, mdns.TypeA)
			for _, wire := range [][]byte{c.wire(), must(c.send(k, name, mdns.TypeA))} {
				m := c.unpack(wire)
				if len(wire) > k.maxSize() || m.Truncated != (len(m.Answer) < n) || len(m.Answer) == 0 {
					t.Errorf("%+v: %d bytes, %d records, TC %v", k, len(wire), len(m.Answer), m.Truncated)
				}
				if rest := k.maxSize() - len(wire); m.Truncated && rest >= 16+len(name) {
					t.Errorf("%+v: cut with %d bytes left", k, rest)
				}
			}
		}
	}
}

func must(b []byte, _ bool) []byte { return b }

// Rows 45 and 46: our queries have EDNS with 1232 bytes. A truncated answer is queried over TCP,
// and the result is cached.
func testTruncatedAnswersAreAskedForOverTCP(t *testing.T) {
	var answer []string
	for i := range 300 {
		answer = append(answer, fmt.Sprintf("big.example.org. 60 IN AAAA 2001:db8::%x", i))
	}
	over := make(chan bool, 10)
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		over <- q.tcp
		if o := q.IsEdns0(); o == nil || o.UDPSize() != 1232 {
			t.Errorf("the query has the OPT record %v", o)
		}
		if q.tcp {
			q.Reply(t, 0, answer)
			return
		}
		b := q.pack(t, 0, answer[:20])
		b[2] |= 2 // TC
		q.send(b[:len(b)-3])
	})
	c := newTester(t, forward.Options{}, s)
	m := c.query(clientKind{tcp: true}, "big.example.org", mdns.TypeAAAA)
	if len(m.Answer) != 300 || m.Truncated {
		t.Errorf("%d records, TC %v; want all of 300", len(m.Answer), m.Truncated)
	}
	if !slices.Equal([]bool{<-over, <-over}, []bool{false, true}) {
		t.Error("the server was not asked over UDP, then TCP")
	}
	// A client over UDP gets TC, and the complete answer over TCP. TC over TCP would be a dead
	// end.
	if m := c.hit(clientKind{size: 1232}, "big.example.org", mdns.TypeAAAA); !m.Truncated {
		t.Error("no TC over UDP")
	}
	if m := c.hit(clientKind{tcp: true}, "big.example.org", mdns.TypeAAAA); len(m.Answer) != 300 || m.Truncated {
		t.Errorf("from the cache: %d records, TC %v", len(m.Answer), m.Truncated)
	}
}

// Row 48: IDs differ from those of clients, and are not predictable.
func testFreshRandomIDs(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	const n = 400
	same, next, seen := 0, 0, map[uint16]bool{}
	last := uint16(0)
	for i := range n {
		c.ask(clientKind{id: 4711}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
		q := h.next(t)
		if q.Id == 4711 {
			same++
		}
		if d := q.Id - last; d <= 16 {
			next++
		}
		last, seen[q.Id] = q.Id, true
		q.Reply(t, 0, nil, soa60)
		if m := c.answer(); m.Id != 4711 {
			t.Fatalf("the client gets the ID %d", m.Id)
		}
	}
	if same > 2 || next > 10 || len(seen) < n-20 {
		t.Errorf("of %d IDs, %d are the client's, %d follow the one before, %d differ", n, same, next, len(seen))
	}
}

// Row 49, and local users who read ports in /proc/net/udp: there are many ports, and each is used
// only for a short time.
func testManySourcePorts(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	asked := 0
	ports := func(n int) map[string]bool {
		out := map[string]bool{}
		for range n {
			asked++
			c.write(false, clientKind{}.message(t, fmt.Sprintf("n%d.example.org", asked), mdns.TypeA))
			q := h.next(t)
			out[q.from.String()] = true
			q.Reply(t, 0, nil)
			c.answer()
		}
		return out
	}
	first := ports(100)
	if len(first) < 12 || len(first) > forward.SocketsPerServer {
		t.Errorf("%d ports for 100 queries", len(first))
	}
	c.clock.advance(11 * time.Second)
	second := ports(100)
	reused := 0
	for p := range second {
		if first[p] {
			reused++
		}
	}
	if reused > 2 { // the kernel may select the same port
		t.Errorf("%d of %d ports are used again 11 s later", reused, len(second))
	}
	uses := map[string]int{}
	for range 30 {
		for p := range ports(700) {
			uses[p]++
		}
	}
	if len(uses) < 30 {
		t.Errorf("%d ports for 21,000 queries: they are not replaced", len(uses))
	}
	c.until("unused sockets are closed", func() bool {
		c.clock.advance(11 * time.Second)
		c.f.RunDue()
		return c.f.Sockets() == 0
	})
}

// Row 50 and spoofing: wrong replies are ignored and counted, and the question stays in flight.
func testForgedRepliesAreIgnored(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	c.ask(clientKind{}, "bank.example.org", mdns.TypeA)
	q := h.next(t)
	forged := func(change func(*mdns.Msg)) {
		m := new(mdns.Msg)
		m.SetReply(q.Msg)
		m.Answer = records(t, "bank.example.org. 3600 IN A 203.0.113.66")
		change(m)
		q.send(packed(t, m))
	}
	for i := range 10 {
		forged(func(m *mdns.Msg) { m.Id += uint16(i + 1) })
	}
	forged(func(m *mdns.Msg) { m.Question[0].Name = "bank.example.com." })
	forged(func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAAAA })
	forged(func(m *mdns.Msg) { m.Response = false })
	forged(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) })
	forged(func(m *mdns.Msg) { m.Question = nil })
	q.send([]byte{1, 2, 3})
	c.until("all are seen", func() bool {
		st := c.f.Stats().Servers[0]
		return st.Forged == 10 && st.Mismatched == 3 && st.Malformed == 3
	})
	q = h.next(t) // over TCP after three replies with the right ID
	if !q.tcp {
		t.Error("asked again, but not over TCP")
	}
	q.Reply(t, 0, []string{"bank.example.org. 60 IN A 192.0.2.9"})
	if got := firstA(c.answer()); got != "192.0.2.9" {
		t.Errorf("the client gets %q", got)
	}
	if got := firstA(c.hit(clientKind{}, "bank.example.org", mdns.TypeA)); got != "192.0.2.9" {
		t.Errorf("the cache has %q", got)
	}
}

// If many forged replies arrive on a socket, its questions are sent over TCP.
func testFloodOfForgedReplies(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	c.ask(clientKind{}, "bank.example.org", mdns.TypeA)
	q := h.next(t)
	for i := range 40 {
		m := new(mdns.Msg)
		m.SetReply(q.Msg)
		m.Id += uint16(1 + i)
		m.Answer = records(t, "bank.example.org. 3600 IN A 203.0.113.66")
		q.send(packed(t, m))
	}
	real := h.next(t)
	if !real.tcp {
		t.Fatal("not asked over TCP")
	}
	real.Reply(t, 0, []string{"bank.example.org. 60 IN A 192.0.2.9"})
	if got := firstA(c.answer()); got != "192.0.2.9" {
		t.Errorf("the client gets %q", got)
	}
	if st := c.f.Stats(); st.Distrusted != 1 || st.Servers[0].Forged < forward.MaxForged {
		t.Errorf("counts: %+v", st)
	}
}

// Row 51: the case of letters is random and must match in the reply. Servers that do not preserve
// it are detected.
func testMixedCaseUpstream(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	const name = "abcdefghijklmnopqrstuvwxyz.example.org."
	c.ask(clientKind{}, name, mdns.TypeA)
	q := h.next(t)
	if got := q.Question[0].Name; got == name || strings.ToLower(got) != name {
		t.Errorf("the server is asked for %q", got)
	}
	// A reply with the right ID but different letter case is rejected.
	lowered := func(q *upstreamQuery, addr string) {
		m := new(mdns.Msg)
		m.SetReply(q.Msg)
		m.Question[0].Name = q.name()
		m.Answer = records(t, q.name()+" 60 IN A "+addr)
		q.send(packed(t, m))
	}
	lowered(q, "203.0.113.66")
	q = h.next(t)
	if got := q.Question[0].Name; got != name {
		t.Errorf("the server is asked again for %q", got)
	}
	lowered(q, "192.0.2.1")
	if m := c.answer(); firstA(m) != "192.0.2.1" || m.Question[0].Name != name {
		t.Errorf("the client gets %v", m)
	}
	for i := range 2 {
		c.ask(clientKind{}, fmt.Sprintf("%d.%s", i, name), mdns.TypeA)
		lowered(h.next(t), "203.0.113.66")
		lowered(h.next(t), "192.0.2.1")
		c.answer()
	}
	c.ask(clientKind{}, "x."+name, mdns.TypeA)
	if q = h.next(t); q.Question[0].Name != "x."+name {
		t.Errorf("after three such answers it is asked for %q", q.Question[0].Name)
	}
	lowered(q, "192.0.2.1")
	c.answer()
	if got := c.f.Stats().Servers[0].OtherCase; got != 3 {
		t.Errorf("%d replies in another case are counted, want 3", got)
	}
	c.clock.advance(time.Hour)
	c.ask(clientKind{}, "y."+name, mdns.TypeA)
	if q = h.next(t); q.Question[0].Name == "y."+name {
		t.Error("an hour later its case is not tried again")
	}
}

// Replies from servers and from the cache have the client's own spelling.
func testCaseOfTheClientComesBack(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	c := newTester(t, forward.Options{}, s)
	for _, name := range []string{"wWw.Example.ORG.", "www.example.org.", "WWW.EXAMPLE.ORG."} {
		m := c.query(clientKind{}, name, mdns.TypeA)
		if m.Question[0].Name != name || firstA(m) == "" {
			t.Errorf("%s: %v", name, m)
		}
	}
	if st := c.f.Stats(); st.Asked != 1 || st.Cache.Hits != 2 {
		t.Errorf("asked %d times, %d hits; case makes no other name", st.Asked, st.Cache.Hits)
	}
}
