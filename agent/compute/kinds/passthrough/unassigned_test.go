package passthrough_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestUnassignedVirtualAddresses checks that connections to virtual addresses that nothing has are
// closed by a cluster without endpoints, and that names and narrower rules still work there.
func TestUnassignedVirtualAddresses(t *testing.T) {
	anywhere := matched("p", "tcp 0.0.0.0/0", "tls a.com:443", "tls *.b.com:443", "tcp ::/0", "tcp 240.0.0.7:22")
	narrow := matched("p", "tls a.com:443", "tcp 10.0.0.1:22")
	unpinned := matched("p", "tls a.com", "http b.com:80", "http c.com")
	for _, c := range []struct {
		name, docs string
		conn       conn
		cluster    string // without the common prefix; "" if it is closed
		at         string
	}{
		{"plain", anywhere, to("240.0.0.9:22", sendsBytes), "", "cluster"},
		{"the server sends first", anywhere, to("241.9.9.9:22", sendsNothing), "", "cluster"},
		{"the server sends first on an inspected port", anywhere, to("243.0.0.1:443", sendsNothing), "", "cluster"},
		{"TLS with another name", anywhere, to("240.0.0.9:443", sendsTLS, "z.com"), "", "cluster"},
		{"TLS with a name that the proxy resolves", anywhere, to("240.0.0.9:443", sendsTLS, "a.com"), "tls_a.com_443", ""},
		{"TLS with a name that it does not resolve", anywhere, to("240.0.0.9:443", sendsTLS, "x.b.com"), "", "cluster"},
		{"a request", anywhere, to("240.0.0.9:80", sendsHTTP1, "z.com"), "", "cluster"},
		{"a rule for one address", anywhere, to("240.0.0.7:22", sendsBytes), "tcp_240.0.0.7_22", ""},
		{"the address after the ranges", anywhere, to("244.0.0.1:22", sendsBytes), "tcp_0.0.0.0/0_*", ""},
		{"IPv6", anywhere, to("[fd00:fd02::9]:443", sendsTLS, "z.com"), "", "cluster"},
		{"IPv6 after the ranges", anywhere, to("[fd00:fd04::9]:443", sendsTLS, "z.com"), "tcp_::/0_*", ""},
		{"no rule leads there", narrow, to("240.0.0.9:22", sendsBytes), "", "destination-ip"},
		{"a request to a host that the proxy resolves", unpinned, to("240.0.0.9:80", sendsHTTP1, "b.com"),
			"http_b.com_80", ""},
		{"a request that the HTTP inspector does not recognize", unpinned,
			conn{to: netip.MustParseAddrPort("240.0.0.9:80"), sends: sendsHTTP1, name: "b.com", missed: true},
			"http_b.com_80", ""},
		{"another protocol on a port of requests", unpinned, to("240.0.0.9:80", sendsBytes), "", "filter"},
		{"a request to a host that it does not resolve", unpinned, to("240.0.0.9:8080", sendsHTTP1, "c.com"), "", "cluster"},
		{"TLS on all ports", unpinned, to("240.0.0.9:5432", sendsTLS, "a.com"), "", "cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEnvoy(t, base+c.docs)
			v := e.decide(c.conn)
			if !c.conn.missed { // package match has no such inspector
				e.agree(t, c.conn)
			}
			if got := strings.TrimPrefix(v.cluster, "meshpassthrough_"); got != c.cluster || v.closedAt != c.at {
				t.Errorf("%s: %+v", c.conn, v)
			}
		})
	}
}

// TestVirtualListener checks the listener that receives only connections to virtual addresses: it
// inspects only ports of domains with virtual addresses and other rules than tcp.
func TestVirtualListener(t *testing.T) {
	own := func(port string) string {
		return strings.Replace(base, "name: d\n", "name: d\nlabels: {nearside.io/redirect-port-virtual: \""+port+"\"}\n", 1)
	}
	if own("1") == base {
		t.Fatal("the base has another form")
	}
	rules := matched("p", "tcp 0.0.0.0/0", "tls a.com:443", "http b.com:80")
	e, warnings := newEnvoy(t, own("15002")+database+rules)
	l := e.virtual[false]
	if l == nil || len(l.message.ListenerFilters) > 0 || l.message.Address.GetSocketAddress().GetPortValue() != 15002 {
		t.Fatalf("unexpected listener %v", l)
	}
	e.listeners = e.virtual
	for _, c := range []conn{to("240.0.0.9:22", sendsBytes), to("240.0.0.9:80", sendsNothing),
		to("240.0.0.9:443", sendsTLS, "a.com")} {
		if v := e.decide(c); v.closedAt != "cluster" {
			t.Errorf("%s: %+v", c, v)
		}
	}
	for _, w := range warnings {
		if strings.Contains(w, "TCP service") {
			t.Error(w)
		}
	}
	_, warnings = newEnvoy(t, base+database+rules)
	if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "shares port 80 with") }) {
		t.Errorf("no warning about port 80: %q", warnings)
	}
	_, warnings = newEnvoy(t, base+database+matched("p", "http b.com:80"))
	if !slices.ContainsFunc(warnings, func(w string) bool {
		return strings.Contains(w, "(http b.com, port 80): shares port 80 with the TCP service db")
	}) {
		t.Errorf("no warning about the service: %q", warnings)
	}
}
