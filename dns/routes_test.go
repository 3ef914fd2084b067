package dns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// answers returns a script that answers every question with one address.
func answers(t testing.TB, addr string) func(*upstreamQuery) {
	return func(q *upstreamQuery) { q.Reply(t, 0, []string{q.Question[0].Name + " 60 IN A " + addr}) }
}

func route(s *scripted, p forward.Protocol, domains ...string) forward.Route {
	return forward.Route{Domains: domains, Servers: []netip.AddrPort{s.addr}, Protocol: p}
}

// Names go to the upstreams of the longest domain that contains them.
func TestRoutes(t *testing.T) {
	var datagrams atomic.Int32
	corp := newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.10"))
	lab := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		if !q.tcp {
			datagrams.Add(1)
		}
		answers(t, "192.0.2.20")(q)
	})
	other := newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.30"))
	c := newTester(t, forward.Options{Routes: []forward.Route{
		route(corp, forward.UDP, "corp.example", "10.in-addr.arpa"), route(lab, forward.TCP, "lab.corp.example"),
	}}, newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.1")))
	want := func(name, addr string) {
		t.Helper()
		if got := firstA(c.query(clientKind{}, name, mdns.TypeA)); got != addr {
			t.Errorf("%s is answered by %q, want %s", name, got, addr)
		}
	}
	want("corp.example", "192.0.2.10")
	want("WWW.Corp.Example", "192.0.2.10")
	want("a.b.lab.corp.example", "192.0.2.20")
	want("lab.corp.example", "192.0.2.20")
	want("xlab.corp.example", "192.0.2.10")
	want("xcorp.example", "192.0.2.1")
	want("example", "192.0.2.1")
	want("3.2.1.10.in-addr.arpa", "192.0.2.10")
	if datagrams.Load() > 0 {
		t.Error("a server with the protocol tcp is queried over UDP")
	}
	stats := c.f.Stats().Servers
	if len(stats) != 3 || stats[0].Domains != nil || stats[0].Protocol != forward.UDP || stats[0].Queries != 2 ||
		stats[1].Domains[0] != "corp.example" || stats[1].Queries != 4 || stats[2].Protocol != forward.TCP ||
		stats[2].Queries != 2 {
		t.Errorf("%+v", stats)
	}
	if err := c.f.Configure([]forward.Route{route(other, forward.UDP, ".")}, false); err != nil {
		t.Fatal(err)
	}
	want("www.example.org", "192.0.2.30")
	want("corp.example", "192.0.2.30") // not from the cache
}

