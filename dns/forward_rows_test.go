package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

const soa60 = "example.org. 900 IN SOA ns.example.org. host.example.org. 1 7200 900 86400 60"

// Row 43: answers keep the form that the server has given them, with its pointers.
func testAnswersStayCompressed(t *testing.T) {
	wires := make(chan []byte, 10)
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		sent := q.pack(t, 0, []string{"www.example.org. 60 IN CNAME a.example.org.", "a.example.org. 60 IN A 192.0.2.1",
			"a.example.org. 60 IN A 192.0.2.2"})
		wires <- sent
		q.send(sent)
	})
	c := newTester(t, ForwarderOptions{}, s)
	c.ask(clientKind{}, "www.example.org", mdns.TypeA)
	got, sent := c.wire(), <-wires
	end := len(sent) - bareOPT // our own query had EDNS, the client's had not
	if !bytes.Equal(got[headerLen+17+4:], sent[headerLen+17+4:end]) {
		t.Errorf("the records are\n% x, want\n% x", got[headerLen:], sent[headerLen:end])
	}
	if again, _ := c.send(clientKind{}, "www.example.org", mdns.TypeA); !bytes.Equal(again[headerLen:], got[headerLen:]) {
		t.Errorf("from the cache:\n% x, want\n% x", again, got)
	}
}

// Row 44: a server that sends more than fits is no fault; the client gets what fits, and TC.
// Row 42.
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
			q.reply(t, 0, named)
		})
		c := newTester(t, ForwarderOptions{}, s)
		for i, k := range []clientKind{{}, {size: 800}, {size: 4096}, {tcp: true}} {
			name := fmt.Sprintf("big%d.example.org", i)
			c.ask(k, name, mdns.TypeA)
			for _, wire := range [][]byte{c.wire(), must(c.send(k, name, mdns.TypeA))} {
				m := c.unpack(wire)
				if len(wire) > k.room() || m.Truncated != (len(m.Answer) < n) || len(m.Answer) == 0 {
					t.Errorf("%+v: %d bytes, %d records, TC %v", k, len(wire), len(m.Answer), m.Truncated)
				}
				if rest := k.room() - len(wire); m.Truncated && rest >= 16+len(name) {
					t.Errorf("%+v: cut with %d bytes left", k, rest)
				}
			}
		}
	}
}

func must(b []byte, _ bool) []byte { return b }

// Rows 45 and 46: our own queries have EDNS with 1232 bytes; a cut answer is asked for over TCP,
// and its result kept.
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
			q.reply(t, 0, answer)
			return
		}
		b := q.pack(t, 0, answer[:20])
		b[2] |= 2 // TC
		q.send(b[:len(b)-3])
	})
	c := newTester(t, ForwarderOptions{}, s)
	m := c.query(clientKind{tcp: true}, "big.example.org", mdns.TypeAAAA)
	if len(m.Answer) != 300 || m.Truncated {
		t.Errorf("%d records, TC %v; want all of 300", len(m.Answer), m.Truncated)
	}
	if !slices.Equal([]bool{<-over, <-over}, []bool{false, true}) {
		t.Error("the server was not asked over UDP, then TCP")
	}
	// A client over UDP is sent to TCP, and there gets everything: TC over TCP would be a dead end.
	if m := c.hit(clientKind{size: 1232}, "big.example.org", mdns.TypeAAAA); !m.Truncated {
		t.Error("no TC over UDP")
	}
	if m := c.hit(clientKind{tcp: true}, "big.example.org", mdns.TypeAAAA); len(m.Answer) != 300 || m.Truncated {
		t.Errorf("from the cache: %d records, TC %v", len(m.Answer), m.Truncated)
	}
}

// Row 48: the ID is never that of the client, nor does one follow from another.
func testFreshRandomIDs(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
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
		q.reply(t, 0, nil, soa60)
		if m := c.answer(); m.Id != 4711 {
			t.Fatalf("the client gets the ID %d", m.Id)
		}
	}
	if same > 2 || next > 10 || len(seen) < n-20 {
		t.Errorf("of %d IDs, %d are the client's, %d follow the one before, %d differ", n, same, next, len(seen))
	}
}

