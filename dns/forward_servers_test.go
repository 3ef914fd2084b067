package dns

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// group starts several servers with one script, which gets the server's number.
func group(t testing.TB, n int, do func(i int, q *upstreamQuery)) []*scripted {
	var out []*scripted
	for i := range n {
		out = append(out, newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) { do(i, q) }))
	}
	return out
}

type hit struct {
	server int
	q      *upstreamQuery
}

// Row 58: all servers are asked in order, then again.
func testAllServersAreAskedInOrder(t *testing.T) {
	hits := make(chan hit, 100)
	c := newTester(t, forward.Options{}, group(t, 3, func(i int, q *upstreamQuery) { hits <- hit{i, q} })...)
	c.ask(clientKind{}, "a.example.org", mdns.TypeA)
	start := c.clock.now()
	var order []int
	for range 6 {
		order = append(order, c.nextHit(hits).server)
		if len(order) == 3 && time.Duration(c.clock.now()-start) > 2*time.Second {
			t.Errorf("all servers are tried after %v only", time.Duration(c.clock.now()-start))
		}
	}
	if want := []int{0, 1, 2, 0, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("asked %v, want %v", order, want)
	}
	// The answer of any server counts.
	c.nextHit(hits).q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("the client gets %q", got)
	}
}

// nextHit returns the next query to a server, and advances the clock only as much as necessary.
func (c *tester) nextHit(hits chan hit) hit {
	c.t.Helper()
	sent := func() (n uint64) {
		for _, s := range c.f.Stats().Servers {
			n += s.Queries
		}
		return n
	}
	for c.hits++; sent() < c.hits; {
		c.clock.advance(10 * time.Millisecond)
		c.f.RunDue()
	}
	select {
	case h := <-hits:
		return h
	case <-time.After(patience):
		c.t.Fatal("no query has come to a server")
		return hit{}
	}
}

// An answer that arrives after the next server was asked is accepted.
func testLateAnswerCounts(t *testing.T) {
	hits := make(chan hit, 100)
	c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) { hits <- hit{i, q} })...)
	c.ask(clientKind{}, "a.example.org", mdns.TypeA)
	first, second := c.nextHit(hits), c.nextHit(hits)
	if second.server != 1 {
		t.Errorf("the next server is %d", second.server)
	}
	first.q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("the client gets %q", got)
	}
	second.q.Reply(t, 0, []string{"a.example.org. 60 IN A 192.0.2.2"})
	c.until("the second answer is counted as late", func() bool { return c.f.Stats().Servers[1].Late == 1 })
	if len(c.replies) > 0 {
		t.Error("the client is answered twice")
	}
}

// Row 58: options of resolv.conf.
func testServerOptions(t *testing.T) {
	t.Run("rotate", func(t *testing.T) {
		var asked [3]atomic.Int32
		c := newTester(t, forward.Options{}, group(t, 3, func(i int, q *upstreamQuery) {
			asked[i].Add(1)
			answerA(t, "60")(q)
		})...)
		c.f.Apply(c.f.Opts.Servers, forward.Conf{Rotate: true}, "")
		for i := range 30 {
			c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
		}
		for i := range asked {
			if asked[i].Load() != 10 {
				t.Errorf("server %d has had %d of 30 questions", i, asked[i].Load())
			}
		}
	})
	t.Run("first", func(t *testing.T) {
		c := newTester(t, forward.Options{}, group(t, 3, func(i int, q *upstreamQuery) {
			if i > 0 {
				t.Errorf("server %d is asked", i)
			}
			answerA(t, "60")(q)
		})...)
		for i := range 30 {
			c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
		}
	})
	t.Run("use-vc", func(t *testing.T) {
		s := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
			if !q.tcp {
				t.Error("asked over UDP")
			}
			answerA(t, "60")(q)
		})
		c := newTester(t, forward.Options{}, s)
		c.f.Apply(c.f.Opts.Servers, forward.Conf{UseTCP: true}, "")
		for i := range 200 {
			c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
		}
		if n := s.connections(); n != 1 {
			t.Errorf("%d connections for 200 questions", n)
		}
	})
	t.Run("attempts and timeout", func(t *testing.T) {
		h := newHeld()
		c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", h.do))
		c.f.Apply(c.f.Opts.Servers, forward.Conf{Attempts: 1, Timeout: time.Second}, "")
		c.ask(clientKind{}, "a.example.org", mdns.TypeA)
		start := c.clock.now()
		h.next(t)
		c.until("it fails", func() bool {
			c.clock.advance(10 * time.Millisecond)
			c.f.RunDue()
			return len(c.replies) > 0
		})
		if elapsed := time.Duration(c.clock.now() - start); elapsed < time.Second || elapsed > 1200*time.Millisecond {
			t.Errorf("it fails after %v, want 1 s", elapsed)
		}
		h.none(t)
	})
}

