package passthrough_test

import (
	"strings"
	"testing"
)

// TestOddConnections contains further connections: unusual names, addresses, and ports of clients,
// and matches in unusual notations.
func TestOddConnections(t *testing.T) {
	names := matched("p", "tls a.com:443", "tls *.b.com:443", "tls XN--Bcher-kva.example.:443",
		"tls _srv.a-1.c:443", "tls localhost:443", "tls *.example.*:443")
	hosts := matched("p", "http a.com", "http *.b.com:80", "http xn--bcher-kva.example:80",
		"http 10.0.0.1:80", "http [2001:db8::1]:80")
	nets := matched("p", "tcp 10.1.2.3/8:7", "tcp 0.0.0.0/1:8", "tcp 192.0.2.255/32:9", "tcp 2001:DB8:0:0::7/64:7",
		"tcp ::/0:8", "tcp ::ffff:10.9.8.7/120:10", "tcp 10.0.0.1:1", "tcp 10.0.0.1:65535")
	mixed := matched("old", "tls *:443", "tcp 10.0.0.0/24:443") +
		matched("new", "tls a.com:443", "tls 10.0.0.0/16:443", "tcp 10.0.0.7")
	const up, closed = "", "closed"
	for _, v := range []struct {
		name, docs string
		conn       conn
		want       string // cluster without the common prefix
		at         string // level at which it is closed
	}{
		{"a dot at the end of a name", names, to("1.1.1.1:443", sendsTLS, "a.com."), closed, "server-name"},
		{"a dot in front", names, to("1.1.1.1:443", sendsTLS, ".a.com"), closed, "server-name"},
		{"a name below an exact one", names, to("1.1.1.1:443", sendsTLS, "x.a.com"), closed, "server-name"},
		{"a name with the same ending", names, to("1.1.1.1:443", sendsTLS, "xa.com"), closed, "server-name"},
		{"below a wildcard", names, to("1.1.1.1:443", sendsTLS, "x.b.com"), "tls_*.b.com_443", up},
		{"below a wildcard in capitals", names, to("1.1.1.1:443", sendsTLS, "X.B.COM"), "tls_*.b.com_443", up},
		{"an empty part below a wildcard, since Envoy keeps wildcards as .b.com",
			names, to("1.1.1.1:443", sendsTLS, ".b.com"), "tls_*.b.com_443", up},
		{"a name that ends like a wildcard", names, to("1.1.1.1:443", sendsTLS, "xb.com"), closed, "server-name"},
		{"punycode", names, to("1.1.1.1:443", sendsTLS, "xn--bcher-kva.example"), "tls_xn--bcher-kva.example_443", up},
		{"the name that it stands for", names, to("1.1.1.1:443", sendsTLS, "b\u00fccher.example"), closed, "server-name"},
		{"an underscore", names, to("1.1.1.1:443", sendsTLS, "_srv.a-1.c"), "tls__srv.a-1.c_443", up},
		{"one part", names, to("1.1.1.1:443", sendsTLS, "localhost"), "tls_localhost_443", up},
		{"an address as a name", names, to("1.1.1.1:443", sendsTLS, "1.1.1.1"), closed, "server-name"},
		{"two stars fit no name", names, to("1.1.1.1:443", sendsTLS, "x.example.org"), closed, "server-name"},
		{"a space in a name", names, to("1.1.1.1:443", sendsTLS, "a.com "), closed, "server-name"},
		{"names are of IPv6 too", names, to("[2001:db8::9]:443", sendsTLS, "a.com"), "tls_a.com_443", up},
		{"a Host with another port", hosts, to("1.1.1.1:8080", sendsHTTP1, "a.com:9"), "http_a.com_*", up},
		{"a Host with a dot at the end", hosts, to("1.1.1.1:80", sendsHTTP1, "a.com."), closed, up},
		{"a Host of punycode in capitals", hosts, to("1.1.1.1:80", sendsHTTP1, "XN--BCHER-KVA.example"),
			"http_xn--bcher-kva.example_80", up},
		{"a Host below a wildcard, with another port", hosts, to("1.1.1.1:80", sendsHTTP1, "x.b.com:81"), closed, up},
		{"the Host of a wildcard itself", hosts, to("1.1.1.1:80", sendsHTTP2, "b.com"), closed, up},
		{"an empty Host", hosts, to("1.1.1.1:80", sendsHTTP1, ""), closed, up},
		{"any Host for an address", hosts, to("10.0.0.1:80", sendsHTTP1, "whatever"), "http_10.0.0.1_80", up},
		{"an address as the Host", hosts, to("10.0.0.1:80", sendsHTTP1, "10.0.0.1:80"), "http_10.0.0.1_80", up},
		{"an IPv6 address as the Host", hosts, to("[2001:db8::1]:80", sendsHTTP1, "[2001:db8::1]"),
			"http_2001:db8::1_80", up},
		{"an address as the Host, dialled elsewhere", hosts, to("1.1.1.1:80", sendsHTTP1, "10.0.0.1"), closed, up},
		{"on all ports, on one that no other names", hosts, to("1.1.1.1:1", sendsHTTP1, "a.com"), "http_a.com_*", up},
		{"a network with bits behind its length", nets, to("10.255.255.255:7", sendsBytes), "tcp_10.1.2.3/8_7", up},
		{"beside it", nets, to("11.0.0.0:7", sendsBytes), closed, "destination-ip"},
		{"the end of half of all", nets, to("127.255.255.255:8", sendsBytes), "tcp_0.0.0.0/1_8", up},
		{"the start of the other half", nets, to("128.0.0.0:8", sendsBytes), closed, "destination-ip"},
		{"a network of one address", nets, to("192.0.2.255:9", sendsBytes), "tcp_192.0.2.255/32_9", up},
		{"IPv6 in another spelling", nets, to("[2001:db8::ffff:1:2:3]:7", sendsBytes), "tcp_2001:DB8:0:0::7/64_7", up},
		{"the next network of IPv6", nets, to("[2001:db8:0:1::]:7", sendsBytes), closed, "destination-ip"},
		{"all of IPv6", nets, to("[fe80::1]:8", sendsBytes), "tcp_::/0_8", up},
		{"a network of IPv4 written as IPv6", nets, to("10.9.8.255:10", sendsBytes), "tcp_::ffff:10.9.8.7/120_10", up},
		{"and not more than that", nets, to("10.9.9.0:10", sendsBytes), closed, "destination-ip"},
		{"the lowest port", nets, to("10.0.0.1:1", sendsBytes), "tcp_10.0.0.1_1", up},
		{"the highest port", nets, to("10.0.0.1:65535", sendsBytes), "tcp_10.0.0.1_65535", up},
		{"port 0", nets, to("10.0.0.1:0", sendsBytes), closed, "destination-port"},
		{"an exact name beside any", mixed, to("1.1.1.1:443", sendsTLS, "a.com"), "tls_a.com_443", up},
		{"any name", mixed, to("1.1.1.1:443", sendsTLS, "x.org"), "tls_*_443", up},
		{"no name where any will do", mixed, to("1.1.1.1:443", sendsTLS), "tls_*_443", up},
		{"an exact name in a network of TLS, which takes all names", mixed, to("10.0.9.1:443", sendsTLS, "a.com"),
			"tls_10.0.0.0/16_443", up},
		{"another name in that network", mixed, to("10.0.9.1:443", sendsTLS, "x.org"), "tls_10.0.0.0/16_443", up},
		{"plain in that network", mixed, to("10.0.9.1:443", sendsBytes), closed, "transport-protocol"},
		{"an exact name in a network of plain within it", mixed, to("10.0.0.9:443", sendsTLS, "a.com"),
			"tls_10.0.0.0/16_443", up},
		{"plain in its own network", mixed, to("10.0.0.9:443", sendsBytes), "tcp_10.0.0.0/24_443", up},
		{"requests where plain goes", mixed, to("10.0.0.9:443", sendsHTTP1, "a.com"), "tcp_10.0.0.0/24_443", up},
		{"an address on all ports, on another", mixed, to("10.0.0.7:25", sendsBytes), "tcp_10.0.0.7_*", up},
		{"TLS on that port, which nothing else is about", mixed, to("10.0.0.7:25", sendsTLS, "a.com"), "tcp_10.0.0.7_*", up},
	} {
		t.Run(v.name, func(t *testing.T) {
			e, _ := newEnvoy(t, base+v.docs)
			got := e.agree(t, v.conn)
			want := strings.TrimPrefix(v.want, closed)
			if want != "" {
				want = "meshpassthrough_" + want
			}
			if got.cluster != want || got.closedAt != v.at || got.refused != (v.want == closed && v.at == up) {
				t.Errorf("%s: %+v, want %q %s", v.conn, got, v.want, v.at)
			}
		})
	}
}

// TestTenThousandMatches checks that many matches, in one policy and in several, each have a
// cluster and that the config is not withheld.
func TestTenThousandMatches(t *testing.T) {
	several := ""
	for i := range 10 {
		several += matched("p"+string(rune('0'+i)), octets(1000, "tcp 10."+string(rune('0'+i))+".%d.%d:443")...)
	}
	for name, c := range map[string]struct {
		docs string
		conn conn
		want string
	}{
		"in one policy": {matched("p", numbered(10_000, "tls n%d.example.com:443")...),
			to("1.1.1.1:443", sendsTLS, "n9999.example.com"), "meshpassthrough_tls_n9999.example.com_443"},
		"over several policies": {several, to("10.7.0.1:443", sendsBytes), "meshpassthrough_tcp_10.7.0.1_443"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newEnvoy(t, base+c.docs)
			if n := len(e.listeners[false].message.FilterChains); n != 10_000 {
				t.Errorf("%d chains", n)
			}
			if v := e.agree(t, c.conn); v.cluster != c.want {
				t.Errorf("%+v", v)
			}
		})
	}
}
