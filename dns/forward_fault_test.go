package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Malformed replies are rejected, and another server is asked.
func testMalformedAnswers(t *testing.T) {
	faults := map[string]func(b []byte, rr int) []byte{ // rr is the offset of the first record
		"cut":        func(b []byte, rr int) []byte { return b[:len(b)-1] },
		"count":      func(b []byte, rr int) []byte { b[7]++; return b },
		"loop":       func(b []byte, rr int) []byte { binary.BigEndian.PutUint16(b[rr:], 0xc000|uint16(rr)); return b },
		"forward":    func(b []byte, rr int) []byte { binary.BigEndian.PutUint16(b[rr:], 0xc000|uint16(rr+12)); return b },
		"header":     func(b []byte, rr int) []byte { binary.BigEndian.PutUint16(b[rr:], 0xc000); return b },
		"into a TTL": func(b []byte, rr int) []byte { return append(append(b, 0xc0, byte(rr+6)), b[rr+2:]...) },
		"label":      func(b []byte, rr int) []byte { b[rr] = 0x80; return b },
		"address":    func(b []byte, rr int) []byte { b[rr+11] = 3; return b[:len(b)-1] },
		"two OPTs": func(b []byte, rr int) []byte {
			b[11] = 2
			return append(b, slices.Concat(bareOPTRecord, bareOPTRecord)...)
		},
		"OPT in answers": func(b []byte, rr int) []byte { b[7] = 2; return append(b, bareOPTRecord...) },
		"named OPT": func(b []byte, rr int) []byte {
			b[11] = 1
			return append(append(b, 1, 'x'), bareOPTRecord...)
		},
		"options": func(b []byte, rr int) []byte {
			b[11] = 1
			o := append(slices.Clone(bareOPTRecord), 0, 15, 0, 2, 0, 1)
			o[10] = 6
			o[14] = 9
			return append(b, o...)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) {
				if i == 1 {
					answerA(t, "60")(q)
					return
				}
				m := new(mdns.Msg)
				m.SetReply(q.Msg)
				m.Compress = true
				m.Answer = records(t, q.Question[0].Name+" 60 IN A 203.0.113.66")
				b := fault(packed(t, m), table.HeaderLen+len("a.example.org")+2+4)
				if name == "into a TTL" {
					b[7] = 2
				}
				q.send(b)
			})...)
			if m := c.query(clientKind{}, "a.example.org", mdns.TypeA); firstA(m) != "192.0.2.1" {
				t.Errorf("the client gets %v", m)
			}
			if st := c.f.Stats().Servers[0]; st.Malformed != 1 {
				t.Errorf("counted: %+v", st)
			}
		})
	}
}

// A server sends only noise.
func testNoise(t *testing.T) {
	h := newHeld()
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", h.do))
	c.ask(clientKind{}, "a.example.org", mdns.TypeA)
	q := h.next(t)
	r := rand.New(rand.NewPCG(1, 2))
	sum := func() uint64 {
		s := c.f.Stats().Servers[0]
		return s.Malformed + s.Forged + s.Mismatched
	}
	for range 300 {
		b := make([]byte, r.IntN(100))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		was := sum()
		q.send(b)
		if len(b) > 0 {
			c.until("it is counted", func() bool { return sum() > was || c.f.Stats().Distrusted > 0 })
		}
		if c.f.Stats().Distrusted > 0 {
			q = h.next(t) // over TCP
			break
		}
	}
	q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("the client gets %q", got)
	}
}

