package dns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Row 63: one of our own queries that comes back is refused and logged. Own addresses cannot be
// servers.
func testLoopsAreSeen(t *testing.T) {
	var at atomic.Pointer[tester]
	looped := make(chan bool, 10)
	s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		var own table.Query
		if v, _ := own.Read(q.raw); v != table.Accepted {
			t.Error("our own query is not accepted")
			return
		}
		c := at.Load()
		from := q.from.(*net.UDPAddr).AddrPort()
		looped <- !c.f.Ask(&own, q.raw, forward.ReplyTo{Via: c, Addr: from, Max: 1232})
		q.Reply(t, mdns.RcodeServerFailure, nil)
	})
	c := newTester(t, forward.Options{}, s)
	at.Store(c)
	if m := c.query(clientKind{}, "a.example.org", mdns.TypeA); m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("the client gets %v", m)
	}
	if !<-looped || c.f.Stats().Loops == 0 {
		t.Error("the loop is not seen")
	}
	own := netip.MustParseAddrPort("127.0.0.1:53")
	_, err := forward.New(forward.Options{Servers: []netip.AddrPort{own},
		Own: func(a netip.AddrPort) bool { return a == own }})
	if err == nil ||
		!strings.Contains(err.Error(), "servers[0]: 127.0.0.1:53 is an address of this process") {
		t.Errorf("an own address as a server: %v", err)
	}
}

// Row 64: without servers, queries fail immediately. Servers that are configured later are used.
func testWithoutServers(t *testing.T) {
	file := t.TempDir() + "/resolv.conf"
	s := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	c := newTester(t, forward.Options{ResolvConf: file, Port: s.addr.Port()})
	if m := c.query(clientKind{size: 1232}, "a.example.org", mdns.TypeA); m.Rcode != mdns.RcodeServerFailure ||
		ede(m) != int(mdns.ExtendedErrorCodeNoReachableAuthority) {
		t.Errorf("the client gets %v", m)
	}
	if p := c.f.Stats().Problem; !strings.Contains(p, file) || !strings.Contains(p, "nameserver") {
		t.Errorf("the problem is %q", p)
	}
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.until("the server is read", func() bool { return len(c.f.Stats().Servers) == 1 })
	if m := c.query(clientKind{}, "a.example.org", mdns.TypeA); firstA(m) == "" {
		t.Errorf("the failure of before is kept: %v", m)
	}
}

// Rows 67 and 68, the cap of 150 queries in other resolvers, and growth with a dead server: the
// number of questions in flight and of sockets is limited. Further queries are refused and
// counted. Afterwards everything works.
func testFloodWithADeadServer(t *testing.T) {
	c := newTester(t, forward.Options{InFlight: 5000}, newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}))
	before := runtime.NumGoroutine()
	refused := 0
	for i := range 8000 {
		if _, ok := c.send(clientKind{}, fmt.Sprintf("n%d.example", i), mdns.TypeA); !ok {
			refused++
		}
	}
	st := c.f.Stats()
	if refused != 3000 || st.InFlight != 5000 || st.Refused.InFlight != 3000 {
		t.Errorf("%d refused, in flight %d, counted %+v", refused, st.InFlight, st.Refused)
	}
	if n := runtime.NumGoroutine() - before; n > 64 {
		t.Errorf("%d goroutines more for 5,000 questions", n)
	}
	for i := range forward.MaxWaiters + 10 {
		_, ok := c.send(clientKind{id: uint16(i + 1)}, "n1.example", mdns.TypeA)
		if want := i < forward.MaxWaiters-1; ok != want {
			t.Errorf("waiter %d is accepted: %v", i+2, ok)
		}
	}
	if got := c.f.Stats().Refused.Waiters; got != 11 {
		t.Errorf("%d refused because the wait queue was full", got)
	}
	c.until("all have failed", func() bool {
		c.clock.advance(50 * time.Millisecond)
		c.f.RunDue()
		return c.f.Stats().InFlight == 0
	})
	for range 5000 + forward.MaxWaiters - 1 {
		if m := c.answer(); m.Rcode != mdns.RcodeServerFailure {
			t.Fatalf("a client gets %v", m)
		}
	}
	c.clock.advance(20 * time.Second)
	c.until("the sockets are closed", func() bool {
		c.f.RunDue()
		return c.f.Sockets() == 0
	})
	if st := c.f.Stats(); st.Waiting != 0 || len(c.replies) != 0 {
		t.Errorf("%d wait, %d replies too many", st.Waiting, len(c.replies))
	}
}

// Row 71: statistics per server, with latencies.
func testStats(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	c.ask(clientKind{}, "a.example.org", mdns.TypeA)
	q := h.next(t)
	c.clock.advance(3 * time.Millisecond)
	q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	c.answer()
	c.hit(clientKind{}, "a.example.org", mdns.TypeA)
	st := c.f.Stats()
	sv := st.Servers[0]
	if sv.Addr != s.addr || sv.Queries != 1 || sv.Answers != 1 || sv.Latency[12] != 1 || sv.RTT != 3*time.Millisecond {
		t.Errorf("the server has %+v", sv)
	}
	if st.Cache.Hits != 1 || st.Cache.Misses != 1 || st.Cache.Entries != 1 || st.Cache.Inserted != 1 ||
		st.Cache.Bytes == 0 || st.InFlight != 0 {
		t.Errorf("counted: %+v", st)
	}
}
