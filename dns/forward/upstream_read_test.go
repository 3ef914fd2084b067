package forward

import (
	"bytes"
	"net"
	"net/netip"
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

// FuzzResponse compares the reader of replies with that of miekg/dns: what we take it can walk
// through, with the same records. What goes out to clients, whole or cut, has the same records,
// counts and question, within the room there is.
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
	f.Fuzz(func(t *testing.T, b []byte, room uint16) {
		var r response
		if !r.read(b) || !r.whole || r.qend == table.HeaderLen {
			return
		}
		// A question has no pointers in our own queries, and the reply has passed the comparison with
		// one.
		name, off, err := mdns.UnpackDomainName(b, table.HeaderLen)
		if err != nil {
			t.Fatalf("the question is taken, but %v", err)
		}
		if off+4 != r.qend {
			return
		}
		wire := make([]byte, table.MaxName)
		n, err := mdns.PackDomainName(mdns.CanonicalName(name), wire, 0, nil, false)
		if err != nil || n != r.qend-4-table.HeaderLen {
			return
		}
		want := walk(t, b, r.qend, r.count)
		a, _ := r.answer(nil, b, wire[:n])
		if got := walk(t, a.data[:a.size], r.qend, r.count); !equalRecords(want, got) {
			t.Fatalf("the records are %v, want %v", got, want)
		}
		size := 512 + int(room)
		by := asker{id: 7, question: b[table.HeaderLen:r.qend], edns: true}
		out := a.appendReply(nil, &by, 1, size, false)
		if len(out) > size {
			t.Fatalf("%d bytes for a room of %d", len(out), size)
		}
		var again response
		if !again.read(out) || out[2]&2 == 0 && !again.whole {
			t.Fatalf("what goes out cannot be read: % x", out)
		}
		out[2] &^= 2
		if again.read(out); !again.whole {
			t.Fatalf("what goes out cannot be read: % x", out)
		}
		got := walk(t, out, again.qend, again.count)
		if len(got) > len(want) || !equalRecords(want[:len(got)], got) ||
			!bytes.Equal(out[table.HeaderLen:again.qend], b[table.HeaderLen:r.qend]) {
			t.Fatalf("%v goes out, of %v", got, want)
		}
	})
}

// record is what all records have.
type record struct {
	name   string
	qtype  uint16
	length int
}

// walk reads records with the functions of miekg/dns.
func walk(t *testing.T, b []byte, at int, count [3]uint16) (out []record) {
	t.Helper()
	for range int(count[0]) + int(count[1]) + int(count[2]) {
		name, next, err := mdns.UnpackDomainName(b, at)
		if err != nil || next+10 > len(b) {
			t.Fatalf("record %d: %v (% x)", len(out), err, b)
		}
		n := int(b[next+8])<<8 | int(b[next+9])
		out = append(out, record{mdns.CanonicalName(name), uint16(b[next])<<8 | uint16(b[next+1]), n})
		if at = next + 10 + n; at > len(b) {
			t.Fatalf("record %d ends after the message (% x)", len(out), b)
		}
	}
	return out
}

func equalRecords(a, b []record) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// FuzzEcho compares our comparison of questions with a plain one.
func FuzzEcho(f *testing.F) {
	f.Add("www.example.org", uint64(5), byte(3))
	f.Fuzz(func(t *testing.T, name string, seed uint64, flip byte) {
		wire, err := table.AppendName(nil, name)
		if err != nil {
			return
		}
		q := question{name: wire, qtype: 1}
		m := wireQuery{seed: seed}.appendTo(nil, &q)
		if got := (wireQuery{seed: seed}).echoes(m, len(m), &q); got != sameQuestion {
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
		if got := (wireQuery{seed: seed}).echoes(m, len(m), &q); got != want {
			t.Fatalf("byte %d changed: %v, want %v", at, got, want)
		}
	})
}
