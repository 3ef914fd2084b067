package passthrough_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

func to(addr, sends string, name ...string) conn {
	return conn{to: netip.MustParseAddrPort(addr), sends: sends, name: strings.Join(name, "")}
}

// TestVectors evaluates single connections.
func TestVectors(t *testing.T) {
	a := matched("p", "tls api.example.com:443", "tcp 10.0.0.1:443")
	b := matched("p", "tls *.example.com:443", "tls api.example.com:443", "tls *.eu.example.com:443")
	c := matched("p", "http www.google.com:80", "http 142.250.0.0/15:80")
	d := matched("p", "tcp 10.0.0.1", "tls a.com:443")
	e := matched("p", "tcp 10.0.0.0/8", "tls 10.1.0.0/16")
	f := matched("p", "http *.example.com:80", "http api.example.com:80", "http any.com")
	g := matched("p", "mysql 10.0.0.1:3306", "tcp 10.0.0.2:3306", "tls 10.0.0.3", "http a.com", "tls a.com:443")
	v6 := matched("p", "tls 2001:db8::/32", "tcp [2001:db8::1]:443", "http a.com:80")
	const prefix = "meshpassthrough_"
	for _, v := range []struct {
		name, docs string
		conn       conn
		want       verdict
	}{
		{"TLS by its name", a, to("10.0.0.9:443", sendsTLS, "api.example.com"),
			verdict{chain: "tls_api.example.com_443", cluster: "tls_api.example.com_443"}},
		{"TLS to an address of another rule", a, to("10.0.0.1:443", sendsTLS, "api.example.com"),
			verdict{chain: "tls_api.example.com_443_closure", cluster: "tls_api.example.com_443"}},
		{"plain by its address", a, to("10.0.0.1:443", sendsBytes),
			verdict{chain: "tcp_10.0.0.1_443", cluster: "tcp_10.0.0.1_443"}},
		{"plain to another address", a, to("10.0.0.9:443", sendsBytes), verdict{closedAt: "server-name"}},
		{"TLS without a name", a, to("10.0.0.9:443", sendsTLS), verdict{closedAt: "server-name"}},
		{"another name", a, to("10.0.0.9:443", sendsTLS, "example.com"), verdict{closedAt: "server-name"}},
		{"a name in capitals", a, to("10.0.0.9:443", sendsTLS, "API.example.com"),
			verdict{chain: "tls_api.example.com_443", cluster: "tls_api.example.com_443"}},
		{"another port", a, to("10.0.0.9:444", sendsTLS, "api.example.com"), verdict{closedAt: "destination-port"}},
		{"the server speaks first", a, to("10.0.0.1:443", sendsNothing),
			verdict{chain: "tcp_10.0.0.1_443", cluster: "tcp_10.0.0.1_443"}},
		{"the server speaks first where no match is plain", b, to("10.0.0.1:443", sendsNothing),
			verdict{closedAt: "listener-filters"}},
		{"the longest wildcard", b, to("1.1.1.1:443", sendsTLS, "a.eu.example.com"),
			verdict{chain: "tls_*.eu.example.com_443", cluster: "tls_*.eu.example.com_443"}},
		{"two names below a wildcard", b, to("1.1.1.1:443", sendsTLS, "x.y.example.com"),
			verdict{chain: "tls_*.example.com_443", cluster: "tls_*.example.com_443"}},
		{"a name before wildcards", b, to("1.1.1.1:443", sendsTLS, "api.example.com"),
			verdict{chain: "tls_api.example.com_443", cluster: "tls_api.example.com_443"}},
		{"not the name of the wildcard itself", b, to("1.1.1.1:443", sendsTLS, "example.com"),
			verdict{closedAt: "server-name"}},
		{"a network before the Host", c, to("142.250.1.1:80", sendsHTTP1, "www.google.com"),
			verdict{chain: "http_142.250.0.0/15_80", cluster: "http_142.250.0.0/15_80"}},
		{"a Host with its port", c, to("8.8.8.8:80", sendsHTTP1, "www.google.com:80"),
			verdict{chain: "http_80", cluster: "http_www.google.com_80"}},
		{"another Host", c, to("8.8.8.8:80", sendsHTTP1, "evil.com"), verdict{chain: "http_80", refused: true}},
		{"no HTTP on its port", c, to("8.8.8.8:80", sendsBytes), verdict{chain: "http_80_missed", closedAt: "filter"}},
		{"HTTP/1.0", c, to("8.8.8.8:80", sendsHTTP10, "www.google.com"),
			verdict{chain: "http_80", cluster: "http_www.google.com_80"}},
		{"TLS on the port of HTTP", c, to("8.8.8.8:80", sendsTLS, "www.google.com"), verdict{closedAt: "transport-protocol"}},
		{"all ports, on one that another rule names", d, to("10.0.0.1:443", sendsBytes),
			verdict{chain: "tcp_10.0.0.1_443", cluster: "tcp_10.0.0.1_*"}},
		{"all ports, on others", d, to("10.0.0.1:22", sendsBytes),
			verdict{chain: "tcp_10.0.0.1_*", cluster: "tcp_10.0.0.1_*"}},
		{"TLS where all ports are for plain", d, to("10.0.0.1:443", sendsTLS, "a.com"),
			verdict{chain: "tls_a.com_443_closure", cluster: "tls_a.com_443"}},
		{"plain in a narrower network of TLS",
			e, to("10.1.0.1:1", sendsBytes), verdict{chain: "tcp_10.0.0.0/8_*_closure", cluster: "tcp_10.0.0.0/8_*"}},
		{"TLS in the network of plain", e, to("10.2.0.1:1", sendsTLS, "a.com"),
			verdict{chain: "tcp_10.0.0.0/8_*_tls", cluster: "tcp_10.0.0.0/8_*"}},
		{"a Host before a wildcard", f, to("1.1.1.1:80", sendsHTTP1, "api.example.com"),
			verdict{chain: "http_80", cluster: "http_api.example.com_80"}},
		{"a Host below a wildcard, with its port", f, to("1.1.1.1:80", sendsHTTP2, "b.example.com:80"),
			verdict{chain: "http_80", cluster: "http_*.example.com_80"}},
		{"a Host on all ports, on one that others name", f, to("1.1.1.1:80", sendsHTTP1, "any.com:80"),
			verdict{chain: "http_80", cluster: "http_any.com_*"}},
		{"a Host on all ports, on others", f, to("1.1.1.1:8080", sendsHTTP1, "any.com:8080"),
			verdict{chain: "http_*", cluster: "http_any.com_*"}},
		{"a Host of one port on another", f, to("1.1.1.1:8080", sendsHTTP1, "api.example.com"),
			verdict{chain: "http_*", refused: true}},
		{"a server that speaks first", g, to("10.0.0.1:3306", sendsNothing),
			verdict{chain: "tcp_10.0.0.1_3306", cluster: "tcp_10.0.0.1_3306"}},
		{"TLS to a server that speaks first", g, to("10.0.0.1:3306", sendsTLS),
			verdict{chain: "tcp_10.0.0.1_3306", cluster: "tcp_10.0.0.1_3306"}},
		{"plain beside it", g, to("10.0.0.2:3306", sendsBytes),
			verdict{chain: "tcp_10.0.0.2_3306", cluster: "tcp_10.0.0.2_3306"}},
		{"TLS on all ports beside it", g, to("10.0.0.3:3306", sendsTLS), verdict{closedAt: "destination-ip"}},
		{"TLS on all ports on another", g, to("10.0.0.3:3307", sendsTLS),
			verdict{chain: "tls_10.0.0.3_*", cluster: "tls_10.0.0.3_*"}},
		{"the server speaks first on another port", g, to("10.0.0.1:443", sendsNothing),
			verdict{closedAt: "listener-filters"}},
		{"requests where all ports are for TLS", g, to("10.0.0.3:80", sendsHTTP1, "a.com"),
			verdict{chain: "http_*_closure", cluster: "http_a.com_*"}},
		{"IPv6: a network on all ports, beside a narrower rule", v6, to("[2001:db8::1]:443", sendsTLS, "b.com"),
			verdict{chain: "tls_2001:db8::/32_443_closure", cluster: "tls_2001:db8::/32_*"}},
		{"IPv6: domains are of both families", v6, to("[2001:db9::1]:80", sendsHTTP1, "a.com"),
			verdict{chain: "http_80", cluster: "http_a.com_80"}},
		{"IPv6: and beside networks of TLS", v6, to("[2001:db8::5]:80", sendsHTTP1, "a.com"),
			verdict{chain: "http_80_closure", cluster: "http_a.com_80"}},
		{"IPv6 networks do not affect IPv4", v6, to("10.0.0.1:443", sendsTLS, "b.com"),
			verdict{closedAt: "destination-port"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			e, _ := newEnvoy(t, base+v.docs)
			if v.want.chain != "" {
				v.want.chain = prefix + v.want.chain
			}
			if v.want.cluster != "" {
				v.want.cluster = prefix + v.want.cluster
			}
			if d := cmp.Diff(v.want, e.agree(t, v.conn), cmp.AllowUnexported(verdict{})); d != "" {
				t.Errorf("%s (-want +got):\n%s", v.conn, d)
			}
		})
	}
}