// Row 49, and the ports that a local user can read in /proc/net/udp: many, and none for long.
func testManySourcePorts(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	asked := 0
	ports := func(n int) map[string]bool {
		out := map[string]bool{}
		for range n {
			asked++
			c.write(false, clientKind{}.message(t, fmt.Sprintf("n%d.example.org", asked), mdns.TypeA))
			q := h.next(t)
			out[q.from.String()] = true
			q.reply(t, 0, nil)
			c.answer()
		}
		return out
	}
	first := ports(100)
	if len(first) < 12 || len(first) > socketsPerServer {
		t.Errorf("%d ports for 100 queries", len(first))
	}
	c.clock.advance(11 * time.Second)
	second := ports(100)
	again := 0
	for p := range second {
		if first[p] {
			again++
		}
	}
	if again > 2 { // the kernel may pick the same port once more
		t.Errorf("%d of %d ports are used again 11 s later", again, len(second))
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
		c.f.look()
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		return len(c.f.locals) == 0
	})
}

// Row 50 and spoofing: what does not fit is ignored and counted, and the wait goes on.
func testForgedRepliesAreIgnored(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
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
	q = h.next(t) // after three with the right ID, TCP
	if !q.tcp {
		t.Error("asked again, but not over TCP")
	}
	q.reply(t, 0, []string{"bank.example.org. 60 IN A 192.0.2.9"})
	if got := firstA(c.answer()); got != "192.0.2.9" {
		t.Errorf("the client gets %q", got)
	}
	if got := firstA(c.hit(clientKind{}, "bank.example.org", mdns.TypeA)); got != "192.0.2.9" {
		t.Errorf("the cache has %q", got)
	}
}

// A flood of guesses makes the questions of that socket go over TCP.
func testFloodOfForgedReplies(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
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
	real.reply(t, 0, []string{"bank.example.org. 60 IN A 192.0.2.9"})
	if got := firstA(c.answer()); got != "192.0.2.9" {
		t.Errorf("the client gets %q", got)
	}
	if st := c.f.Stats(); st.Distrusted != 1 || st.Servers[0].Forged < maxForged {
		t.Errorf("counts: %+v", st)
	}
}

// Row 51: the case of letters is random, has to come back, and is given up for a server that does
// not keep it.
func testMixedCaseUpstream(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	const name = "abcdefghijklmnopqrstuvwxyz.example.org."
	c.ask(clientKind{}, name, mdns.TypeA)
	q := h.next(t)
	if got := q.Question[0].Name; got == name || strings.ToLower(got) != name {
		t.Errorf("the server is asked for %q", got)
	}
	// The right ID with another case is no answer.
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

// The client's own case comes back, whatever the server was asked with: from the server and from
// the cache.
func testCaseOfTheClientComesBack(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	c := newTester(t, ForwarderOptions{}, s)
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

// Row 52: TTLs count down to the second, without a floor, each by itself.
func testTTLsCountDown(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		q.reply(t, 0, []string{"a.example.org. 300 IN CNAME b.example.org.", "b.example.org. 7 IN A 192.0.2.1"})
	})
	c := newTester(t, ForwarderOptions{}, s)
	c.query(clientKind{}, "a.example.org", mdns.TypeA)
	for i := range uint32(7) {
		m := c.hit(clientKind{}, "a.example.org", mdns.TypeA)
		if a, b := m.Answer[0].Header().Ttl, m.Answer[1].Header().Ttl; a != 300-i || b != 7-i {
			t.Errorf("after %d s the TTLs are %d and %d", i, a, b)
		}
		c.clock.advance(time.Second)
	}
	if out, _ := c.send(clientKind{}, "a.example.org", mdns.TypeA); out != nil {
		t.Error("still in the cache after 7 s")
	}
	c.answer()
}

