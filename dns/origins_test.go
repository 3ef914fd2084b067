package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// fakeNetwork is a network namespace whose clients query the same server at a time.
type fakeNetwork struct {
	name   string
	server atomic.Pointer[netip.AddrPort] // nil: unknown
	opened atomic.Int32
}

func (n *fakeNetwork) Name() string { return n.name }

func (n *fakeNetwork) Original(bool, netip.AddrPort, netip.AddrPort) (netip.AddrPort, error) {
	if s := n.server.Load(); s != nil {
		return *s, nil
	}
	return netip.AddrPort{}, errors.New("unknown")
}

func (n *fakeNetwork) Connect(network string, server netip.AddrPort) (*os.File, error) {
	n.opened.Add(1)
	kind := unix.SOCK_DGRAM
	if network == "tcp" {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(server.Port()), Addr: server.Addr().As4()})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), network), nil
}

// redirect makes the clients of a tester members of a network that query a server.
func (c *tester) redirect(name string, server netip.AddrPort) (*fakeNetwork, *forward.Origins) {
	n := &fakeNetwork{name: name}
	n.server.Store(&server)
	o := c.srv.Origins(n)
	c.srv.SetOrigins(o)
	return n, o
}

// answerAddr answers each query with an address.
func answerAddr(t testing.TB, addr string) func(*upstreamQuery) {
	return func(q *upstreamQuery) { q.Reply(t, 0, []string{q.Question[0].Name + " 60 A " + addr}) }
}

// TestOrigins: queries of another network go to the server that the client queried, and the cache
// distinguishes servers and networks.
func TestOrigins(t *testing.T) {
	standard := newScripted(t, "127.0.0.1:0", answerAddr(t, "192.0.2.1"))
	var changed atomic.Bool
	docker := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if changed.Load() {
			answerAddr(t, "192.0.2.22")(q)
			return
		}
		answerAddr(t, "192.0.2.2")(q)
	})
	vpn := newScripted(t, "127.0.0.1:0", answerAddr(t, "192.0.2.3"))
	c := newTester(t, forward.Options{}, standard)
	sampled := make(chan Sampled, 100)
	c.srv.o.Sampled = func(s Sampled) { sampled <- s }
	c.srv.Sample(1)
	want := func(what, addr string, server netip.AddrPort, network string) {
		t.Helper()
		for _, k := range []clientKind{{}, {tcp: true}, {size: 1232}} {
			if got := firstA(c.query(k, "a.example.org", mdns.TypeA)); got != addr {
				t.Errorf("%s: %s, want %s", what, got, addr)
			}
			s := <-sampled
			if s.Network != network || s.Server != server && (server != standard.addr || s.Source != "cache") {
				t.Errorf("%s: the query log has the server %s in network %q, want %s in %q",
					what, s.Server, s.Network, server, network)
			}
		}
	}
	want("not redirected", "192.0.2.1", standard.addr, "")
	n, first := c.redirect("/run/netns/pod", docker.addr)
	want("docker", "192.0.2.2", docker.addr, "/run/netns/pod")
	n.server.Store(&vpn.addr)
	want("vpn", "192.0.2.3", vpn.addr, "/run/netns/pod")
	n.server.Store(&docker.addr)
	want("docker, cached", "192.0.2.2", docker.addr, "/run/netns/pod")
	n.server.Store(&c.addr)
	want("the resolver itself", "192.0.2.1", standard.addr, "/run/netns/pod")

	changed.Store(true)
	_, second := c.redirect("/run/netns/other", docker.addr)
	want("the same server in another network", "192.0.2.22", docker.addr, "/run/netns/other")

	_, own := c.redirect("", standard.addr)
	want("the own network", "192.0.2.1", standard.addr, "")
	if st := c.f.Stats(); len(st.Origins) != 3 || st.Origins[0].Network != "/run/netns/other" ||
		st.Origins[0].Addr != docker.addr || st.Origins[0].Answers != 1 || st.OriginTotal.Answers != 3 {
		t.Errorf("the origins are %+v", st.Origins)
	}
	for _, o := range []*forward.Origins{first, second, own} {
		o.Close()
	}
	c.srv.SetOrigins(nil)
	want("after the networks have ended", "192.0.2.1", standard.addr, "")
	if st := c.f.Stats(); len(st.Origins) != 0 || st.OriginTotal.Answers != 3 || st.Cache.Entries != 1 {
		t.Errorf("left: %+v, total %+v, %d cached answers", st.Origins, st.OriginTotal, st.Cache.Entries)
	}
}