// A reply of 64 kB over TCP reaches a client over TCP, and a client over UDP gets TC. The cache
// stores such an answer only if it is large enough.
func testLongestAnswers(t *testing.T) {
	text := strings.Repeat("x", 250)
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		m := new(mdns.Msg)
		m.SetReply(q.Msg)
		m.Compress = true
		if !q.tcp {
			m.Truncated = true
			q.send(packed(t, m))
			return
		}
		for m.Len() < 65535-263 {
			m.Answer = append(m.Answer, &mdns.TXT{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeTXT, Class: 1,
				Ttl: 60}, Txt: []string{text}})
		}
		b := packed(t, m)
		for len(b) < 65535 { // pad to the maximum size with unknown records
			n := min(65535-len(b)-12, 500)
			b = append(b, 0xc0, 12, 0xff, 0, 0, 1, 0, 0, 0, 60, byte(n>>8), byte(n))
			b = append(b, make([]byte, n)...)
			binary.BigEndian.PutUint16(b[6:], binary.BigEndian.Uint16(b[6:])+1)
		}
		q.send(b)
	})
	for _, bytes := range []int{forward.DefaultCacheBytes, 64 << 20} {
		c := newTester(t, forward.Options{CacheBytes: bytes}, s)
		for _, k := range []clientKind{{tcp: true}, {tcp: true, size: 1232}} {
			c.send(k, "big.example.org", mdns.TypeTXT)
			if bytes > forward.DefaultCacheBytes && k.size > 0 {
				break // the answer is cached
			}
			if b := c.wire(); len(b) != 65535 || b[2]&2 != 0 {
				t.Errorf("%+v: %d bytes, flags %x", k, len(b), b[2:4])
			}
		}
		for _, k := range []clientKind{{}, {size: 1232}} {
			if m := c.query(k, "big.example.org", mdns.TypeTXT); !m.Truncated || len(m.Answer) == 0 && k.size > 0 {
				t.Errorf("%+v: TC %v, %d records", k, m.Truncated, len(m.Answer))
			}
		}
		if st := c.f.Stats().Cache; (st.TooLarge > 0) != (bytes == forward.DefaultCacheBytes) || st.Bytes > bytes {
			t.Errorf("the cache has %+v", st)
		}
		c.stop()
	}
}

// A server without EDNS support, in any of its forms, is queried without EDNS.
func testServerWithoutEDNS(t *testing.T) {
	ways := map[string]func(q *upstreamQuery){
		"FORMERR": func(q *upstreamQuery) { q.send(append([]byte{q.raw[0], q.raw[1], 0x80, 1}, make([]byte, 8)...)) },
		"echoed": func(q *upstreamQuery) {
			b := bytes.Clone(q.raw[:len(q.raw)-forward.BareOPT])
			b[2] |= 0x80
			b[3] = 1
			b[11] = 0
			q.send(b)
		},
		"NOTIMP": func(q *upstreamQuery) { q.send(append([]byte{q.raw[0], q.raw[1], 0x80, 4}, make([]byte, 8)...)) },
		"BADVERS": func(q *upstreamQuery) {
			m := new(mdns.Msg)
			m.SetRcode(q.Msg, mdns.RcodeBadVers)
			m.SetEdns0(1232, false)
			q.send(packed(t, m))
		},
		"silence": func(*upstreamQuery) {},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			var with, without atomic.Int32
			s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
				if q.IsEdns0() != nil {
					with.Add(1)
					way(q)
					return
				}
				without.Add(1)
				answerA(t, "60")(q)
			})
			c := newTester(t, forward.Options{}, s)
			for i := range 20 {
				c.ask(clientKind{size: 1232}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
				c.until("an answer", func() bool {
					if name == "silence" {
						c.clock.advance(time.Millisecond)
						c.f.RunDue()
					}
					return len(c.replies) > 0
				})
				if m := c.answer(); firstA(m) == "" || m.IsEdns0() == nil {
					t.Fatalf("the client gets %v", m)
				}
			}
			if with.Load() > 2*forward.Confirmed+3 || without.Load() < 20 {
				t.Errorf("asked %d times with and %d times without EDNS", with.Load(), without.Load())
			}
		})
	}
}

// Over TCP, many questions share few connections, and answers may arrive in any order.
func TestUpstreamTCPIsPipelined(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	c.f.Apply(c.f.Opts.Servers, forward.Conf{UseTCP: true}, "")
	const n = 500
	for i := range n {
		c.ask(clientKind{id: uint16(i + 1)}, fmt.Sprintf("n%d.example.org", i+1), mdns.TypeA)
	}
	var queries []*upstreamQuery
	for range n {
		queries = append(queries, h.next(t))
	}
	rand.Shuffle(n, func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })
	for _, q := range queries {
		var i int
		_, _ = fmt.Sscanf(q.name(), "n%d.", &i)
		q.Reply(t, 0, []string{q.name() + fmt.Sprintf(" 60 IN A 192.0.%d.%d", i/256, i%256)})
	}
	for range n {
		m := c.answer()
		if want := fmt.Sprintf("192.0.%d.%d", m.Id/256, m.Id%256); firstA(m) != want {
			t.Fatalf("question %d gets %v", m.Id, m)
		}
	}
	if got := s.connections(); got > forward.MaxStreams {
		t.Errorf("%d connections", got)
	}
}