// A TTL of 0 is passed on and not kept; one with the highest bit set is 0 (RFC 2181); a long one
// has a limit.
func testOddTTLs(t *testing.T) {
	ttls := map[string]uint32{"zero": 0, "high": 1<<31 + 5, "long": 1 << 30}
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		b := q.pack(t, 0, []string{q.Question[0].Name + " 1 IN A 192.0.2.1"})
		label, _, _ := strings.Cut(q.name(), ".")
		var r response
		r.read(b)
		binary.BigEndian.PutUint32(b[r.ttls[0]:], ttls[label])
		q.send(b)
	})
	c := newTester(t, ForwarderOptions{}, s)
	for label, want := range map[string]uint32{"zero": 0, "high": 0, "long": maxTTL} {
		m := c.query(clientKind{}, label+".example.org", mdns.TypeA)
		if got := m.Answer[0].Header().Ttl; got != want {
			t.Errorf("%s: the TTL is %d, want %d", label, got, want)
		}
		if out, _ := c.send(clientKind{}, label+".example.org", mdns.TypeA); (out != nil) != (want > 0) {
			t.Errorf("%s: kept: %v", label, out != nil)
		} else if out == nil {
			c.answer()
		}
	}
}

// Row 53, and answers without an SOA that would be asked for with each connection.
func testNegativeAnswersAreKept(t *testing.T) {
	type answer struct {
		rcode     int
		answer    []string
		authority []string
	}
	const long = "example.org. 9000 IN SOA ns.example.org. host.example.org. 1 7200 900 86400 8000"
	const ttl = "example.org. 20 IN SOA ns.example.org. host.example.org. 1 7200 900 86400 60"
	answers := map[string]answer{
		"nodata":   {0, nil, []string{soa60}},
		"nxdomain": {3, nil, []string{soa60}},
		"long":     {3, nil, []string{long}},
		"ttl":      {0, nil, []string{ttl}},
		"bare":     {0, nil, nil},
		"barenx":   {3, nil, nil},
		"alias":    {0, []string{"alias.example.org. 30 IN CNAME nowhere.example.org."}, []string{soa60}},
	}
	for label, seconds := range map[string]uint32{
		"nodata":   60,
		"nxdomain": 60,
		"long":     300,
		"ttl":      20,
		"bare":     5,
		"barenx":   5,
		"alias":    30,
	} {
		s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
			a := answers[label]
			q.reply(t, a.rcode, a.answer, a.authority...)
		})
		c := newTester(t, ForwarderOptions{}, s)
		first := c.query(clientKind{}, label+".example.org", mdns.TypeAAAA)
		if first.Rcode != answers[label].rcode {
			t.Errorf("%s: the code is %d", label, first.Rcode)
		}
		if len(first.Ns) > 0 && first.Ns[0].Header().Ttl > seconds && label != "alias" {
			t.Errorf("%s: the SOA record has the TTL %d", label, first.Ns[0].Header().Ttl)
		}
		c.clock.advance(time.Duration(seconds)*time.Second - 1)
		c.hit(clientKind{}, label+".example.org", mdns.TypeAAAA)
		c.clock.advance(1)
		if out, _ := c.send(clientKind{}, label+".example.org", mdns.TypeAAAA); out != nil {
			t.Errorf("%s: still there after %d s", label, seconds)
		}
		c.stop()
	}
}