// TestOriginOfOwnNetwork: in the own network, configured servers and routes take precedence over
// the server that the client queried, and the servers of resolv.conf do not.
func TestOriginOfOwnNetwork(t *testing.T) {
	standard := newScripted(t, "127.0.0.1:0", answerAddr(t, "192.0.2.1"))
	vpn := newScripted(t, "127.0.0.1:0", answerAddr(t, "192.0.2.3"))
	conf := t.TempDir() + "/resolv.conf"
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		opts forward.Options
		want string
	}{
		{"configured", forward.Options{Servers: []netip.AddrPort{standard.addr}}, "192.0.2.1"},
		{"resolv.conf", forward.Options{ResolvConf: conf, Port: standard.addr.Port()}, "192.0.2.3"},
	} {
		c := newTester(t, tc.opts)
		n, _ := c.redirect("", vpn.addr)
		if got := firstA(c.query(clientKind{}, "a.example.org", mdns.TypeA)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		other := newScripted(t, "127.0.0.1:0", answerAddr(t, "192.0.2.4"))
		route := []forward.Route{{Domains: []string{"corp.example"}, Servers: []netip.AddrPort{other.addr}}}
		if err := c.f.Configure(route, false); err != nil {
			t.Fatal(err)
		}
		if got := firstA(c.query(clientKind{}, "a.corp.example", mdns.TypeA)); got != "192.0.2.4" {
			t.Errorf("%s: a name with a route: %s", tc.name, got)
		}
		n.server.Store(nil) // in the own network, queries may come directly
		if got := firstA(c.query(clientKind{}, "b.example.org", mdns.TypeA)); got != "192.0.2.1" {
			t.Errorf("%s: a query that conntrack does not know: %s", tc.name, got)
		}
	}
}

// TestOriginUnknown: a query whose server is unknown fails, instead of going to a server that may
// know other names.
func TestOriginUnknown(t *testing.T) {
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	n, _ := c.redirect("/run/netns/pod", netip.AddrPort{})
	n.server.Store(nil)
	out, ok := c.send(clientKind{}, "a.example.org", mdns.TypeA)
	if ok || c.unpack(out).Rcode != mdns.RcodeServerFailure {
		t.Errorf("accepted: %v, % x", ok, out)
	}
	if got := c.f.Stats().Refused.Origin; got != 1 {
		t.Errorf("%d queries are counted", got)
	}
}

// TestNetworkEnds: when a network ends, its queries in flight fail immediately, and its sockets and
// answers are released. Others are unaffected.
func TestNetworkEnds(t *testing.T) {
	h, other := newHeld(), newHeld()
	pod := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if q.name() == "cached.example.org." {
			answerA(t, "60")(q)
			return
		}
		h.do(q)
	})
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", other.do))
	_, o := c.redirect("/run/netns/pod", pod.addr)
	c.query(clientKind{}, "cached.example.org", mdns.TypeA)
	c.srv.SetOrigins(nil)
	c.ask(clientKind{id: 1}, "other.example.org", mdns.TypeA)
	waiting := other.next(t)
	standard := c.f.Sockets() - 1
	c.srv.SetOrigins(o)
	for i := range 20 {
		c.ask(clientKind{id: uint16(100 + i)}, string(rune('a'+i))+".example.org", mdns.TypeA)
		h.next(t)
	}
	o.Close() // the clock stands still
	for i := range 20 {
		m := c.unpack(c.replyWith(uint16(100 + i)))
		if m.Rcode != mdns.RcodeServerFailure {
			t.Errorf("query %d: %v", i, m)
		}
	}
	c.until("sockets are closed", func() bool { return c.f.Sockets() <= standard })
	if st := c.f.Stats(); st.InFlight != 1 || st.Waiting != 1 || len(st.Origins) != 0 || st.Cache.Entries != 0 {
		t.Errorf("left: %+v", st)
	}
	if out, ok := c.send(clientKind{id: 2}, "late.example.org", mdns.TypeA); ok ||
		c.unpack(out).Rcode != mdns.RcodeServerFailure {
		t.Errorf("a query after the end: accepted: %v", ok)
	}
	answerA(t, "60")(waiting)
	if m := c.unpack(c.replyWith(1)); m.Rcode != mdns.RcodeSuccess {
		t.Errorf("the query of another network: %v", m)
	}
}

