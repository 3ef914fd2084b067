package dns

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// The owner of a domain, whose servers refuse EDNS, cannot turn off EDNS for other domains: not
// where the server has shown EDNS, and otherwise only for a few questions.
func TestDomainCannotDisableEDNS(t *testing.T) {
	for _, first := range []string{"other.example.org", "n.evil.example"} {
		t.Run(first, func(t *testing.T) {
			var plain atomic.Int32 // questions for other domains without EDNS
			s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
				evil := strings.HasSuffix(q.name(), "evil.example.")
				switch {
				case evil && q.IsEdns0() != nil: // as dnsmasq forwards it
					q.send(append([]byte{q.raw[0], q.raw[1], 0x80, 1}, make([]byte, 8)...))
					return
				case !evil && q.IsEdns0() == nil:
					plain.Add(1)
				}
				answerA(t, "60")(q)
			})
			c := newTester(t, forward.Options{}, s)
			c.query(clientKind{size: 1232}, first, mdns.TypeA)
			for i := range 2 * forward.Confirmed {
				if m := c.query(clientKind{size: 1232}, fmt.Sprintf("n%d.evil.example", i), mdns.TypeA); firstA(m) == "" {
					t.Fatalf("the name of the other domain gets %v", m)
				}
			}
			ask := func(of string) {
				for i := range 300 {
					c.query(clientKind{size: 1232}, fmt.Sprintf("n%d.%s", i, of), mdns.TypeA)
				}
			}
			if strings.HasSuffix(first, "evil.example") {
				ask("early.example.org") // one of 16 has EDNS
			}
			plain.Store(0)
			ask("example.org")
			if n := plain.Load(); n > 0 {
				t.Errorf("%d of 300 questions were sent without EDNS", n)
			}
		})
	}
}

// Likewise, the case of letters is checked for a server that has preserved it once.
func TestDomainCannotDisableMixedCase(t *testing.T) {
	var lower atomic.Int32
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if strings.HasSuffix(q.name(), "evil.example.") {
			q.Question[0].Name = q.name()
		} else if q.Question[0].Name == q.name() {
			lower.Add(1)
		}
		answerA(t, "60")(q)
	})
	c := newTester(t, forward.Options{}, s)
	c.query(clientKind{}, "first.example.org", mdns.TypeA)
	for i := range 2 * forward.Confirmed {
		if m := c.query(clientKind{}, fmt.Sprintf("name%d.evil.example", i), mdns.TypeA); firstA(m) == "" {
			t.Fatalf("the name of the other domain gets %v", m)
		}
	}
	for i := range 10 {
		c.query(clientKind{}, fmt.Sprintf("quitealongname%d.example.org", i), mdns.TypeA)
	}
	if n := lower.Load(); n > 0 {
		t.Errorf("%d of 11 questions were sent in lower case", n)
	}
}

// Replies to questions that were answered before are late, not forged, although their IDs share
// entries with those of newer questions.
func TestLateRepliesAreNotForged(t *testing.T) {
	const n = 1500
	h := newHeld()
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", h.do))
	repeats := make([]func(), n)
	for i := range repeats {
		c.write(false, clientKind{}.message(t, fmt.Sprintf("n%d.example.org", i), mdns.TypeA))
		q := h.next(t)
		wire := q.pack(t, 0, []string{q.name() + " 60 IN A 192.0.2.1"})
		q.send(wire)
		c.answer()
		repeats[i] = func() { q.send(wire) }
	}
	for _, repeat := range repeats {
		repeat()
	}
	c.until("all are counted", func() bool {
		s := c.f.Stats().Servers[0]
		return s.Late+s.Forged >= n
	})
	if s := c.f.Stats().Servers[0]; s.Forged > 0 || s.Late != n {
		t.Errorf("%d replies are late and %d forged, want %d and 0", s.Late, s.Forged, n)
	}
}

// Error replies have an OPT record if the query has one.
func TestErrorsHaveOPT(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	for what, tc := range map[string]struct {
		change func(*mdns.Msg)
		rcode  int
	}{
		"NOTIFY":        {func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }, mdns.RcodeNotImplemented},
		"UPDATE":        {func(m *mdns.Msg) { m.Opcode = mdns.OpcodeUpdate }, mdns.RcodeNotImplemented},
		"no question":   {func(m *mdns.Msg) { m.Question = nil }, mdns.RcodeFormatError},
		"two questions": {func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }, mdns.RcodeFormatError},
		"two OPTs":      {func(m *mdns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }, mdns.RcodeFormatError},
		"AXFR":          {func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAXFR }, mdns.RcodeRefused},
	} {
		for _, tcp := range []bool{false, true} {
			m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
			m.SetEdns0(1232, true)
			tc.change(m)
			got := c.raw(tcp, packed(t, m))
			if o := got.IsEdns0(); got.Rcode != tc.rcode || o == nil || !o.Do() {
				t.Errorf("%s, TCP %v: %v", what, tcp, got)
			}
		}
	}
}

// Signed queries are refused with an unsigned reply: NOTAUTH, with the client's key and BADKEY (RFC
// 8945 section 5.2.1).
func TestSignedQueries(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	signed := func(name, key string, edns bool) []byte {
		m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
		if edns {
			m.SetEdns0(1232, false)
		}
		m.SetTsig(key, mdns.HmacSHA256, 300, 1764000000)
		wire, _, err := mdns.TsigGenerate(m, "c2VjcmV0", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return wire
	}
	for _, name := range []string{"web.mesh.", "www.example.org."} {
		for _, edns := range []bool{false, true} {
			for _, tcp := range []bool{false, true} {
				wire := signed(name, "key.example.", edns)
				got := c.raw(tcp, wire)
				s := got.IsTsig()
				if got.Rcode != mdns.RcodeNotAuth || len(got.Answer) > 0 || s == nil || (got.IsEdns0() != nil) != edns {
					t.Fatalf("%s, TCP %v: %v", name, tcp, got)
				}
				if s.Error != mdns.RcodeBadKey || s.MACSize != 0 || s.Hdr.Name != "key.example." || s.OtherLen != 0 ||
					s.Algorithm != mdns.HmacSHA256 || s.OrigId != binary.BigEndian.Uint16(wire) || s.TimeSigned != 1764000000 {
					t.Errorf("%s, TCP %v: %v", name, tcp, s)
				}
			}
		}
	}
	long := strings.Repeat(strings.Repeat("k", 62)+".", 4)
	if got := c.raw(false, signed(strings.Repeat(strings.Repeat("n", 60)+".", 4), long, false)); !got.Truncated ||
		got.Rcode != mdns.RcodeNotAuth || got.IsTsig() != nil {
		t.Errorf("a reply of more than 512 bytes: %v", got)
	}
	wire := signed("web.mesh.", "key.example.", true)
	misplaced := append(signed("web.mesh.", "key.example.", false), bareOPTRecord...)
	misplaced[11]++
	unsure := slices.Clone(wire)
	unsure[len(unsure)-1] = 1 // more other data than there is
	twice := slices.Concat(wire, wire[len(wire)-tsigLen:])
	twice[11]++
	for what, m := range map[string][]byte{"not the last record": misplaced, "odd data": unsure, "two": twice} {
		if got := c.raw(false, m); got.Rcode != mdns.RcodeFormatError || got.IsTsig() != nil {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// tsigLen is the length of the TSIG records of TestSignedQueries.
const tsigLen = len("\x03key\x07example\x00") + 10 + len("\x0bhmac-sha256\x00") + 16 + 32