// Row 59: questions without an answer fail in time, with the reason. If all servers are known to
// be dead, they fail when a stale answer would be sent.
func testDeadServersFailInTime(t *testing.T) {
	hits := make(chan hit, 1000)
	c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) { hits <- hit{i, q} })...)
	fails := func(name string) time.Duration {
		t.Helper()
		c.ask(clientKind{size: 1232}, name, mdns.TypeA)
		start := c.clock.now()
		c.until("it fails", func() bool {
			c.clock.advance(10 * time.Millisecond)
			c.f.RunDue()
			return len(c.replies) > 0
		})
		elapsed := time.Duration(c.clock.now() - start)
		if m := c.answer(); m.Rcode != mdns.RcodeServerFailure || ede(m) != int(mdns.ExtendedErrorCodeNoReachableAuthority) {
			t.Errorf("the client gets %v", m)
		}
		return elapsed
	}
	if elapsed := fails("a.example.org"); elapsed < 3*time.Second || elapsed > 4100*time.Millisecond {
		t.Errorf("the first question fails after %v", elapsed)
	}
	fails("b.example.org")
	fails("c.example.org")
	if elapsed := fails("d.example.org"); elapsed < 1500*time.Millisecond || elapsed > 1800*time.Millisecond {
		t.Errorf("with servers that are down it fails after %v", elapsed)
	}
	// The next question is sent nevertheless, and a server that works again answers.
	c.ask(clientKind{}, "e.example.org", mdns.TypeA)
	for {
		if h := <-hits; h.q.name() == "e.example.org." {
			h.q.Reply(t, 0, []string{"e.example.org. 60 IN A 192.0.2.1"})
			break
		}
	}
	if got := firstA(c.answer()); got != "192.0.2.1" {
		t.Errorf("the client gets %q", got)
	}
}

// Row 60: a sole server gets every question, however long it was silent, and repeatedly.
func testSoleServerIsAlwaysAsked(t *testing.T) {
	h := newHeld()
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", h.do))
	for i := range 10 {
		c.ask(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
		n := 0
		c.until("it fails", func() bool {
			c.clock.advance(20 * time.Millisecond)
			c.f.RunDue()
			return len(c.replies) > 0
		})
		c.answer()
		for len(h) > 0 {
			h.next(t)
			n++
		}
		if n < 1 || n > forward.MaxSends {
			t.Errorf("question %d was sent %d times", i, n)
		}
	}
	if !c.f.Stats().Servers[0].Down {
		t.Error("it is not seen to be down")
	}
	c.ask(clientKind{}, "b.example.org", mdns.TypeA)
	h.next(t).Reply(t, 0, []string{"b.example.org. 60 IN A 192.0.2.1"})
	if got := firstA(c.answer()); got != "192.0.2.1" || c.f.Stats().Servers[0].Down {
		t.Errorf("back again, the client gets %q", got)
	}
}

// Row 60, and slow lookups because of one dead server: after the first questions, the working
// server comes first. The other one gets few questions, one at a time, and comes first again when
// it works.
func testDeadServerIsProbed(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	hits := make(chan hit, 10000)
	c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) {
		if i == 0 {
			hits <- hit{i, q}
			if dead.Load() {
				return
			}
		}
		answerA(t, "60")(q)
	})...)
	n := 0
	next := func() {
		n++
		c.ask(clientKind{}, fmt.Sprintf("n%d.example.org", n), mdns.TypeA)
	}
	const questions = 1500 // at least one in 64 reaches it
	slow := 0
	for range questions {
		before := c.f.Stats().Servers[1].Queries
		next()
		if c.f.Stats().Servers[1].Queries == before { // the dead server was asked first
			slow++
			c.until("the other one is asked", func() bool {
				c.clock.advance(10 * time.Millisecond)
				c.f.RunDue()
				return c.f.Stats().Servers[1].Queries > before
			})
		}
		c.answer()
	}
	if slow > 10 {
		t.Errorf("%d of %d questions have waited for the dead server", slow, questions)
	}
	if got := len(hits); got < 2 || got > 100 {
		t.Errorf("the dead server had %d of %d questions", got, questions)
	}
	dead.Store(false)
	c.until("the server is used again", func() bool {
		next()
		c.answer()
		st := c.f.Stats().Servers[0]
		return !st.Down && st.Answers > 20
	})
}

