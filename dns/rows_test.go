package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

func rowAddresses(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1", "fd00::1"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1")
	c.want("web.mesh", "AAAA", 0, "web.mesh. 30 IN AAAA fd00::1")
	c.swap(host("web.mesh", "240.0.0.2"), host("new.mesh", "240.0.0.3"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.2")
	c.want("new.mesh", "A", 0, "new.mesh. 30 IN A 240.0.0.3")
	table, errs := c.srv.answers.Load().table.With(nil, []string{"web.mesh"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	c.srv.Swap(NewAnswers(table, nil))
	c.want("web.mesh", "A", 3, soaOf("mesh."))
	c.want("new.mesh", "A", 0, "new.mesh. 30 IN A 240.0.0.3")
}

func rowOtherFamily(t *testing.T) {
	c := newMesh(t, nil, host("v4.mesh", "240.0.0.1"), host("v6.mesh", "fd00::1"), host("web.example.com", "240.0.0.2"))
	c.want("v4.mesh", "AAAA", 0, soaOf("mesh."))
	c.want("v6.mesh", "A", 0, soaOf("mesh."))
	c.want("web.example.com", "AAAA", 0, soaOf("web.example.com."))
}

func rowSOA(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	for name, rcode := range map[string]int{"web.mesh": 0, "mesh": 0, "nope.mesh": 3} {
		c.want(name, "AAAA", rcode, soaOf("mesh."))
		for _, k := range kinds {
			m := c.query(k, name, mdns.TypeAAAA)
			if len(m.Ns) != 1 || m.Ns[0].Header().Ttl != 30 || m.Ns[0].(*mdns.SOA).Minttl != 30 || !m.Authoritative {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func rowCase(t *testing.T) {
	c := newMesh(t, nil, host("Web.mesh", "240.0.0.1"), host("*.w.mesh", "240.0.0.2"))
	for _, name := range []string{"web.mesh.", "WEB.MESH.", "wEb.MeSh."} {
		c.want(name, "A", 0, name+" 30 IN A 240.0.0.1")
	}
	c.want("AnY.w.mEsh.", "A", 0, "AnY.w.mEsh. 30 IN A 240.0.0.2")
	c.want("NoPe.mEsh.", "A", 3, soaOf("mEsh."))
}

func rowOtherTypes(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"), host("*.w.mesh", "240.0.0.2"),
		host("api.example.com", "240.0.0.3"))
	for _, qtype := range []string{"HTTPS", "SVCB", "MX", "TXT", "NS", "SOA", "CNAME", "NAPTR", "CAA", "DS", "SRV"} {
		c.want("web.mesh", qtype, 0, soaOf("mesh."))
		c.want("x.w.mesh", qtype, 0, soaOf("mesh."))
		c.want("api.example.com", qtype, 0, soaOf("api.example.com."))
	}
}

func rowUnknownName(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	for _, name := range []string{
		"nope.mesh", "a.b.c.nope.mesh", "x.web.mesh", "_sip._udp.nope.mesh", "1.2.3.240.in-addr.arpa",
	} {
		zone := "mesh."
		if strings.HasSuffix(name, ".arpa") {
			zone = "240.in-addr.arpa."
		}
		for _, qtype := range []string{"A", "AAAA", "HTTPS", "MX", "SRV", "ANY", "PTR"} {
			c.want(name, qtype, 3, soaOf(zone))
		}
	}
}

func rowSRV(t *testing.T) {
	c := newMesh(t, nil,
		Host{Name: "web.mesh", Addrs: addrs("240.0.0.1", "fd00::1"), Ports: []Port{{"http", 80}, {"", 9000}}},
		// the same address with another port
		Host{Name: "other.mesh", Addrs: addrs("240.0.0.1"), Ports: []Port{{"http", 81}}})
	extra := []string{"web.mesh. 30 IN A 240.0.0.1", "web.mesh. 30 IN AAAA fd00::1"}
	c.want("web.mesh", "SRV", 0,
		append([]string{"web.mesh. 30 IN SRV 0 0 80 web.mesh.", "web.mesh. 30 IN SRV 0 0 9000 web.mesh."}, extra...)...)
	c.want("_http._tcp.web.mesh", "SRV", 0,
		append([]string{"_http._tcp.web.mesh. 30 IN SRV 0 0 80 web.mesh."}, extra...)...)
	c.want("other.mesh", "SRV", 0, "other.mesh. 30 IN SRV 0 0 81 other.mesh.", "other.mesh. 30 IN A 240.0.0.1")
	c.want("_grpc._tcp.web.mesh", "SRV", 3, soaOf("mesh."))
	c.want("web.mesh", "ANY", 0, "web.mesh. 30 IN A 240.0.0.1") // one set (RFC 8482)
}

func rowPTR(t *testing.T) {
	c := newMesh(t, nil, Host{Name: ReverseName(netip.MustParseAddr("240.0.0.1")), PTR: "web.mesh"})
	c.want("1.0.0.240.in-addr.arpa", "PTR", 0, "1.0.0.240.in-addr.arpa. 30 IN PTR web.mesh.")
	c.want("2.0.0.240.in-addr.arpa", "PTR", 3, soaOf("240.in-addr.arpa."))
}

func rowWildcards(t *testing.T) {
	c := newMesh(t, nil, host("*.svc.mesh", "240.0.0.1"), host("api.svc.mesh", "240.0.0.2"),
		host("*.deep.svc.mesh", "240.0.0.3"))
	c.want("x.svc.mesh", "A", 0, "x.svc.mesh. 30 IN A 240.0.0.1")
	c.want("x.y.svc.mesh", "A", 0, "x.y.svc.mesh. 30 IN A 240.0.0.1")
	c.want("api.svc.mesh", "A", 0, "api.svc.mesh. 30 IN A 240.0.0.2")
	c.want("x.deep.svc.mesh", "A", 0, "x.deep.svc.mesh. 30 IN A 240.0.0.3")
	c.want("x.api.svc.mesh", "A", 3, soaOf("mesh.")) // the closest encloser has no wildcard (RFC 4592)
}

func rowConflict(t *testing.T) {
	hosts := []Host{host("web.mesh", "240.0.0.1"), host("WEB.mesh.", "240.0.0.2")}
	for range 20 {
		table, errs := NewTable(meshOptions, hosts)
		if len(errs) != 1 || errs[0].Error() != `host "WEB.mesh.": another host has the name already` {
			t.Fatalf("errors: %v", errs)
		}
		c := newMesh(t, nil)
		c.srv.Swap(NewAnswers(table, nil))
		if got := firstA(c.query(clientKind{}, "web.mesh", mdns.TypeA)); got != "240.0.0.1" {
			t.Fatalf("the winner is %s; it is the first", got)
		}
		c.stop()
	}
}

// raw sends a message that need be none, and returns the reply.
func (c *tester) raw(tcp bool, m []byte) *mdns.Msg {
	c.t.Helper()
	c.write(tcp, m)
	return c.unpack(c.replyWith(binary.BigEndian.Uint16(m)))
}

func rowClassOpcodeCount(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1"))
	for what, tc := range map[string]struct {
		change func(*mdns.Msg)
		rcode  int
	}{
		"class CH":      {func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }, mdns.RcodeRefused},
		"AXFR":          {func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAXFR }, mdns.RcodeRefused},
		"NOTIFY":        {func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }, mdns.RcodeNotImplemented},
		"UPDATE":        {func(m *mdns.Msg) { m.Opcode = mdns.OpcodeUpdate }, mdns.RcodeNotImplemented},
		"no question":   {func(m *mdns.Msg) { m.Question = nil }, mdns.RcodeFormatError},
		"two questions": {func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }, mdns.RcodeFormatError},
	} {
		for _, tcp := range []bool{false, true} {
			m := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
			tc.change(m)
			if got := c.raw(tcp, packed(t, m)); got.Rcode != tc.rcode || !got.Response || got.Opcode != m.Opcode ||
				len(got.Answer) > 0 {
				t.Errorf("%s, TCP %v: %v", what, tcp, got)
			}
		}
	}
	response := new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)
	response.Response = true
	before := c.srv.bySource()
	c.write(false, packed(t, response))
	if c.source(before) != fromNobody {
		t.Error("a response is taken for a query")
	}
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1")
	if len(c.replies) > 0 {
		t.Error("a response is answered")
	}
}

func rowOPT(t *testing.T) {
	c := newMesh(t, answerA(t, "60"), host("web.mesh", "240.0.0.1"))
	for _, name := range []string{"web.mesh.", "www.example.org.", "www.example.org.", "nope.mesh."} {
		for _, tcp := range []bool{false, true} {
			m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
			if got := c.raw(tcp, packed(t, m)); got.IsEdns0() != nil {
				t.Errorf("%s: an OPT record without one in the query: %v", name, got)
			}
			m.SetEdns0(4096, true)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")},
				&mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0123456789abcdef"})
			got := c.raw(tcp, packed(t, m))
			if o := got.IsEdns0(); o == nil || len(o.Option) > 0 || !o.Do() || o.UDPSize() != 1232 || o.Version() != 0 {
				t.Errorf("%s: the OPT record is %v", name, o)
			}
			m.IsEdns0().SetVersion(1)
			if got := c.raw(tcp, packed(t, m)); got.Rcode != mdns.RcodeBadVers || len(got.Answer) > 0 {
				t.Errorf("%s: version 1 gets %v", name, got)
			}
		}
	}
}

func rowSize(t *testing.T) {
	const n = 64
	var forwarded []string
	for i := range n {
		forwarded = append(forwarded, fmt.Sprintf("many.example.org. 60 IN A 192.0.2.%d", i))
	}
	c := newMesh(t, func(q *upstreamQuery) { q.reply(t, 0, forwarded) }, manyHost("many.mesh", n))
	for _, name := range []string{"many.mesh", "many.example.org"} {
		for _, size := range []uint16{0, 512, 700, 1000, 1232, 4096, 65535} {
			k := clientKind{size: size}
			c.query(k, name, mdns.TypeA)
			m := k.message(t, name, mdns.TypeA)
			c.write(false, m)
			wire := c.replyWith(binary.BigEndian.Uint16(m))
			got := c.unpack(wire)
			if len(wire) > k.room() || got.Truncated != (len(got.Answer) < n) || got.Truncated && k.room()-len(wire) >= 16 {
				t.Errorf("%s, size %d: %d bytes, %d records, TC %v", name, size, len(wire), len(got.Answer), got.Truncated)
			}
		}
	}
}

// A reply that can be given at once does not wait for one that was asked for before it on the same
// connection.
func rowOutOfOrder(t *testing.T) {
	h := newHeld()
	c := newMesh(t, h.do, host("web.mesh", "240.0.0.1"))
	k := clientKind{tcp: true, id: 1}
	c.ask(k, "slow.example.org", mdns.TypeA)
	q := h.next(t)
	k.id = 2
	if m := c.hit(k, "web.mesh", mdns.TypeA); m.Id != 2 {
		t.Errorf("%v", m)
	}
	q.reply(t, 0, []string{"slow.example.org. 60 IN A 192.0.2.1"})
	if m := c.answer(); m.Id != 1 || firstA(m) != "192.0.2.1" {
		t.Errorf("%v", m)
	}
}

func rowConnsOfOneSource(t *testing.T) {
	own := ownAddress(t)
	r := serve(t, ServerOptions{MaxConns: 20, MaxPeerConns: 5}, "0.0.0.0:0", webHost)
	m := framedForTest(packed(t, new(mdns.Msg).SetQuestion("web.mesh.", mdns.TypeA)))
	open := func(host string, n int) (served int) {
		for range n {
			c, err := net.Dial("tcp", net.JoinHostPort(host, r.addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Write(m)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(c, make([]byte, 2)); err == nil {
				served++
			}
		}
		return served
	}
	if got := open(own.String(), 10); got != 5 {
		t.Errorf("%d of 10 connections from one address are served, want 5", got)
	}
	if got := open("127.0.0.1", 20); got != 15 {
		t.Errorf("%d of 20 further connections are served, want 15", got)
	}
}

// A client that follows a search list learns from NXDOMAIN at once that a name is not below the
// mesh, and is given no alias.
func rowSearch(t *testing.T) {
	h := newHeld()
	c := newMesh(t, h.do, host("web.mesh", "240.0.0.1"))
	c.want("api.example.com.mesh", "A", 3, soaOf("mesh."))
	c.want("api.example.com.svc.mesh", "AAAA", 3, soaOf("mesh."))
	h.none(t)
	c.ask(clientKind{}, "api.example.com", mdns.TypeA)
	h.next(t).reply(t, 0, []string{"api.example.com. 60 IN A 192.0.2.1"})
	if m := c.answer(); len(m.Answer) != 1 || firstA(m) != "192.0.2.1" {
		t.Errorf("%v", m)
	}
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1")
}

func rowPending(t *testing.T) {
	c := newMesh(t, answerA(t, "60"))
	c.srv.Swap(PendingAnswers([]string{"mesh"}, host("canary.invalid", "192.0.2.53")))
	c.want("web.mesh", "A", mdns.RcodeServerFailure)
	c.want("canary.invalid", "A", 0, "canary.invalid. 30 IN A 192.0.2.53")
	c.want("mesh", "AAAA", mdns.RcodeServerFailure)
	for _, k := range kinds {
		if m := c.query(k, "www.example.org", mdns.TypeA); firstA(m) != "192.0.2.1" {
			t.Errorf("%+v: %v", k, m)
		}
	}
	c.swap(host("web.mesh", "240.0.0.1"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1") // the failure is nowhere kept
}

func rowLocalDuringFlood(t *testing.T) {
	c := newTester(t, ForwarderOptions{InFlight: 50}, newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}))
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
	if n := c.srv.bySource(); n[fromTable] != 80 || n[fromNobody] != 30 || n[fromOthers] != 50 {
		t.Errorf("counted by source: %v", n)
	}
}

func rowViews(t *testing.T) {
	c := newMesh(t, nil)
	table := mustTable(t, meshOptions, Host{Name: "web.mesh", Addrs: addrs("240.0.0.1"), Group: 1},
		Host{Name: "db.mesh", Addrs: addrs("240.0.0.2"), Group: 2}, host("all.mesh", "240.0.0.3"))
	c.srv.Swap(NewAnswers(table, map[netip.Addr]*View{netip.MustParseAddr("127.0.0.2"): NewView([]uint32{1})}))
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

// One client cannot take all the room for questions that wait.
func rowShare(t *testing.T) {
	own := ownAddress(t)
	f, err := NewForwarder(
		ForwarderOptions{Servers: []netip.AddrPort{newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}).addr}})
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
		if _, err := conn.Write(packed(t, new(mdns.Msg).SetQuestion(fmt.Sprintf("n%d.example.org.", i), mdns.TypeA))); err !=
			nil {
			t.Fatal(err)
		}
		c := tester{t: t, srv: r.Server}
		return c.source(before, mdns.TypeA)
	}
	greedy, other := dial(own.String()), dial("127.0.0.1")
	for i := range maxWaiting + 100 {
		want := fromOthers
		if i >= maxWaiting {
			want = fromNobody
		}
		if got := send(greedy, i); got != want {
			if st := f.Stats(); i >= maxWaiting && st.Failed > 0 {
				t.Skip("this host is too slow: the first questions have failed already")
			}
			t.Fatalf("question %d of the greedy client: %s, want %s", i, sourceNames[got], sourceNames[want])
		}
	}
	if got := send(other, 100000); got != fromOthers {
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

// Queries that are told of are spread over all of them: with pairs of A and AAAA, one in two is not
// one type alone.
func rowSampled(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	srv := NewServer(ServerOptions{Sampled: func(s Sampled) {
		mu.Lock()
		defer mu.Unlock()
		seen[fmt.Sprintf("%s %s %d %v", s.Name, s.Source, s.Type, s.TCP)]++
	}})
	table := mustTable(t, meshOptions, host("web.mesh", "240.0.0.1"))
	srv.Swap(NewAnswers(table, nil))
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
	ask(5) // none
	srv.Sample(2)
	ask(200)
	stop()
	a, aaaa := seen["wEb.mesh local 1 false"], seen["wEb.mesh local 28 false"]
	if len(seen) != 2 || a < 50 || aaaa < 50 || a > 150 || aaaa > 150 {
		t.Errorf("of 200 pairs, told of are %v", seen)
	}
}

func rowLookup(t *testing.T) {
	table := mustTable(t, meshOptions, host("web.mesh", "240.0.0.1"))
	for name, want := range map[string]string{
		"web.mesh":    "records mesh",
		"nope.mesh":   "nxdomain mesh",
		"mesh":        "nodata mesh",
		"example.org": "elsewhere ",
	} {
		outcome, below, err := table.Lookup(name, TypeA, nil)
		if got := fmt.Sprintf("%s %s", outcome, below); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

func rowMark(t *testing.T) {
	const mark = 0x4e53
	c := newMarked(t, mark)
	for i := range 40 {
		c.query(clientKind{}, fmt.Sprintf("n%d.example.org", i), mdns.TypeA)
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	n := 0
	for _, u := range c.f.set.servers[0].sockets {
		if u == nil {
			continue
		}
		n++
		if got := markOf(t, u.io.conn); got != mark {
			t.Errorf("a socket to a server has the mark %#x, want %#x", got, mark)
		}
	}
	if n == 0 {
		t.Error("there are no sockets")
	}
}

// newMarked is a tester whose queries to servers are marked.
func newMarked(t *testing.T, mark uint32) *tester {
	t.Helper()
	s := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	if _, err := NewForwarder(ForwarderOptions{Servers: []netip.AddrPort{s.addr}, Mark: mark}); err != nil {
		if !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("the error does not name the capability: %v", err)
		}
		t.Skipf("marks cannot be set here: %v", err)
	}
	return newTester(t, ForwarderOptions{Mark: mark}, s)
}

// One client cannot have more than its part of what the name servers are asked in a second; others,
// and what is known here, do not suffer.
func rowRate(t *testing.T) {
	own := ownAddress(t)
	clock := &fakeClock{}
	f, err := NewForwarder(
		ForwarderOptions{Servers: []netip.AddrPort{newScripted(t, "127.0.0.1:0", answerA(t, "60")).addr}, clock: clock.now})
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

// runForwarder runs a forwarder until the test ends, and returns once it takes questions.
func runForwarder(t *testing.T, f *Forwarder) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { fatal(t, f.Run(ctx)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	<-f.started
}
