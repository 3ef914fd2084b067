package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

func rowLocalDuringFlood(t *testing.T) {
	c := newTester(t, forward.Options{InFlight: 50}, newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}))
	c.swap(host("web.mesh", "240.0.0.1"))
	refused := 0
	for i := range 80 {
		if _, ok := c.send(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA); !ok {
			refused++
		}
		if got := firstA(c.hit(clientKind{tcp: i%2 == 0}, "web.mesh", mdns.TypeA)); got != "240.0.0.1" {
			t.Fatalf("query %d: %q", i, got)
		}
	}
	if st := c.f.Stats(); refused != 30 || st.Refused.InFlight != 30 || st.InFlight != 50 {
		t.Errorf("%d refused, counted %+v, in flight %d", refused, st.Refused, st.InFlight)
	}
	if n := c.srv.bySource(); n[fromTable] != 80 || n[fromNone] != 30 || n[fromUpstream] != 50 {
		t.Errorf("counted by source: %v", n)
	}
}

func rowViews(t *testing.T) {
	c := newMesh(t, nil)
	names := mustTable(t, meshOptions, table.Host{Name: "web.mesh", Addrs: addrs("240.0.0.1"), Group: 1},
		table.Host{Name: "db.mesh", Addrs: addrs("240.0.0.2"), Group: 2}, host("all.mesh", "240.0.0.3"))
	c.srv.Swap(table.NewAnswers(names,
		map[netip.Addr]*table.View{netip.MustParseAddr("127.0.0.2"): table.NewView([]uint32{1})}))
	all := c.udp
	limited := c.client("127.0.0.2")
	defer limited.Close()
	ask := func(from *net.UDPConn, name string) *mdns.Msg {
		c.udp = from
		defer func() { c.udp = all }()
		return c.query(clientKind{}, name, mdns.TypeA)
	}
	for name, want := range map[string]string{"web.mesh": "240.0.0.1", "all.mesh": "240.0.0.3", "db.mesh": ""} {
		m := ask(limited, name)
		if firstA(m) != want || (m.Rcode == mdns.RcodeNameError) != (want == "") {
			t.Errorf("with a view, %s: %v", name, m)
		}
		if m := ask(all, name); firstA(m) == "" {
			t.Errorf("without one, %s: %v", name, m)
		}
	}
}

