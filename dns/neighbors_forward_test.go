package dns

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// One user asks more questions than fit, to silent servers. Those of another user are answered.
func attackQuestions(t *testing.T) {
	const most = 400
	c := newTester(t, forward.Options{InFlight: most}, newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if strings.HasSuffix(q.name(), ".good.test.") {
			answerA(t, "60")(q)
		}
	}))
	c.swap()
	bad, good := as(t, attacker), as(t, neighbor)
	udp, tcp := dial(t, bad, "udp", c.addr.String()), dial(t, bad, "tcp", c.addr.String())
	for _, conn := range []net.Conn{udp, tcp} {
		c.readers.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	}
	asked := 0
	fill := func(n int) {
		for range n {
			asked++
			m, before := question(t, fmt.Sprintf("n%d.example", asked)), c.srv.bySource(mdns.TypeA)
			var err error
			if asked%10 == 0 && asked < 900 { // fewer than may wait on a connection
				_, err = tcp.Write(framedForTest(m))
			} else {
				_, err = udp.Write(m)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.source(before, mdns.TypeA)
		}
	}
	fill(2 * most)
	mine, myTCP := dial(t, good, "udp", c.addr.String()), dial(t, good, "tcp", c.addr.String())
	for i := range 50 {
		fill(10)
		mustLookup(t, mine, fmt.Sprintf("n%d.good.test", i))
		mustLookup(t, myTCP, fmt.Sprintf("t%d.good.test", i))
	}
	if st := c.f.Stats(); st.InFlight < most || st.InFlight > most+most/16 || st.Refused.InFlight < most {
		t.Errorf("counted: %+v", st)
	}
}

// silentServer answers only the names below good.test, and stores other queries.
func silentServer(t *testing.T, others held) *scripted {
	return newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if strings.HasSuffix(q.name(), ".good.test.") {
			answerA(t, "60")(q)
			return
		}
		others.do(q)
	})
}

// A domain without answers gets 64 slots. Other domains are not affected, and one answer ends the
// limit.
func attackSilentDomain(t *testing.T) {
	others := newHeld()
	c := newTester(t, forward.Options{InFlight: 1000}, silentServer(t, others))
	c.swap()
	asked, accepted := 0, ""
	flood := func(n int) (refused int) {
		for range n {
			asked++
			name := fmt.Sprintf("n%d.evil.test", asked)
			if _, ok := c.send(clientKind{}, name, mdns.TypeA); ok {
				accepted = name
			} else {
				refused++
			}
		}
		return refused
	}
	if got := flood(forward.MaxSilent); got != 0 {
		t.Fatalf("%d of the first questions are refused", got)
	}
	c.clock.advance(500 * time.Millisecond)
	if got := flood(300); got != 300 {
		t.Errorf("%d of 300 further questions are refused", got)
	}
	for i := range 100 {
		if m := c.query(clientKind{}, fmt.Sprintf("n%d.good.test", i), mdns.TypeA); firstA(m) == "" {
			t.Fatalf("a question of another domain: %v", m)
		}
	}
	if st := c.f.Stats(); st.InFlight != forward.MaxSilent || st.Refused.Domain != 300 || st.Refused.InFlight != 0 {
		t.Errorf("counted: %+v", st)
	}
	c.until("all have failed", func() bool {
		c.clock.advance(50 * time.Millisecond)
		c.f.RunDue()
		return c.f.Stats().InFlight == 0
	})
	for range forward.MaxSilent {
		c.answer()
	}
	if got := flood(600); got != 100 { // half of all slots, because no time has passed
		t.Errorf("%d of 600 questions at once are refused", got)
	}
	last := others.next(t) // the server may not have received all queries yet
	for last.name() != accepted+"." {
		last = others.next(t)
	}
	answerA(t, "60")(last)
	if m := c.answer(); firstA(m) == "" {
		t.Fatal(m)
	}
	if got := flood(forward.MaxSilent + 10); got != 10 {
		t.Errorf("after an answer, %d questions are refused, want 10", got)
	}
}