// Invalid routes change nothing.
func TestInvalidRoutes(t *testing.T) {
	s := newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.1"))
	c := newTester(t, forward.Options{Own: func(a netip.AddrPort) bool { return a.Port() == 15053 }}, s)
	for want, list := range map[string][]forward.Route{
		"domains: has 0":     {route(s, forward.UDP)},
		"servers: has no":    {{Domains: []string{"a.example"}}},
		"is not the address": {{Domains: []string{"a.example"}, Servers: make([]netip.AddrPort, 1)}},
		"of this process": {{Domains: []string{"a.example"},
			Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:15053")}}},
		"is not known":   {route(s, "quic", "a.example")},
		"listed twice":   {route(s, forward.UDP, "a.example"), route(s, forward.TCP, "A.example.")},
		"no effect":      {{Domains: []string{"a.example"}, Servers: []netip.AddrPort{s.addr}, ServerName: "b.example"}},
		"at most 64 are": make([]forward.Route, 65),
	} {
		if err := c.f.Configure(list, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if n := len(c.f.Stats().Servers); n != 1 {
		t.Errorf("%d servers", n)
	}
}

// A new config drops cached answers of other servers and moves questions in flight. The same
// config changes nothing.
func TestRoutesChange(t *testing.T) {
	h := newHeld()
	silent := newScripted(t, "127.0.0.1:0", h.do)
	next := newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.2"))
	c := newTester(t, forward.Options{Routes: []forward.Route{route(silent, forward.UDP, "corp.example")}},
		newScripted(t, "127.0.0.1:0", answers(t, "192.0.2.1")))
	c.query(clientKind{}, "www.example.org", mdns.TypeA)
	c.ask(clientKind{}, "a.corp.example", mdns.TypeA)
	first := h.next(t)
	if err := c.f.Configure([]forward.Route{route(silent, forward.UDP, "corp.example")}, false); err != nil {
		t.Fatal(err)
	}
	c.hit(clientKind{}, "www.example.org", mdns.TypeA)
	if err := c.f.Configure([]forward.Route{route(next, forward.UDP, "corp.example")}, false); err != nil {
		t.Fatal(err)
	}
	answers(t, "192.0.2.66")(first)
	if got := firstA(c.answer()); got != "192.0.2.2" {
		t.Errorf("the question in flight is answered by %q", got)
	}
	if got := firstA(c.hit(clientKind{}, "a.corp.example", mdns.TypeA)); got != "192.0.2.2" {
		t.Errorf("the cache has %q", got)
	}
	if st := c.f.Stats().Servers[1]; st.Addr != next.addr || st.Queries != 1 {
		t.Errorf("%+v", st)
	}
	if err := c.f.Configure(nil, false); err != nil {
		t.Fatal(err)
	}
	if got := firstA(c.query(clientKind{}, "a.corp.example", mdns.TypeA)); got != "192.0.2.1" {
		t.Errorf("without a route, the name is answered by %q", got)
	}
}

// The AD bit is forwarded if the config trusts the servers, and a change takes effect at once.
func TestTrustADOfConfig(t *testing.T) {
	signed := func(q *upstreamQuery) {
		m := new(mdns.Msg).SetReply(q.Msg)
		m.AuthenticatedData = true
		m.Answer = records(t, q.Question[0].Name+" 60 IN A 192.0.2.1")
		q.send(packed(t, m))
	}
	routes := []forward.Route{route(newScripted(t, "127.0.0.1:0", signed), forward.UDP, "corp.example")}
	c := newTester(t, forward.Options{Routes: routes}, newScripted(t, "127.0.0.1:0", signed))
	for _, trust := range []bool{false, true, false} {
		if err := c.f.Configure(routes, trust); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"www.example.org", "www.corp.example", "www.example.org", "www.corp.example"} {
			if m := c.query(clientKind{ad: true}, name, mdns.TypeA); m.AuthenticatedData != trust {
				t.Errorf("trust %v, %s: AD %v", trust, name, m.AuthenticatedData)
			}
		}
	}
}

// authority is a CA of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = a.issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(t testing.TB, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject, c.NotBefore = big.NewInt(1), pkix.Name{CommonName: "test"}, time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, by := c, key
	if a.cert != nil {
		parent, by = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, key
}

// config returns the TLS config of a server.
func (a *authority) config(t testing.TB, c *x509.Certificate) *tls.Config {
	cert, key := a.issue(t, c)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
}

// Questions over TLS share few connections, which are reused, and are padded.
func TestTLSUpstream(t *testing.T) {
	ca := newAuthority(t)
	for _, name := range []string{"dns.corp.example", ""} {
		h := newHeld()
		cert := &x509.Certificate{DNSNames: []string{"dns.corp.example"}, IPAddresses: []net.IP{{127, 0, 0, 1}}}
		s := newScriptedTLS(t, "127.0.0.1:0", ca.config(t, cert), h.do)
		r := route(s, forward.TLS, ".")
		r.ServerName = name
		c := newTester(t, forward.Options{RootCAs: ca.pool, Routes: []forward.Route{r}},
			newScripted(t, "127.0.0.1:0", func(*upstreamQuery) { t.Error("a query is sent without TLS") }))
		const n = 200
		for range 2 {
			for i := range n {
				c.write(false, clientKind{id: uint16(i + 1)}.message(t, fmt.Sprintf("n%d.example.org", i+1), mdns.TypeA))
			}
			for range n {
				q := h.next(t)
				if !q.tcp || len(q.raw)%128 != 0 {
					t.Fatalf("a query of %d bytes, TCP %v", len(q.raw), q.tcp)
				}
				var i int
				_, _ = fmt.Sscanf(q.name(), "n%d.", &i)
				q.Reply(t, 0, []string{q.name() + fmt.Sprintf(" 0 IN A 192.0.2.%d", i)})
			}
			for range n {
				m := c.answer()
				if want := fmt.Sprintf("192.0.2.%d", m.Id); firstA(m) != want {
					t.Fatalf("question %d gets %v", m.Id, m)
				}
			}
		}
		if got := s.connections(); got > forward.MaxStreams {
			t.Errorf("%d connections", got)
		}
		c.stop()
	}
}

// A server that cannot prove its identity gets no query, also not without TLS, and the status says
// why.
func TestTLSVerification(t *testing.T) {
	ca, unknown := newAuthority(t), newAuthority(t)
	named := func(name string) *x509.Certificate { return &x509.Certificate{DNSNames: []string{name}} }
	old := named("dns.corp.example")
	old.NotAfter = time.Now().Add(-time.Minute)
	for want, config := range map[string]*tls.Config{
		"the certificate is not for dns.corp.example": ca.config(t, named("dns.corp.test")),
		"the certificate is not from a known":         unknown.config(t, named("dns.corp.example")),
		"the certificate has expired":                 ca.config(t, old),
		"the TLS handshake failed":                    {MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	} {
		t.Run(want, func(t *testing.T) {
			s := newScriptedTLS(t, "127.0.0.1:0", config, func(*upstreamQuery) { t.Error("the server gets a query") })
			r := route(s, forward.TLS, "corp.example")
			r.ServerName = "dns.corp.example"
			c := newTester(t, forward.Options{RootCAs: ca.pool, Routes: []forward.Route{r}},
				newScripted(t, "127.0.0.1:0", func(*upstreamQuery) { t.Error("another server gets the query") }))
			c.ask(clientKind{}, "www.corp.example", mdns.TypeA)
			c.until("an answer", func() bool {
				c.clock.advance(time.Millisecond)
				c.f.RunDue()
				return len(c.replies) > 0
			})
			if m := c.answer(); m.Rcode != mdns.RcodeServerFailure {
				t.Errorf("%v", m)
			}
			if st := c.f.Stats().Servers[1]; !strings.HasPrefix(st.Problem, want) || st.Errors == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