// One client cannot use the whole capacity for forwarded queries.
func rowShare(t *testing.T) {
	own := ownAddress(t)
	f, err := forward.New(
		forward.Options{Servers: []netip.AddrPort{newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}).addr}})
	if err != nil {
		t.Fatal(err)
	}
	runForwarder(t, f)
	r := serve(t, ServerOptions{Forwarder: f}, "0.0.0.0:0", webHost)
	dial := func(host string) net.Conn {
		conn, err := net.Dial("udp", net.JoinHostPort(host, r.addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	send := func(conn net.Conn, i int) int {
		before := r.bySource(mdns.TypeA)
		if _, err := conn.Write(packed(t, new(mdns.Msg).SetQuestion(fmt.Sprintf("n%d.example.", i), mdns.TypeA))); err !=
			nil {
			t.Fatal(err)
		}
		c := tester{t: t, srv: r.Server}
		return c.source(before, mdns.TypeA)
	}
	greedy, other := dial(own.String()), dial("127.0.0.1")
	for i := range maxWaiting + 100 {
		want := fromUpstream
		if i >= maxWaiting {
			want = fromNone
		}
		if got := send(greedy, i); got != want {
			if st := f.Stats(); i >= maxWaiting && st.Failed > 0 {
				t.Skip("this host is too slow: the first questions have failed already")
			}
			t.Fatalf("question %d of the greedy client: %s, want %s", i, sourceNames[got], sourceNames[want])
		}
	}
	if got := send(other, 100000); got != fromUpstream {
		t.Errorf("the question of another client: %s", sourceNames[got])
	}
}

func rowCounts(t *testing.T) {
	c := newMesh(t, answerA(t, "60"), host("web.mesh", "240.0.0.1"))
	c.query(clientKind{}, "web.mesh", mdns.TypeA)
	c.query(clientKind{tcp: true}, "web.mesh", mdns.TypeHTTPS)
	c.query(clientKind{}, "nope.mesh", mdns.TypeAAAA)
	c.query(clientKind{}, "www.example.org", mdns.TypeA)
	c.query(clientKind{}, "www.example.org", mdns.TypeA)
	m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
	m.Question[0].Qclass = mdns.ClassCHAOS
	c.raw(false, packed(t, m))
	m.Question = nil
	c.raw(false, packed(t, m))
	m.SetQuestion("web.mesh.", mdns.TypeA).SetEdns0(1232, false)
	m.IsEdns0().SetVersion(7)
	c.raw(false, packed(t, m))
	want := []Count{{"local", "A", 0, 1}, {"local", "AAAA", 3, 1}, {"local", "HTTPS", 0, 1}, {"cache", "A", 0, 1},
		{"forwarded", "A", 0, 1}, {"refused", "A", 5, 1}, {"refused", "A", 16, 1}, {"refused", "other", 1, 1}}
	if got := c.srv.Counts(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

// Samples are spread over all queries: with pairs of A and AAAA queries, every second query is
// not always of one type.
func rowSampled(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	srv := NewServer(ServerOptions{Sampled: func(s Sampled) {
		mu.Lock()
		defer mu.Unlock()
		seen[fmt.Sprintf("%s %s %d %v", s.Name, s.Source, s.Type, s.TCP)]++
	}})
	names := mustTable(t, meshOptions, host("web.mesh", "240.0.0.1"))
	srv.Swap(table.NewAnswers(names, nil))
	udp, tcp, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	stop := Sockets{UDP: udp, TCP: []*net.TCPListener{tcp.(*net.TCPListener)}}.start(t, srv)
	client := mdns.Client{Timeout: patience}
	ask := func(n int) {
		for range n {
			for _, qtype := range []uint16{mdns.TypeA, mdns.TypeAAAA} {
				if _, _, err := client.Exchange(new(mdns.Msg).SetQuestion("wEb.mesh.", qtype),
					udp[0].LocalAddr().String()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ask(5) // not sampled
	srv.Sample(2)
	ask(200)
	stop()
	a, aaaa := seen["wEb.mesh local 1 false"], seen["wEb.mesh local 28 false"]
	if len(seen) != 2 || a < 50 || aaaa < 50 || a > 150 || aaaa > 150 {
		t.Errorf("of 200 pairs, told of are %v", seen)
	}
}

func rowLookup(t *testing.T) {
	names := mustTable(t, meshOptions, host("web.mesh", "240.0.0.1"))
	for name, want := range map[string]string{
		"web.mesh":    "records mesh",
		"nope.mesh":   "nxdomain mesh",
		"mesh":        "nodata mesh",
		"example.org": "forwarded ",
	} {
		outcome, below, err := names.Lookup(name, table.TypeA, nil)
		if got := fmt.Sprintf("%s %s", outcome, below); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

// The forwarded queries of one client per second are limited. Other clients and local answers are
// not affected.
func rowRate(t *testing.T) {
	own := ownAddress(t)
	clock := &fakeClock{}
	f, err := forward.New(
		forward.Options{Servers: []netip.AddrPort{newScripted(t, "127.0.0.1:0", answerA(t, "60")).addr}, Clock: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	runForwarder(t, f)
	r := serve(t, ServerOptions{Forwarder: f, PeerRate: 50}, "0.0.0.0:0", webHost)
	n := 0
	ask := func(host string, times int) (answered int) {
		for range times {
			n++
			m := r.exchange(t, "udp", host, new(mdns.Msg).SetQuestion(fmt.Sprintf("n%d.example.org.", n), mdns.TypeA))
			if m.Rcode == mdns.RcodeSuccess {
				answered++
			}
		}
		return answered
	}
	for late := time.Now().Add(patience); ask("127.0.0.1", 1) == 0; { // until the forwarder runs
		if time.Now().After(late) {
			t.Fatal("nothing is answered")
		}
	}
	for i, want := range []int{50, 50, 25} {
		if got := ask(own.String(), 80); got != want {
			t.Errorf("second %d: %d of 80 questions are answered, want %d", i, got, want)
		}
		if m := r.exchange(t, "udp", own.String(), new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)); firstA(m) == "" {
			t.Errorf("second %d: a name of the table: %v", i, m)
		}
		if got := ask("127.0.0.1", 80); got != 80 {
			t.Errorf("second %d: %d of 80 questions of another client are answered", i, got)
		}
		clock.advance([]time.Duration{10 * time.Second, time.Second / 2, 0}[i])
	}
}

// runForwarder runs a forwarder until the test ends. It returns when the forwarder accepts
// queries.
func runForwarder(t *testing.T, f *forward.Forwarder) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { fatal(t, f.Run(ctx)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	<-f.Started()
}
