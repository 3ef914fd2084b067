package dns

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// Row 52: each TTL counts down to the second, without a minimum.
func testTTLsCountDown(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		q.Reply(t, 0, []string{"a.example.org. 300 IN CNAME b.example.org.", "b.example.org. 7 IN A 192.0.2.1"})
	})
	c := newTester(t, forward.Options{}, s)
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

// A TTL of 0 is forwarded and the answer is not cached. A TTL with the highest bit set is 0 (RFC
// 2181). Long TTLs are limited.
func testOddTTLs(t *testing.T) {
	ttls := map[string]uint32{"zero": 0, "high": 1<<31 + 5, "long": 1 << 30}
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		b := q.pack(t, 0, []string{q.Question[0].Name + " 1 IN A 192.0.2.1"})
		label, _, _ := strings.Cut(q.name(), ".")
		at := bytes.LastIndex(b, []byte{0, 1, 0, 1, 0, 0, 0, 1}) + 4 // A, IN, 1 s
		binary.BigEndian.PutUint32(b[at:], ttls[label])
		q.send(b)
	})
	c := newTester(t, forward.Options{}, s)
	for label, want := range map[string]uint32{"zero": 0, "high": 0, "long": forward.MaxTTL} {
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

// Row 53, and negative answers without an SOA record, which would otherwise be queried for each
// connection.
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
			q.Reply(t, a.rcode, a.answer, a.authority...)
		})
		c := newTester(t, forward.Options{}, s)
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

// Row 53: a failure is cached for a second (RFC 9520), with the server's reason.
func testFailuresAreKeptForASecond(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
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
	h.next(t).Reply(t, 0, []string{"bogus.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("afterwards the client gets %q", got)
	}
}

// Row 54: stale answers (RFC 8767).
func testStaleAnswers(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	k := clientKind{size: 1232}
	stale := func(m *mdns.Msg) {
		t.Helper()
		if firstA(m) != "192.0.2.1" || m.Answer[0].Header().Ttl != 30 || ede(m) != int(mdns.ExtendedErrorCodeStaleAnswer) {
			t.Errorf("want a stale answer, got %v", m)
		}
	}
	c.ask(k, "a.example.org", mdns.TypeA)
	h.next(t).Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	c.answer()
	c.clock.advance(61 * time.Second)

	// Servers are asked first. The stale answer is sent only if they are slow.
	c.ask(k, "a.example.org", mdns.TypeA)
	q := h.next(t)
	if len(c.replies) > 0 {
		t.Fatal("answered before the server was given time")
	}
	c.clock.advance(1750 * time.Millisecond)
	stale(c.answer())
	// Further queries get the stale answer immediately. The question stays in flight, and its
	// answer counts.
	stale(c.hit(k, "a.example.org", mdns.TypeA))
	q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.2"})
	c.until("the late answer is kept", func() bool { return firstA(c.hit(k, "a.example.org", mdns.TypeA)) == "192.0.2.2" })

	// After a failed question, stale answers are sent immediately for 30 s. Then the servers are
	// asked again.
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
	// NXDOMAIN is an answer, and replaces the stale one.
	h.next(t).Reply(t, 3, nil, soa60)
	if m := c.answer(); m.Rcode != mdns.RcodeNameError {
		t.Errorf("want NXDOMAIN, got %v", m)
	}
	// After a day, the stale answer is removed.
	c.clock.advance(25 * time.Hour)
	c.ask(k, "a.example.org", mdns.TypeA)
	c.clock.advance(5 * time.Second)
	if m := c.answer(); m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("after a day: %v", m)
	}
}

// Row 55: an answer that is used often is refreshed once before it expires.
func testPrefetch(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	k := clientKind{}
	for _, name := range []string{"hot.example.org", "cold.example.org"} {
		c.ask(k, name, mdns.TypeA)
		h.next(t).Reply(t, 0, []string{name + ". 100 IN A 192.0.2.1"})
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
	q.Reply(t, 0, []string{"hot.example.org. 100 IN A 192.0.2.2"})
	c.until("the new answer is there", func() bool {
		return firstA(c.hit(k, "hot.example.org", mdns.TypeA)) == "192.0.2.2"
	})
	h.none(t)
	if st := c.f.Stats(); st.Prefetches != 1 || len(c.replies) != 0 {
		t.Errorf("%d prefetches, %d replies to nobody", st.Prefetches, len(c.replies))
	}
}

// Rows 56 and 57, and coalescing with too coarse keys: queries that differ in name, type, DO, or
// CD are separate questions. Equal queries are sent once, and each client gets its own ID and
// spelling.
func testCoalescing(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
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
			q.Reply(t, 0, []string{"www.example.org. 60 IN AAAA 2001:db8::1"})
			continue
		}
		q.Reply(t, 0, []string{"www.example.org. 60 IN A " + want[key]})
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

// Row 57: AD is forwarded only from trusted servers, and only to clients that request it. OPT is
// not forwarded.
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
		c := newTester(t, forward.Options{}, s)
		c.f.Apply(c.f.Opts.Servers, forward.Conf{TrustAD: trust}, "")
		for range 2 { // from the server and from the cache
			for _, k := range []clientKind{{}, {ad: true}, {do: true}, {size: 1232}} {
				m := c.query(k, "a.example.org", mdns.TypeA)
				if want := trust && (k.ad || k.do); m.AuthenticatedData != want || m.Authoritative || !m.RecursionAvailable {
					t.Errorf("trust %v, %+v: AD %v, want %v; AA %v", trust, k, m.AuthenticatedData, want, m.Authoritative)
				}
				o := m.IsEdns0()
				if (o != nil) != (k.do || k.size > 0) ||
					o != nil && (len(o.Option) > 0 || o.UDPSize() != forward.EdnsSize || o.Do() != k.do) {
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