// A server that closes each connection after one answer is queried over many connections. No
// question is lost.
func testServerThatAnswersOneQueryPerConnection(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		answerA(t, "60")(q)
		q.hang()
	})
	c := newTester(t, forward.Options{}, s)
	c.f.Apply(c.f.Opts.Servers, forward.Conf{UseTCP: true}, "")
	const n = 40
	for i := range n {
		c.ask(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
	}
	for i := range n {
		c.until("an answer", func() bool {
			c.clock.advance(time.Millisecond)
			c.f.RunDue()
			return len(c.replies) > 0
		})
		if m := c.answer(); firstA(m) == "" {
			t.Errorf("answer %d is %v", i, m)
		}
	}
}

// A server whose TCP connections break, are refused, or stay silent delays a question only for
// the time limit. Another server answers.
func testBrokenTCPUpstream(t *testing.T) {
	for name, do := range map[string]func(q *upstreamQuery){
		"closes":   func(q *upstreamQuery) { q.hang() },
		"silent":   func(*upstreamQuery) {},
		"wrong ID": func(q *upstreamQuery) { q.Id++; answerA(t, "60")(q) },
		"question": func(q *upstreamQuery) { q.Question[0].Name = "b.example.org."; answerA(t, "60")(q) },
		"TC": func(q *upstreamQuery) {
			b := q.pack(t, 0, nil)
			b[2] |= 2
			q.send(b)
		},
		"noise": func(q *upstreamQuery) { q.send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) {
				switch {
				case !q.tcp && i == 0:
					b := q.pack(t, 0, nil)
					b[2] |= 2
					q.send(b)
				case i == 0:
					do(q)
				default:
					answerA(t, "60")(q)
				}
			})...)
			c.ask(clientKind{}, "a.example.org", mdns.TypeA)
			c.until("an answer", func() bool {
				c.clock.advance(time.Millisecond)
				c.f.RunDue()
				return len(c.replies) > 0
			})
			if m := c.answer(); firstA(m) != "192.0.2.1" {
				t.Errorf("the client gets %v", m)
			}
		})
	}
}

// With thousands of concurrent questions, answered in any order over reused ports, each client
// gets its own answer.
func testEachClientGetsItsOwnAnswer(t *testing.T) {
	h := newHeld()
	c := newTester(t, forward.Options{CacheBytes: -1}, newScripted(t, "127.0.0.1:0", h.do),
		newScripted(t, "127.0.0.1:0", h.do))
	c.f.Apply(c.f.Opts.Servers, forward.Conf{Rotate: true}, "")
	const n = 4000
	sent, answered := 0, 0
	var waiting []*upstreamQuery
	for answered < n {
		for sent < n && sent-answered < 300 {
			sent++
			c.ask(clientKind{id: uint16(sent)}, fmt.Sprintf("n%d.example.org", sent), mdns.TypeA)
			waiting = append(waiting, h.next(t))
		}
		i := rand.IntN(len(waiting))
		q := waiting[i]
		waiting[i] = waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		var id int
		_, _ = fmt.Sscanf(q.name(), "n%d.", &id)
		q.Reply(t, 0, []string{q.name() + fmt.Sprintf(" 60 IN A 10.0.%d.%d", id/256, id%256)})
		m := c.answer()
		if want := fmt.Sprintf("10.0.%d.%d", m.Id/256, m.Id%256); firstA(m) != want ||
			m.Question[0].Name != fmt.Sprintf("n%d.example.org.", m.Id) {
			t.Fatalf("client %d gets %v", m.Id, m)
		}
		answered++
	}
	if st := c.f.Stats(); st.Servers[0].Mismatched+st.Servers[1].Mismatched+st.Failed != 0 {
		t.Errorf("counted: %+v", st)
	}
}

// Invalid options cause errors that name the fault.
func TestForwarderOptions(t *testing.T) {
	var o forward.Options
	if err := o.Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	o.Servers = make([]netip.AddrPort, forward.MaxServers+1)
	o.InFlight = -1
	err := o.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"servers: has 9 entries, at most 8 are allowed",
		"servers[8]: ", "inFlight: -1 is out of range; 0 to 1048576 are allowed",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// bareOPTRecord is an OPT record without options.
var bareOPTRecord = []byte{0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0}
