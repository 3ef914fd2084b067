package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

func rowAddresses(t *testing.T) {
	c := newMesh(t, nil, host("web.mesh", "240.0.0.1", "fd00::1"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1")
	c.want("web.mesh", "AAAA", 0, "web.mesh. 30 IN AAAA fd00::1")
	c.swap(host("web.mesh", "240.0.0.2"), host("new.mesh", "240.0.0.3"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.2")
	c.want("new.mesh", "A", 0, "new.mesh. 30 IN A 240.0.0.3")
	names, errs := c.srv.answers.Load().Table.With(nil, []string{"web.mesh"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	c.srv.Swap(table.NewAnswers(names, nil))
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
			if len(m.Ns) != 1 || m.Ns[0].Header().Ttl != 5 || m.Ns[0].(*mdns.SOA).Minttl != 5 || !m.Authoritative {
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
		table.Host{Name: "web.mesh", Addrs: addrs("240.0.0.1", "fd00::1"),
			Ports: []table.Port{{Name: "http", Number: 80}, {Name: "", Number: 9000}}},
		// Another host may have the same address with another port.
		table.Host{Name: "other.mesh", Addrs: addrs("240.0.0.1"), Ports: []table.Port{{Name: "http", Number: 81}}})
	extra := []string{"web.mesh. 30 IN A 240.0.0.1", "web.mesh. 30 IN AAAA fd00::1"}
	c.want("web.mesh", "SRV", 0,
		append([]string{"web.mesh. 30 IN SRV 0 0 80 web.mesh.", "web.mesh. 30 IN SRV 0 0 9000 web.mesh."}, extra...)...)
	c.want("_http._tcp.web.mesh", "SRV", 0,
		append([]string{"_http._tcp.web.mesh. 30 IN SRV 0 0 80 web.mesh."}, extra...)...)
	c.want("other.mesh", "SRV", 0, "other.mesh. 30 IN SRV 0 0 81 other.mesh.", "other.mesh. 30 IN A 240.0.0.1")
	c.want("_grpc._tcp.web.mesh", "SRV", 3, soaOf("mesh."))
	c.want("web.mesh", "ANY", 0, "web.mesh. 30 IN A 240.0.0.1") // only one record set (RFC 8482)
}

func rowPTR(t *testing.T) {
	c := newMesh(t, nil, table.Host{Name: table.ReverseName(netip.MustParseAddr("240.0.0.1")), PTR: "web.mesh"})
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
	hosts := []table.Host{host("web.mesh", "240.0.0.1"), host("WEB.mesh.", "240.0.0.2")}
	for range 20 {
		names, errs := table.New(meshOptions, hosts)
		if len(errs) != 1 || errs[0].Error() != `host "WEB.mesh.": another host already has the name` {
			t.Fatalf("errors: %v", errs)
		}
		c := newMesh(t, nil)
		c.srv.Swap(table.NewAnswers(names, nil))
		if got := firstA(c.query(clientKind{}, "web.mesh", mdns.TypeA)); got != "240.0.0.1" {
			t.Fatalf("the winner is %s; it is the first", got)
		}
		c.stop()
	}
}

// raw sends arbitrary bytes, and returns the reply.
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
	if c.source(before) != fromNone {
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
	c := newMesh(t, func(q *upstreamQuery) { q.Reply(t, 0, forwarded) }, manyHost("many.mesh", n))
	for _, name := range []string{"many.mesh", "many.example.org"} {
		for _, size := range []uint16{0, 512, 700, 1000, 1232, 4096, 65535} {
			k := clientKind{size: size}
			c.query(k, name, mdns.TypeA)
			m := k.message(t, name, mdns.TypeA)
			c.write(false, m)
			wire := c.replyWith(binary.BigEndian.Uint16(m))
			got := c.unpack(wire)
			if len(wire) > k.maxSize() || got.Truncated != (len(got.Answer) < n) ||
				got.Truncated && k.maxSize()-len(wire) >= 16 {
				t.Errorf("%s, size %d: %d bytes, %d records, TC %v", name, size, len(wire), len(got.Answer), got.Truncated)
			}
		}
	}
}

// An immediate reply does not wait for an earlier query on the same connection.
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
	q.Reply(t, 0, []string{"slow.example.org. 60 IN A 192.0.2.1"})
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
	if got := open("127.0.0.1", 20); got != 20 {
		t.Errorf("%d of 20 further connections are served, want all, in place of idle ones", got)
	}
	if st := r.Conns(); st.Refused != 5 || st.ClosedIdle < 5 || st.ClosedBusy != 0 || st.Open > 20 {
		t.Errorf("counted: %+v", st)
	}
}

// A client with a search list gets NXDOMAIN immediately for names that are not below the mesh,
// and no alias.
func rowSearch(t *testing.T) {
	h := newHeld()
	c := newMesh(t, h.do, host("web.mesh", "240.0.0.1"))
	c.want("api.example.com.mesh", "A", 3, soaOf("mesh."))
	c.want("api.example.com.svc.mesh", "AAAA", 3, soaOf("mesh."))
	h.none(t)
	c.ask(clientKind{}, "api.example.com", mdns.TypeA)
	h.next(t).Reply(t, 0, []string{"api.example.com. 60 IN A 192.0.2.1"})
	if m := c.answer(); len(m.Answer) != 1 || firstA(m) != "192.0.2.1" {
		t.Errorf("%v", m)
	}
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1")
}

func rowPending(t *testing.T) {
	c := newMesh(t, answerA(t, "60"))
	c.srv.Swap(table.PendingAnswers([]string{"mesh"}, host("canary.invalid", "192.0.2.53")))
	c.want("web.mesh", "A", mdns.RcodeServerFailure)
	c.want("canary.invalid", "A", 0, "canary.invalid. 30 IN A 192.0.2.53")
	c.want("mesh", "AAAA", mdns.RcodeServerFailure)
	for _, k := range kinds {
		if m := c.query(k, "www.example.org", mdns.TypeA); firstA(m) != "192.0.2.1" {
			t.Errorf("%+v: %v", k, m)
		}
	}
	c.swap(host("web.mesh", "240.0.0.1"))
	c.want("web.mesh", "A", 0, "web.mesh. 30 IN A 240.0.0.1") // the failure is not cached
}