// TestNetworkShare: a network whose server is silent uses at most its share of the questions in
// flight, a bounded number of sockets, and only its last servers are remembered.
func TestNetworkShare(t *testing.T) {
	h := newHeld()
	var pods []*scripted
	for range 20 {
		pods = append(pods, newScripted(t, "127.0.0.1:0", h.do))
	}
	c := newTester(t, forward.Options{InFlight: 160}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	n, o := c.redirect("/run/netns/pod", pods[0].addr)
	for i := range 20 {
		c.ask(clientKind{}, "a"+string(rune('a'+i))+".example.org", mdns.TypeA)
	}
	if out, ok := c.send(clientKind{}, "b.example.org", mdns.TypeA); ok || c.unpack(out).Rcode != mdns.RcodeServerFailure {
		t.Errorf("a query beyond the share: accepted: %v", ok)
	}
	if got := c.f.Stats().Refused.Network; got != 1 {
		t.Errorf("%d queries are counted", got)
	}
	if got := n.opened.Load(); got > 4 {
		t.Errorf("%d sockets for one server", got)
	}
	c.srv.SetOrigins(nil)
	if m := c.query(clientKind{}, "c.example.org", mdns.TypeA); m.Rcode != mdns.RcodeSuccess {
		t.Errorf("a query of another network: %v", m)
	}
	c.srv.SetOrigins(o)
	for range 20 {
		answerA(t, "60")(h.next(t))
		c.answer()
	}
	for i, pod := range pods {
		c.clock.advance(1)
		n.server.Store(&pod.addr)
		c.ask(clientKind{}, "d.example.org", mdns.TypeA)
		answerA(t, "60")(h.next(t))
		if m := c.answer(); m.Rcode != mdns.RcodeSuccess {
			t.Errorf("server %d: %v", i, m)
		}
	}
	st := c.f.Stats()
	if len(st.Origins) != 16 || st.OriginTotal.Answers != 40 ||
		slices.ContainsFunc(st.Origins, func(x forward.OriginStats) bool { return x.Addr == pods[0].addr }) {
		t.Errorf("%d origins, %d answers: %+v", len(st.Origins), st.OriginTotal.Answers, st.Origins)
	}
}

// TestOriginLoops: a client in another network may have the address of a socket of this process.
func TestOriginLoops(t *testing.T) {
	h := newHeld()
	s := newScripted(t, "127.0.0.1:0", h.do)
	c := newTester(t, forward.Options{}, s)
	c.ask(clientKind{}, "a.example.org", mdns.TypeA)
	own := h.next(t)
	from := own.from.(interface{ AddrPort() netip.AddrPort }).AddrPort()
	_, o := c.redirect("/run/netns/pod", s.addr)
	var q table.Query
	if v, _ := q.Read(own.raw); v != table.Accepted {
		t.Fatal("the query is not accepted")
	}
	to := forward.ReplyTo{Via: c, Addr: from, Max: 1232, Origin: o.Find(q.Key(), false, from, c.addr)}
	if !c.f.Ask(&q, own.raw, to) || c.f.Stats().Loops != 0 {
		t.Error("the query of another network counts as a loop")
	}
	h.next(t)
	to.Origin = nil
	if c.f.Ask(&q, own.raw, to) || c.f.Stats().Loops != 1 {
		t.Error("the own query does not count as a loop")
	}
}

// TestNetworkSockets: a client that queries many silent servers opens a bounded number of sockets.
func TestNetworkSockets(t *testing.T) {
	h := newHeld()
	c := newTester(t, forward.Options{InFlight: 8000}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	silent := newScripted(t, "0.0.0.0:0", h.do) // on all loopback addresses
	n, o := c.redirect("/run/netns/pod", silent.addr)
	for i := range 300 {
		server := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), silent.addr.Port())
		n.server.Store(&server)
		c.clock.advance(1)
		if _, ok := c.send(clientKind{}, "a.example.org", mdns.TypeA); !ok {
			t.Fatalf("query %d is not accepted", i)
		}
	}
	if got := c.f.Sockets(); got != forward.MaxNetworkSockets || c.f.Stats().NoSocket == 0 {
		t.Errorf("%d sockets, at most %d are allowed", got, forward.MaxNetworkSockets)
	}
	if st := c.f.Stats(); len(st.Origins) != 16 || st.InFlight != 300 {
		t.Errorf("%d origins, %d queries in flight", len(st.Origins), st.InFlight)
	}
	o.Close()
	for range 300 {
		if m := c.answer(); m.Rcode != mdns.RcodeServerFailure {
			t.Fatalf("answer %v", m)
		}
	}
	if got := c.f.Sockets(); got != 0 {
		t.Errorf("%d sockets are left", got)
	}
}

