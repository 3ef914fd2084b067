package forward

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// echoServer answers each query with one address, without allocations.
func echoServer(t testing.TB) []netip.AddrPort {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			b := buf[:n-BareOPT]
			b[2], b[3], b[7], b[11] = 0x81, 0x80, 1, 0
			b = append(b, 0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 1)
			_, _ = conn.WriteToUDPAddrPort(b, from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return []netip.AddrPort{conn.LocalAddr().(*net.UDPAddr).AddrPort()}
}

// FuzzResponse checks replies to clients: complete or cut, they have the records and the question
// of the message, and fit into the allowed size.
func FuzzResponse(f *testing.F) {
	for _, lines := range [][]string{
		{"a.example.org. 60 IN A 192.0.2.1", "a.example.org. 60 IN AAAA 2001:db8::1"},
		{"a.example.org. 60 IN CNAME b.example.org.", "b.example.org. 30 IN MX 10 mx.example.org.",
			"b.example.org. 30 IN TXT \"x\" \"y\""},
		{"a.example.org. 60 IN SRV 1 2 3 b.example.org.",
			"a.example.org. 60 IN NAPTR 1 2 \"u\" \"E2U+sip\" \"!^.*$!sip:x@y!\" .", soa60},
		{"a.example.org. 60 IN HTTPS 1 . alpn=h2", "a.example.org. 60 IN RRSIG A 8 2 60 20300101000000 20200101000000 1 " +
			"example.org. AAAA", "a.example.org. 5 IN NSEC b.example.org. A"},
	} {
		for _, tc := range []bool{false, true} {
			m := new(mdns.Msg)
			m.SetQuestion("A.example.org.", mdns.TypeA)
			m.Response, m.Compress, m.Truncated = true, true, tc
			m.Answer = records(f, lines...)
			m.Ns = records(f, soa60)
			m.SetEdns0(1232, true)
			f.Add(packed(f, m), uint16(100))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		var r response
		if !r.read(b) || !r.whole || len(r.Question) == 0 {
			return
		}
		// The reply has passed the comparison with our query, whose question has no pointers.
		name := r.Question[0].Name
		wire := make([]byte, table.MaxName)
		n, err := mdns.PackDomainName(mdns.CanonicalName(name), wire, 0, nil, false)
		if wire = wire[:n]; err != nil || len(b) < table.HeaderLen+n ||
			!bytes.EqualFold(b[table.HeaderLen:table.HeaderLen+n], wire) {
			return
		}
		qend := table.HeaderLen + n + 4
		want := unpacked(t, b)
		a, _, err := r.answer(nil, wire)
		if err != nil {
			t.Skip(err) // repacked, the message would be too long
		}
		all := unpacked(t, a.data[:a.size])
		checkTrimmed(t, name, want, all)
		want = all
		size := 512 + int(limit)
		by := client{id: 7, question: b[table.HeaderLen:qend], edns: true}
		out := a.appendReply(nil, &by, 1, size, false)
		if len(out) > size {
			t.Fatalf("the reply has %d bytes, at most %d are allowed", len(out), size)
		}
		var retried response
		if !retried.read(out) || !retried.Truncated && !retried.whole {
			t.Fatalf("cannot read the reply % x", out)
		}
		out[2] &^= 2
		if retried.read(out); !retried.whole {
			t.Fatalf("cannot read the reply % x", out)
		}
		got := unpacked(t, out)
		if len(got) > len(want) || !equalRecords(want[:len(got)], got) ||
			!bytes.Equal(out[table.HeaderLen:qend], b[table.HeaderLen:qend]) {
			t.Fatalf("the reply has %v, want %v or less", got, want)
		}
	})
}

// checkTrimmed checks that an answer has records of the message only, in their order, and all those
// of the name in the question.
func checkTrimmed(t *testing.T, name string, whole, answer []mdns.RR) {
	t.Helper()
	at := 0
	for _, rr := range whole {
		switch {
		case at < len(answer) && equalRecords([]mdns.RR{rr}, answer[at:at+1]):
			at++
		case strings.EqualFold(rr.Header().Name, name):
			t.Fatalf("the answer %v does not have %v", answer, rr)
		}
	}
	if at < len(answer) {
		t.Fatalf("the records are %v, want only those of %v", answer, whole)
	}
}

// TestTrim checks that records that do not belong to the question are removed.
func TestTrim(t *testing.T) {
	m := new(mdns.Msg)
	m.SetQuestion("a.example.org.", mdns.TypeA)
	m.Response = true
	m.Answer = records(t, "bank.example. 60 IN A 192.0.2.66", "b.example.net. 60 IN A 192.0.2.2",
		"A.example.org. 60 IN CNAME b.Example.net.", "x.a.example.org. 60 IN A 192.0.2.3")
	m.Ns = records(t, "example.net. 60 IN NS ns.example.net.", "bank.example. 60 IN NS ns.evil.example.",
		"le.net. 60 IN NS ns.evil.example.", "net. 60 IN NS ns.net.")
	m.Extra = records(t, "ns.example.net. 60 IN A 192.0.2.4", "bank.example. 60 IN A 192.0.2.66",
		"ns.net. 60 IN TXT x", "NS.net. 60 IN AAAA 2001:db8::1")
	b := packed(t, m)
	var r response
	if !r.read(b) {
		t.Fatal("cannot read the message")
	}
	name := make([]byte, table.MaxName)
	n, err := mdns.PackDomainName("a.example.org.", name, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := r.answer(nil, name[:n])
	if err != nil {
		t.Fatal(err)
	}
	want := records(t, "b.example.net. 60 IN A 192.0.2.2", "A.example.org. 60 IN CNAME b.Example.net.",
		"example.net. 60 IN NS ns.example.net.", "net. 60 IN NS ns.net.", "ns.example.net. 60 IN A 192.0.2.4",
		"NS.net. 60 IN AAAA 2001:db8::1")
	if got := unpacked(t, a.data[:a.size]); !equalRecords(want, got) {
		t.Errorf("the records are %v, want %v", got, want)
	}
}

// unpacked returns the records of a message as miekg/dns reads it, without OPT and TSIG records.
func unpacked(t *testing.T, b []byte) []mdns.RR {
	t.Helper()
	var m mdns.Msg
	if err := m.Unpack(b); err != nil {
		t.Fatalf("cannot read the message: %v (% x)", err, b)
	}
	return slices.DeleteFunc(slices.Concat(m.Answer, m.Ns, m.Extra), func(rr mdns.RR) bool {
		return rr.Header().Rrtype == mdns.TypeOPT || rr.Header().Rrtype == mdns.TypeTSIG
	})
}

// equalRecords compares names, types, and data. Letters may differ in case: names that point into
// the question change with it.
func equalRecords(a, b []mdns.RR) bool {
	return slices.EqualFunc(a, b, func(a, b mdns.RR) bool {
		a, b = mdns.Copy(a), mdns.Copy(b)
		for _, rr := range []mdns.RR{a, b} {
			h := rr.Header()
			h.Ttl, h.Rdlength = 0, 0
		}
		return strings.EqualFold(a.String(), b.String())
	})
}

// FuzzEcho compares echoes with a simpler comparison of questions.
func FuzzEcho(f *testing.F) {
	f.Add("www.example.org", uint64(5), byte(3))
	f.Fuzz(func(t *testing.T, name string, seed uint64, flip byte) {
		wire, err := table.AppendName(nil, name)
		if err != nil {
			return
		}
		q := question{name: wire, qtype: 1}
		m := wireQuery{seed: seed}.appendTo(nil, &q)
		if got := (wireQuery{seed: seed}).echoes(m, &q); got != sameQuestion {
			t.Fatalf("our own question compares as %v", got)
		}
		at := table.HeaderLen + int(flip)%len(wire)
		m[at] ^= 0x20
		want := otherQuestion
		if c := table.Lower(m[at]); c >= 'a' && c <= 'z' && c == wire[at-table.HeaderLen] {
			if want = otherCase; seed == 0 {
				want = sameQuestion
			}
		}
		if got := (wireQuery{seed: seed}).echoes(m, &q); got != want {
			t.Fatalf("byte %d changed: %v, want %v", at, got, want)
		}
	})
}