// Row 53: a failure is kept for a second (RFC 9520), with the server's reason.
func testFailuresAreKeptForASecond(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	c.ask(clientKind{size: 1232}, "bogus.example.org", mdns.TypeA)
	q := h.next(t)
	m := new(mdns.Msg)
	m.SetRcode(q.Msg, mdns.RcodeServerFailure)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = append(m.IsEdns0().Option,
		&mdns.EDNS0_EDE{InfoCode: mdns.ExtendedErrorCodeDNSBogus, ExtraText: "signature expired"})
	q.send(packed(t, m))
	if got := c.answer(); got.Rcode != mdns.RcodeServerFailure || ede(got) != int(mdns.ExtendedErrorCodeDNSBogus) {
		t.Errorf("the client gets %v", got)
	}
	c.clock.advance(999 * time.Millisecond)
	if got := c.hit(clientKind{size: 1232}, "bogus.example.org", mdns.TypeA); got.Rcode != mdns.RcodeServerFailure ||
		ede(got) != int(mdns.ExtendedErrorCodeDNSBogus) {
		t.Errorf("the cache has %v", got)
	}
	h.none(t)
	c.clock.advance(time.Millisecond)
	c.ask(clientKind{}, "bogus.example.org", mdns.TypeA)
	h.next(t).reply(t, 0, []string{"bogus.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("afterwards the client gets %q", got)
	}
}

// Row 54: stale answers (RFC 8767).
func testStaleAnswers(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	k := clientKind{size: 1232}
	stale := func(m *mdns.Msg) {
		t.Helper()
		if firstA(m) != "192.0.2.1" || m.Answer[0].Header().Ttl != 30 || ede(m) != int(mdns.ExtendedErrorCodeStaleAnswer) {
			t.Errorf("want a stale answer, got %v", m)
		}
	}
	c.ask(k, "a.example.org", mdns.TypeA)
	h.next(t).reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	c.answer()
	c.clock.advance(61 * time.Second)

	// The servers come first; only when they take too long is it time for what there was.
	c.ask(k, "a.example.org", mdns.TypeA)
	q := h.next(t)
	if len(c.replies) > 0 {
		t.Fatal("answered before the server was given time")
	}
	c.clock.advance(1750 * time.Millisecond)
	stale(c.answer())
	// From then on at once, and the question goes on meanwhile: its answer counts.
	stale(c.hit(k, "a.example.org", mdns.TypeA))
	q.reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.2"})
	c.until("the late answer is kept", func() bool { return firstA(c.hit(k, "a.example.org", mdns.TypeA)) == "192.0.2.2" })

	// A question that fails: stale at once for 30 s, then the servers are asked again.
	c.clock.advance(61 * time.Second)
	c.ask(k, "a.example.org", mdns.TypeA)
	for len(h) > 0 {
		h.next(t)
	}
	c.until("the question fails", func() bool {
		c.clock.advance(100 * time.Millisecond)
		return c.f.Stats().Failed == 1
	})
	if m := c.answer(); firstA(m) != "192.0.2.2" || m.Answer[0].Header().Ttl != 30 {
		t.Errorf("after a failure: %v", m)
	}
	for len(h) > 0 {
		h.next(t)
	}
	c.clock.advance(20 * time.Second)
	c.hit(k, "a.example.org", mdns.TypeA)
	h.none(t)
	c.clock.advance(11 * time.Second)
	c.ask(k, "a.example.org", mdns.TypeA)
	// NXDOMAIN is an answer, and ends what was.
	h.next(t).reply(t, 3, nil, soa60)
	if m := c.answer(); m.Rcode != mdns.RcodeNameError {
		t.Errorf("want NXDOMAIN, got %v", m)
	}
	// After a day it is gone.
	c.clock.advance(25 * time.Hour)
	c.ask(k, "a.example.org", mdns.TypeA)
	c.clock.advance(5 * time.Second)
	if m := c.answer(); m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("after a day: %v", m)
	}
}

// Row 55: a name that is asked for often is asked for anew before it ends, once.
func testPrefetch(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	k := clientKind{}
	for _, name := range []string{"hot.example.org", "cold.example.org"} {
		c.ask(k, name, mdns.TypeA)
		h.next(t).reply(t, 0, []string{name + ". 100 IN A 192.0.2.1"})
		c.answer()
	}
	for range 10 {
		c.hit(k, "hot.example.org", mdns.TypeA)
	}
	h.none(t)
	c.clock.advance(91 * time.Second)
	c.hit(k, "cold.example.org", mdns.TypeA)
	for range 10 {
		c.hit(k, "hot.example.org", mdns.TypeA)
	}
	q := h.next(t)
	if q.name() != "hot.example.org." {
		t.Errorf("%s is asked for", q.name())
	}
	q.reply(t, 0, []string{"hot.example.org. 100 IN A 192.0.2.2"})
	c.until("the new answer is there", func() bool {
		return firstA(c.hit(k, "hot.example.org", mdns.TypeA)) == "192.0.2.2"
	})
	h.none(t)
	if st := c.f.Stats(); st.Prefetches != 1 || len(c.replies) != 0 {
		t.Errorf("%d prefetches, %d replies to nobody", st.Prefetches, len(c.replies))
	}
}