// TestOriginAddresses: servers that clients chose may give private addresses, but not virtual ones.
func TestOriginAddresses(t *testing.T) {
	do := func(q *upstreamQuery) {
		q.Reply(t, 0, []string{q.Question[0].Name + " 60 A 240.0.0.1", q.Question[0].Name + " 60 A 172.18.0.9"})
	}
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", do))
	c.f.Protect(&forward.Protection{Virtual: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/6")}, Private: true})
	if m := c.query(clientKind{}, "db.example.org", mdns.TypeA); len(m.Answer) != 0 {
		t.Errorf("an upstream: %v", m.Answer)
	}
	c.redirect("/run/netns/pod", newScripted(t, "127.0.0.1:0", do).addr)
	if m := c.query(clientKind{}, "db.example.org", mdns.TypeA); len(m.Answer) != 1 || firstA(m) != "172.18.0.9" {
		t.Errorf("a server of the pod: %v", m.Answer)
	}
}

// TestNetworksComeAndGo: while networks begin and end, each query gets one reply, and nothing is
// left at the end.
func TestNetworksComeAndGo(t *testing.T) {
	h := newHeld()
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", answerA(t, "60")))
	silent := newScripted(t, "0.0.0.0:0", h.do)
	working := newScripted(t, "0.0.0.0:0", answerA(t, "60"))
	const rounds, each = 40, 25
	sent := 0
	for round := range rounds {
		n, o := c.redirect("/run/netns/pod", silent.addr)
		var closing sync.WaitGroup
		for i := range each {
			port := []netip.AddrPort{silent.addr, working.addr}[i%2].Port()
			server := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 2, byte(round), byte(i)}), port)
			n.server.Store(&server)
			c.write(i%5 == 4, clientKind{id: uint16(1 + sent)}.message(t, fmt.Sprintf("a%d.example.org", i), mdns.TypeA))
			sent++
			if i == each/2 {
				closing.Go(o.Close)
			}
		}
		closing.Wait()
		c.until("all queries have come to the server", func() bool { // a full socket loses queries
			n := c.srv.bySource()
			return n[fromCache]+n[fromUpstream]+n[fromNone] == uint64(sent)
		})
	}
	c.srv.SetOrigins(nil)
	seen := map[uint16]bool{}
	for range sent {
		m := c.answer()
		if seen[m.Id] || m.Id == 0 {
			t.Fatalf("query %d has two replies", m.Id)
		}
		seen[m.Id] = true
	}
	c.until("sockets are closed", func() bool { return c.f.Sockets() == 0 })
	if st := c.f.Stats(); st.InFlight != 0 || st.Waiting != 0 || len(st.Origins) != 0 || st.Cache.Entries != 0 {
		t.Errorf("left: %+v", st)
	}
}