// TestKnownDefects contains policies that Kuma accepts although Envoy rejects the listener or
// closes permitted connections (N and V, as numbered in the design). Here they are rejected, or
// they work as written.
func TestKnownDefects(t *testing.T) {
	for _, c := range []struct {
		name string
		docs string
		// fault is a substring of the fault of rejected documents. Otherwise chains are the IPv4
		// chains without the common prefix, and warning is a substring of a warning.
		fault   string
		chains  []string
		warning string
		allowed []conn
		closed  []conn
	}{
		{name: "N1 two protocols of requests on one port and on all", docs: matched("p", "grpc a.com", "http b.com:80"),
			fault: "appendMatch[1].port: http b.com, port 80 contradicts appendMatch[0] (grpc a.com, all ports)"},
		{name: "N1 in the other order", docs: matched("p", "http b.com:80", "grpc a.com"),
			fault: "appendMatch[1].port: grpc a.com, all ports contradicts appendMatch[0] (http b.com, port 80)"},
		{
			name: "N1 in two policies", docs: matched("a", "grpc a.com") + matched("b", "http b.com:80"),
			chains: []string{"http_80", "grpc_*"},
			allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "b.com"), to("1.1.1.1:81", sendsHTTP2, "a.com"),
				to("1.1.1.1:80", sendsHTTP2, "a.com")},
		},
		{
			name: "N1 for one domain in two policies", docs: matched("a", "grpc a.com") + matched("b", "http a.com:80"),
			chains: []string{"http_80", "grpc_*"}, warning: `a: appendMatch[0] (grpc a.com, all ports): overridden on port 80 by MeshPassthrough/default/b appendMatch[0] (http a.com, port 80)`,
			allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "a.com"), to("1.1.1.1:81", sendsHTTP2, "a.com")},
		},
		{
			name: "N2 an address as IP and CIDR", docs: matched("p", "tcp 10.0.0.1:80", "tcp 10.0.0.1/32:80"),
			chains: []string{"tcp_10.0.0.1_80"}, allowed: []conn{to("10.0.0.1:80", sendsBytes)},
		},
		{
			name:   "N3 networks that are one when they are masked",
			docs:   matched("p", "tls 192.168.0.1/24:80", "tls 192.168.0.2/24:80"),
			chains: []string{"tls_192.168.0.1/24_80"}, allowed: []conn{to("192.168.0.77:80", sendsTLS)},
		},
		{
			name:   "N4 a domain in capitals",
			docs:   matched("p", "tls Example.com:443", "tls example.com:443", "tls example.com.:443"),
			chains: []string{"tls_example.com_443"}, allowed: []conn{to("1.1.1.1:443", sendsTLS, "example.com")},
		},
		{
			name: "N5 tcp and mysql", docs: matched("p", "tcp 10.0.0.1:3306", "mysql 10.0.0.1:3306"),
			chains:  []string{"tcp_10.0.0.1_3306"},
			allowed: []conn{to("10.0.0.1:3306", sendsNothing), to("10.0.0.1:3306", sendsBytes)},
		},
		{
			name:   "N6 two ways to write IPv6",
			docs:   matched("a", "tls [2001:db8::1]:443") + matched("b", "tls 2001:db8:0:0::1/128:443", "tls a.com:443"),
			chains: []string{"tls_a.com_443"}, allowed: []conn{to("[2001:db8::1]:443", sendsTLS)},
		},
		{
			name:   "N7 the order of entries",
			docs:   matched("p", "tcp 10.0.0.1:80", "http a.com:80") + matched("q", "http b.com:80", "tcp 10.0.0.2:80"),
			chains: []string{"tcp_10.0.0.1_80", "tcp_10.0.0.1_80_tls", "tcp_10.0.0.2_80", "tcp_10.0.0.2_80_tls", "http_80"},
			allowed: []conn{to("10.0.0.1:80", sendsBytes), to("10.0.0.2:80", sendsBytes), to("1.1.1.1:80", sendsHTTP1, "a.com"),
				to("1.1.1.1:80", sendsHTTP1, "b.com")},
		},
		{name: "N7 where it is refused", docs: matched("p", "tcp 10.0.0.1:80", "http a.com:80", "http2 10.0.0.3:80"),
			fault: "appendMatch[2].port"},
		{
			name: "N9 any name", docs: matched("p", "tls *:443"), chains: []string{"tls_*_443"},
			warning: "permits every destination of protocol tls",
			allowed: []conn{to("1.2.3.4:443", sendsTLS), to("1.2.3.4:443", sendsTLS, "x.org")},
		},
		{
			name:   "N10 any address beside chains without a range",
			docs:   matched("p", "tls 0.0.0.0/0:443", "tls a.com:443", "http 0.0.0.0/0:80", "http a.com:80"),
			chains: []string{"tls_0.0.0.0/0_443", "tls_a.com_443", "http_80"},
			allowed: []conn{to("1.2.3.4:443", sendsTLS, "x.org"), to("1.2.3.4:443", sendsTLS, "a.com"),
				to("1.2.3.4:80", sendsHTTP1, "x.org"), to("1.2.3.4:80", sendsHTTP1, "a.com")},
		},
		{
			name:  "N11 in one policy",
			docs:  matched("p", "tls 10.0.0.2:3306", "mysql 10.0.0.1:3306"),
			fault: "appendMatch[0].protocol: tls 10.0.0.2, port 3306 is shadowed by appendMatch[1] (mysql 10.0.0.1, port 3306)",
		},
		{
			name:   "N11 in two policies",
			docs:   matched("a", "mysql 10.0.0.1:3306") + matched("b", "tls 10.0.0.2:3306", "tls 10.0.0.2:443"),
			chains: []string{"tls_10.0.0.2_443", "tcp_10.0.0.1_3306"}, warning: "b: appendMatch[0] (tls 10.0.0.2, " +
				"port 3306): shadowed for IPv4 by MeshPassthrough/default/a appendMatch[0] (mysql 10.0.0.1, port 3306)",
			allowed: []conn{to("10.0.0.1:3306", sendsNothing), to("10.0.0.2:443", sendsTLS)},
		},
		{
			name: "N11 by all ports", docs: matched("p", "mysql 10.0.0.1:3306", "tls 10.0.0.2"),
			chains:  []string{"tls_10.0.0.2_*", "tcp_10.0.0.1_3306"},
			warning: "p: appendMatch[1] (tls 10.0.0.2, all ports): shadowed for IPv4 on port 3306",
			allowed: []conn{to("10.0.0.1:3306", sendsNothing), to("10.0.0.2:443", sendsTLS)},
		},
		{
			name: "V1 a name that resolves to a plain address", docs: matched("p", "tls a.com:443", "tcp 10.0.0.1:443"),
			chains:  []string{"tls_a.com_443", "tls_a.com_443_closure", "tcp_10.0.0.1_443", "tcp_10.0.0.1_443_tls"},
			allowed: []conn{to("10.0.0.1:443", sendsTLS, "a.com"), to("10.0.0.1:443", sendsBytes)},
		},
		{
			name: "V2 a match for all ports beside one of a port",
			docs: matched("p", "tcp 10.0.0.1", "tls a.com:443", "tls b.com"),
			chains: []string{"tls_a.com_443", "tls_a.com_443_closure", "tls_b.com_443", "tls_b.com_443_closure", "tls_b.com_*",
				"tls_b.com_*_closure", "tcp_10.0.0.1_443", "tcp_10.0.0.1_443_tls", "tcp_10.0.0.1_*", "tcp_10.0.0.1_*_tls"},
			allowed: []conn{to("10.0.0.1:443", sendsBytes), to("10.0.0.1:22", sendsBytes), to("10.0.0.1:443", sendsTLS, "a.com"),
				to("10.0.0.1:22", sendsTLS, "b.com"), to("1.1.1.1:443", sendsTLS, "b.com")},
			closed: []conn{to("10.0.0.2:22", sendsTLS, "a.com"), to("1.1.1.1:22", sendsBytes)},
		},
		{
			name: "V3 a Host and a network", docs: matched("p", "http a.com:80", "http 10.0.0.0/8:80"),
			chains: []string{"http_10.0.0.0/8_80", "http_80"},
			allowed: []conn{to("10.0.0.1:80", sendsHTTP1, "a.com"), to("10.0.0.1:80", sendsHTTP1, "b.com"),
				to("1.1.1.1:80", sendsHTTP1, "a.com")},
		},
		{
			name: "V4 plain inside TLS", docs: matched("p", "tcp 10.0.0.0/8:80", "tls 10.1.0.0/16:80"),
			chains:  []string{"tls_10.1.0.0/16_80", "tcp_10.0.0.0/8_80", "tcp_10.0.0.0/8_80_tls", "tcp_10.0.0.0/8_80_closure"},
			allowed: []conn{to("10.1.0.1:80", sendsBytes), to("10.1.0.1:80", sendsTLS), to("10.2.0.1:80", sendsHTTP1, "a.com")},
		},
		{
			name:   "V5 servers that speak first get no requests, and those of HTTP/1.0 do",
			docs:   matched("p", "http a.com:80", "http 10.0.0.0/8:80"),
			chains: []string{"http_10.0.0.0/8_80", "http_80"},
			allowed: []conn{to("10.0.0.1:80", sendsHTTP1, "a.com"), to("10.0.0.1:80", sendsHTTP2, "b.com"),
				to("10.0.0.1:80", sendsHTTP10, "a.com"), to("1.1.1.1:80", sendsHTTP10, "a.com")},
			closed: []conn{to("10.0.0.1:80", sendsNothing), to("10.0.0.1:80", sendsBytes)},
		},
		{
			name:   "V6 a Host that nobody named is refused, and other bytes on its port closed",
			docs:   matched("p", "http a.com:80", "http2 b.com:81", "grpc *.c.com:82"),
			chains: []string{"http_80", "http2_81", "grpc_82"},
			allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "A.com"), to("1.1.1.1:80", sendsHTTP1, "a.com:80"),
				to("1.1.1.1:81", sendsHTTP2, "b.com"), to("1.1.1.1:82", sendsHTTP2, "x.c.com:82")},
			closed: []conn{to("1.1.1.1:80", sendsHTTP1, "b.com"), to("1.1.1.1:80", sendsHTTP1, "a.com:81"),
				to("1.1.1.1:82", sendsHTTP2, "c.com"), to("1.1.1.1:80", sendsBytes), to("1.1.1.1:80", sendsTLS, "a.com")},
		},
		{
			// With an encrypted ClientHello (ECH), only the outer server name is visible.
			name:   "V7 TLS without a name, or with the name of another in front",
			docs:   matched("p", "tls a.com:443", "tls *.b.com:443", "tls 10.0.0.1:443"),
			chains: []string{"tls_10.0.0.1_443", "tls_a.com_443", "tls_*.b.com_443"},
			allowed: []conn{to("10.0.0.1:443", sendsTLS), to("10.0.0.1:443", sendsTLS, "cloudflare-ech.com"),
				to("1.1.1.1:443", sendsTLS, "a.com")},
			closed: []conn{to("1.1.1.1:443", sendsTLS), to("1.1.1.1:443", sendsTLS, "cloudflare-ech.com")},
		},
		{
			name: "V8 TLS inside plain inside TLS",
			docs: matched("p", "tls 10.0.0.0/8", "tcp 10.1.0.0/16", "tls 10.1.1.0/24:80"),
			chains: []string{
				"tls_10.1.1.0/24_80", "tls_10.0.0.0/8_80", "tls_10.0.0.0/8_80_closure", "tls_10.0.0.0/8_*",
				"tls_10.0.0.0/8_*_closure", "tcp_10.1.0.0/16_80", "tcp_10.1.0.0/16_80_closure", "tcp_10.1.0.0/16_*",
			},
			allowed: []conn{to("10.1.1.1:80", sendsBytes), to("10.1.1.1:80", sendsTLS), to("10.1.2.1:80", sendsTLS),
				to("10.1.1.1:81", sendsTLS), to("10.1.1.1:81", sendsBytes)},
		},
		{
			name: "a name that is no name", docs: matched("p", "tls *.example.*:443"), chains: []string{"tls_*.example.*_443"},
			warning: "never matches",
		},
		{
			name: "two wildcards of all requests", docs: matched("p", "http *:80", "http a.com:80"), chains: []string{"http_80"},
			warning: "permits every destination of protocol http",
			allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "b.com"), to("1.1.1.1:80", sendsHTTP1, "a.com")},
		},
		{
			name: "requests inside all that is not TLS", docs: matched("p", "tcp 0.0.0.0/0:80", "http a.com:80"),
			chains:  []string{"tcp_0.0.0.0/0_80", "tcp_0.0.0.0/0_80_tls"},
			warning: "no effect because of", allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "a.com"),
				to("1.1.1.1:80", sendsHTTP1, "b.com"), to("1.1.1.1:80", sendsBytes), to("[2001:db8::1]:80", sendsHTTP1, "a.com")},
		},
		{
			name: "IPv4 written as IPv6", docs: matched("p", "tcp [::ffff:10.0.0.1]:80", "tls ::ffff:10.1.0.0/112:80"),
			chains:  []string{"tls_::ffff:10.1.0.0/112_80", "tcp_::ffff:10.0.0.1_80", "tcp_::ffff:10.0.0.1_80_tls"},
			allowed: []conn{to("10.0.0.1:80", sendsBytes), to("10.1.0.9:80", sendsTLS)},
		},
		{
			name: "the name of the refusal as a domain", docs: matched("p", "http no_match:80"), chains: []string{"http_80"},
			allowed: []conn{to("1.1.1.1:80", sendsHTTP1, "no_match")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.fault != "" {
				_, faults := kinds.Registry().Decode("", []byte(base+c.docs))
				if !strings.Contains(faults.Error(), c.fault) {
					t.Errorf("want a fault with %q, got %v", c.fault, faults)
				}
				return
			}
			e, warnings := newEnvoy(t, base+c.docs)
			var got []string
			for _, ch := range e.listeners[false].message.FilterChains {
				if !strings.Contains(ch.Name, "virtual") && !strings.HasSuffix(ch.Name, "_missed") {
					got = append(got, strings.TrimPrefix(ch.Name, "meshpassthrough_"))
				}
			}
			if d := cmp.Diff(c.chains, got); d != "" {
				t.Errorf("chains (-want +got):\n%s", d)
			}
			if c.warning != "" && !strings.Contains(strings.Join(warnings, "\n"), c.warning) {
				t.Errorf("no warning contains %q: %q", c.warning, warnings)
			}
			for _, conn := range c.allowed {
				if v := e.agree(t, conn); !v.allowed() {
					t.Errorf("%s: %+v", conn, v)
				}
			}
			for _, conn := range c.closed {
				if v := e.agree(t, conn); v.allowed() {
					t.Errorf("%s is permitted: %+v", conn, v)
				}
			}
		})
	}
}