// Rows 56 and 57, and coalescing keys that are too coarse: what differs in name, type, DO or CD is
// another question; what does not is asked once, and each client gets its own ID and case.
func testCoalescing(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, ForwarderOptions{}, s)
	for i := range 20 {
		name := "www.example.org."
		if i%2 == 1 {
			name = "WwW.eXample.org."
		}
		c.ask(clientKind{id: uint16(i + 1)}, name, mdns.TypeA)
	}
	c.ask(clientKind{id: 101, do: true}, "www.example.org", mdns.TypeA)
	c.ask(clientKind{id: 102, cd: true}, "www.example.org", mdns.TypeA)
	c.ask(clientKind{id: 103, do: true, cd: true}, "www.example.org", mdns.TypeA)
	c.ask(clientKind{id: 104}, "www.example.org", mdns.TypeAAAA)
	var queries []*upstreamQuery
	for range 5 {
		queries = append(queries, h.next(t))
	}
	want := map[[3]any]string{{false, false, mdns.TypeA}: "192.0.2.1", {true, false, mdns.TypeA}: "192.0.2.2",
		{false, true, mdns.TypeA}: "192.0.2.3", {true, true, mdns.TypeA}: "192.0.2.4"}
	for _, q := range queries {
		key := [3]any{q.IsEdns0().Do(), q.CheckingDisabled, q.Question[0].Qtype}
		if q.Question[0].Qtype == mdns.TypeAAAA {
			q.reply(t, 0, []string{"www.example.org. 60 IN AAAA 2001:db8::1"})
			continue
		}
		q.reply(t, 0, []string{"www.example.org. 60 IN A " + want[key]})
	}
	seen := map[uint16]bool{}
	for range 24 {
		m := c.answer()
		seen[m.Id] = true
		name, addr := "www.example.org.", "192.0.2.1"
		if m.Id <= 20 && m.Id%2 == 0 {
			name = "WwW.eXample.org."
		}
		switch m.Id {
		case 101:
			addr = "192.0.2.2"
		case 102:
			addr = "192.0.2.3"
		case 103:
			addr = "192.0.2.4"
		case 104:
			addr = ""
		}
		if m.Question[0].Name != name || firstA(m) != addr || m.CheckingDisabled != (m.Id == 102 || m.Id == 103) {
			t.Errorf("ID %d gets %v", m.Id, m)
		}
	}
	if st := c.f.Stats(); len(seen) != 24 || st.Coalesced != 19 || st.Asked != 5 {
		t.Errorf("%d clients are answered, %d have waited for others, %d questions", len(seen), st.Coalesced, st.Asked)
	}
	h.none(t)
	if got := firstA(c.hit(clientKind{do: true, cd: true}, "www.example.org", mdns.TypeA)); got != "192.0.2.4" {
		t.Errorf("the cache has %q for DO and CD", got)
	}
}

// Row 57: AD only from servers that are trusted, and only for who wants to know; OPT is between two
// hops.
func testADAndOPT(t *testing.T) {
	for _, trust := range []bool{false, true} {
		var asked atomic.Bool
		s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
			asked.Store(q.AuthenticatedData)
			m := new(mdns.Msg)
			m.SetReply(q.Msg)
			m.AuthenticatedData, m.Authoritative = true, true
			m.Answer = records(t, "a.example.org. 60 IN A 192.0.2.1")
			m.SetEdns0(4096, true)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")},
				&mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0123456789abcdef"})
			q.send(packed(t, m))
		})
		c := newTester(t, ForwarderOptions{}, s)
		c.f.apply(c.f.opts.Servers, resolvConf{trustAD: trust}, "")
		for range 2 { // from the server and from the cache
			for _, k := range []clientKind{{}, {ad: true}, {do: true}, {size: 1232}} {
				m := c.query(k, "a.example.org", mdns.TypeA)
				if want := trust && (k.ad || k.do); m.AuthenticatedData != want || m.Authoritative || !m.RecursionAvailable {
					t.Errorf("trust %v, %+v: AD %v, want %v; AA %v", trust, k, m.AuthenticatedData, want, m.Authoritative)
				}
				o := m.IsEdns0()
				if (o != nil) != (k.do || k.size > 0) ||
					o != nil && (len(o.Option) > 0 || o.UDPSize() != ednsSize || o.Do() != k.do) {
					t.Errorf("%+v: the OPT record is %v", k, o)
				}
			}
		}
		if asked.Load() != trust {
			t.Errorf("trust %v: the server is asked with AD %v", trust, asked.Load())
		}
		c.stop()
	}
}