// A name of a silent domain with a stale answer gets it at once.
func attackSilentDomainStale(t *testing.T) {
	others := newHeld()
	c := newTester(t, forward.Options{}, silentServer(t, others))
	c.swap()
	c.ask(clientKind{}, "www.evil.test", mdns.TypeA)
	answerA(t, "60")(others.next(t))
	if m := c.answer(); firstA(m) == "" {
		t.Fatal(m)
	}
	c.clock.advance(time.Hour)
	for i := range forward.MaxSilent {
		c.ask(clientKind{}, fmt.Sprintf("n%d.evil.test", i), mdns.TypeA)
	}
	c.clock.advance(time.Second)
	if m := c.hit(clientKind{}, "www.evil.test", mdns.TypeA); firstA(m) != "192.0.2.1" {
		t.Errorf("the stale answer: %v", m)
	}
}

// Random names of the mesh reach neither a server nor the cache.
func attackOwnedNames(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	for i := range 20000 {
		m := question(t, fmt.Sprintf("x%d.mesh", i))
		c.write(false, m)
		if i%100 != 99 {
			continue
		}
		for range 100 {
			if got := c.answer(); got.Rcode != mdns.RcodeNameError {
				t.Fatalf("a random name: %v", got)
			}
		}
		if got := firstA(c.hit(clientKind{tcp: i%200 == 99}, "web.mesh", mdns.TypeA)); got != "240.0.0.1" {
			t.Fatalf("a neighbor gets %q", got)
		}
	}
	if st := c.f.Stats(); st.Asked != 0 || st.Cache.Entries != 0 {
		t.Errorf("counted: %+v", st)
	}
}

// Random names that the server denies do not evict a name that neighbors use: it is asked once.
func attackForwardedNames(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	c := newTester(t, forward.Options{CacheBytes: 128 << 10}, newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		mu.Lock()
		asked[q.name()]++
		mu.Unlock()
		if q.name() == "www.good.test." {
			answerA(t, "86400")(q)
			return
		}
		q.Reply(t, mdns.RcodeNameError, nil, "test. 300 IN SOA ns.test. root.test. 1 3600 600 86400 300")
	}))
	c.swap()
	for i := range 4000 {
		if got := c.query(clientKind{}, fmt.Sprintf("x%d.evil.test", i), mdns.TypeA); got.Rcode != mdns.RcodeNameError {
			t.Fatalf("a random name: %v", got)
		}
		if i%50 != 0 {
			continue
		}
		if got := c.query(clientKind{}, "www.good.test", mdns.TypeA); firstA(got) == "" {
			t.Fatalf("a neighbor gets %v", got)
		}
	}
	st := c.f.Stats()
	mu.Lock()
	defer mu.Unlock()
	if n := asked["www.good.test."]; n != 1 || st.Cache.Evicted < 2000 || st.Cache.Bytes > 128<<10 {
		t.Errorf("the neighbor's name is asked %d times; %+v", n, st.Cache)
	}
}

// A domain that answers FORMERR does not affect the answers of other domains of its server.
func attackFORMERR(t *testing.T) {
	var plain atomic.Int32
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if strings.HasSuffix(q.name(), ".evil.test.") {
			q.Reply(t, mdns.RcodeFormatError, nil)
			return
		}
		if q.IsEdns0() == nil {
			plain.Add(1)
		}
		answerA(t, "60")(q)
	}))
	c.swap()
	for i := range 200 {
		if m := c.query(clientKind{}, fmt.Sprintf("n%d.evil.test", i), mdns.TypeA); m.Rcode == mdns.RcodeSuccess {
			t.Fatal(m)
		}
		if m := c.query(clientKind{size: 1232}, fmt.Sprintf("n%d.good.test", i), mdns.TypeA); firstA(m) == "" {
			t.Fatalf("lookup %d of a neighbor: %v", i, m)
		}
	}
	if sv := c.f.Stats().Servers[0]; sv.Down {
		t.Errorf("the server counts as down: %+v", sv)
	}
	if n := plain.Load(); n > 0 {
		t.Errorf("%d queries of neighbors are sent without EDNS", n)
	}
}