// A server that fails more often than others is asked less.
func testFailingServerIsPassedOver(t *testing.T) {
	for _, rcode := range []int{mdns.RcodeServerFailure, mdns.RcodeRefused, mdns.RcodeNotImplemented} {
		var asked atomic.Int32
		c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) {
			if i == 0 {
				asked.Add(1)
				q.Reply(t, rcode, nil)
				return
			}
			answerA(t, "60")(q)
		})...)
		for i := range 100 {
			if m := c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA); firstA(m) == "" {
				t.Fatalf("code %d: the client gets %v", rcode, m)
			}
		}
		if n := asked.Load(); n < forward.Failing || n > 60 {
			t.Errorf("code %d: the failing server was asked %d times of 100", rcode, n)
		}
		c.stop()
	}
	// If all servers fail, their response code is returned.
	c := newTester(t, forward.Options{}, group(t, 2, func(_ int, q *upstreamQuery) {
		q.Reply(t, mdns.RcodeRefused, nil)
	})...)
	if m := c.query(clientKind{}, "a.example.org", mdns.TypeA); m.Rcode != mdns.RcodeRefused {
		t.Errorf("the client gets %v", m)
	}
}

// The referral of a server that does not resolve for us is not an answer.
func testLameServer(t *testing.T) {
	c := newTester(t, forward.Options{}, group(t, 2, func(i int, q *upstreamQuery) {
		if i == 1 {
			answerA(t, "60")(q)
			return
		}
		m := new(mdns.Msg)
		m.SetReply(q.Msg)
		m.Ns = records(t, "org. 3600 IN NS a0.org.afilias-nst.info.")
		q.send(packed(t, m))
	})...)
	if m := c.query(clientKind{}, "a.example.org", mdns.TypeA); firstA(m) == "" {
		t.Errorf("the client gets %v", m)
	}
}

// If the kernel reports that a server is unreachable, no query waits for it. The server stops and
// starts again.
func testServerDiesAndComesBack(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	other := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	c := newTester(t, forward.Options{}, s, other)
	c.query(clientKind{}, "a.example.org", mdns.TypeA)
	s.stop()
	for i := range 40 { // the clock does not advance, so only the kernel's errors count
		if m := c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA); firstA(m) == "" {
			t.Fatalf("the client gets %v", m)
		}
	}
	other.stop()
	c.ask(clientKind{size: 1232}, "b.example.org", mdns.TypeA)
	c.until("it fails", func() bool {
		c.clock.advance(10 * time.Millisecond)
		c.f.RunDue()
		return len(c.replies) > 0
	})
	if m := c.answer(); m.Rcode != mdns.RcodeServerFailure || ede(m) != int(mdns.ExtendedErrorCodeNetworkError) {
		t.Errorf("with all servers gone the client gets %v", m)
	}
	s.start()
	c.clock.advance(2 * time.Second)
	c.ask(clientKind{}, "b.example.org", mdns.TypeA)
	c.until("it is answered", func() bool {
		c.clock.advance(10 * time.Millisecond)
		c.f.RunDue()
		return len(c.replies) > 0
	})
	if m := c.answer(); firstA(m) == "" {
		t.Errorf("back again: %v", m)
	}
}
