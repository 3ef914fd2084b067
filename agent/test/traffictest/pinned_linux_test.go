package traffictest_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pinnedMatches returns a MeshPassthrough for proxy web whose matches are pinned by domain.
func pinnedMatches(name string, matches ...string) string {
	return strings.Replace(matched(name, "Matched", matches...), "name: "+name+",",
		"name: "+name+`, labels: {nearside.io/dns-pinned: "true"},`, 1)
}

// pinned returns scenes about traffic to names that the proxy resolves, regardless of the dialled
// address.
func pinned() []scene {
	tls := func(what, to, name, want string) row {
		return row{what: what, to: to, say: overTLS, name: name, want: want}
	}
	web := func(what, to, name, want string) row {
		return row{what: what, to: to, say: get, name: name, want: want}
	}
	of := func(s speech, r row) row { r.say = s; return r }
	refused := func(r row) row { r.beyond = "what the name resolves to"; return r }
	shut := theMesh(strict + ", networking: {outbound: {passthrough: false}}")
	return []scene{
		{what: "wildcards without the label", docs: shut +
			matched("outside", "Matched", `{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`), rows: []row{
			tls("the name with its address", cdn, "a.cdn.example.com", "cdn"),
			tls("the name with a foreign address", foreign, "a.cdn.example.com", "tls: failed to verify "+
				"certificate: x509: certificate is valid for foreign.example.net, moving.example.com, not a.cdn.example.com"),
		}},
		{what: "wildcards that are pinned", docs: shut + pinnedMatches("outside",
			`{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`,
			`{type: Domain, value: api.example.com, protocol: tls}`,
			`{type: Domain, value: "*.example.com", port: 80, protocol: http}`,
			`{type: Domain, value: "*.example.com", port: 81, protocol: http2}`,
			`{type: Domain, value: "*.cdn.example.com", port: 8080, protocol: http}`,
			`{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`), rows: []row{
			tls("the name with its address", cdn, "a.cdn.example.com", "cdn"),
			tls("the name with a foreign address", foreign, "a.cdn.example.com", "cdn"),
			tls("the name with a foreign address of IPv6", foreignV6, "A.cdn.Example.com", "cdn"),
			tls("another name with that address", cdn, "foreign.example.net", closed),
			refused(tls("a name that does not exist", cdn, "b.cdn.example.com", closed)),
			refused(tls("a name of the proxy's own host", cdn, "loop.cdn.example.com", closed)),
			refused(tls("a name of the metadata service", cdn, "metadata.cdn.example.com", closed)),
			refused(tls("a name of a virtual address", cdn, "virtual.cdn.example.com", closed)),
			tls("a domain on all ports", apiService, "api.example.com", "api"),
			tls("a domain on all ports, with a foreign address", foreign, "api.example.com", "api"),
			web("Host", www, "www.example.com", "www"),
			web("Host, with a foreign address", foreignW, "www.example.com", "www"),
			web("Host, with its port", foreignW, "www.example.com:80", "www"),
			web("Host, with another port", foreignW, "www.example.com:22", "503"),
			of(get10, web("HTTP/1.0", foreignW, "www.example.com", "www")),
			of(getH2, web("HTTP/2", h2, "h2.example.com", "h2")),
			web("Host on another port", partner, "shop.cdn.example.com", "partner"),
			web("Host on another port, with it", partner, "shop.cdn.example.com:8080", "partner"),
			refused(web("a Host of the proxy's own host", partner, "loop.cdn.example.com", "403")),
			refused(web("a Host that does not exist", partner, "b.cdn.example.com", "503")),
			web("another Host", foreignW, "foreign.example.net", "503"),
			{what: "TCP by network", to: database, say: aLine, want: "database"},
		}},
		{what: "pinned by one policy of two", docs: shut +
			pinnedMatches("outside", `{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`) +
			matched("other", "Matched", `{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`), rows: []row{
			tls("the name with a foreign address", foreign, "a.cdn.example.com", "cdn"),
		}},
	}
}

// TestTrafficFollowsNames checks that a pinned name leads to its current address: to another one
// after its records expire, and nowhere if they point to the proxy's own host.
func TestTrafficFollowsNames(t *testing.T) {
	w := newWorld(t)
	const name = moving + "example.com"
	w.servers.move(name, "198.51.100.20")
	w.apply(t, theMesh(strict+", networking: {outbound: {passthrough: false}}")+
		pinnedMatches("outside", `{type: Domain, value: "*.example.com", port: 443, protocol: tls}`))
	comesTo := func(want string) {
		t.Helper()
		got := ""
		agenttest.Eventually(t, "requests come to "+want, func() bool {
			r := &row{what: name, to: apiService, say: overTLS, name: name}
			if got = w.send(t, r, w.address(t, r)).got; got != want {
				t.Logf("came to %s", got)
			}
			return got == want
		})
	}
	comesTo("cdn")
	w.servers.move(name, "203.0.113.66")
	comesTo("foreign")
	w.servers.move(name, "127.0.0.1")
	comesTo(closed)
	w.servers.move(name, "198.51.100.20")
	comesTo("cdn")
}
