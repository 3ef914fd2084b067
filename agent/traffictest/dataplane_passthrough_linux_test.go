package traffictest_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// TestPassthroughThroughSockets carries real connections of a workload through a proxy with the config of a running agent,
// in a network namespace with a redirection, to servers in another one. What the policy promises is what happens, and what
// the agent explains.
func TestPassthroughThroughSockets(t *testing.T) {
	j := begun(t)
	opened := j.proxy.listeners()

	everything := []visit{
		{what: "TLS", to: foreign, say: overTLS, name: "foreign.example.net", want: "foreign"},
		{what: "a line", to: database, say: aLine, want: "database"},
		{what: "a server that speaks first", to: mysqlNext, say: nothing, want: "next mysql"},
		{what: "HTTP/1.0", to: foreignW, say: get10, name: "foreign.example.net", want: "foreign web"},
		{what: "IPv6", to: otherV6, say: aLine, want: "other v6"},
	}
	nobody := []visit{
		{what: "TLS", to: api, say: overTLS, name: "api.example.com", want: isClosed},
		{what: "a line", to: database, say: aLine, want: isClosed},
		{what: "a server that speaks first", to: mysql, say: nothing, want: isClosed},
		{what: "HTTP", to: www, say: get, name: "www.example.com", want: isClosed},
		{what: "IPv6", to: boxV6, say: aLine, want: isClosed},
	}
	j.visits("the mesh is open by default", everything)
	j.visits("services of the mesh", []visit{
		{what: "HTTP", to: j.virtual("backend"), say: get, name: "backend.mesh", want: "backend"},
		{what: "TCP", to: j.virtual("ledger"), say: aLine, want: "ledger"},
	})

	j.apply("type: Mesh\nname: default\nnetworking: {outbound: {passthrough: false}}\n")
	j.visits("the mesh is closed", nobody)
	j.shut()

	j.apply(passthroughOf("Matched",
		`{type: Domain, value: api.example.com, port: 443, protocol: tls}`,
		`{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`,
		`{type: Domain, value: www.example.com, port: 80, protocol: http}`,
		`{type: Domain, value: h2.example.com, port: 81, protocol: http2}`,
		`{type: CIDR, value: 198.51.100.0/24, port: 80, protocol: http}`,
		`{type: IP, value: 198.51.100.10, port: 443, protocol: tcp}`,
		`{type: IP, value: 203.0.113.77, port: 443, protocol: tcp}`,
		`{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`,
		`{type: IP, value: 10.20.0.7, port: 9000, protocol: tcp}`,
		`{type: IP, value: "2001:db8:7::7", port: 9000, protocol: tcp}`,
		`{type: IP, value: 10.10.0.9, port: 3306, protocol: mysql}`,
		`{type: CIDR, value: 172.16.0.0/12, protocol: tcp}`,
		`{type: CIDR, value: 172.20.0.0/16, protocol: tls}`,
	))
	j.visits("SNI", []visit{
		{what: "allowed", to: api, say: overTLS, name: "api.example.com", want: "api", pinned: true},
		{what: "allowed, in capitals, with ALPN", to: api, say: overTLS, name: "API.Example.com", alpn: []string{"own"}, want: "api", pinned: true},
		{what: "allowed, to a foreign address", to: foreign, say: overTLS, name: "api.example.com", want: "api", pinned: true},
		{what: "allowed, to a foreign address of IPv6", to: foreignV6, say: overTLS, name: "api.example.com", want: "api", pinned: true},
		{what: "allowed, to an address where only TCP is", to: beside, say: overTLS, name: "api.example.com", want: "api", pinned: true},
		{what: "allowed by a wildcard", to: cdn, say: overTLS, name: "a.cdn.example.com", want: "cdn"},
		{what: "not allowed", to: foreign, say: overTLS, name: "foreign.example.net", want: isClosed},
		{what: "not allowed, to an address where only TCP is", to: beside, say: overTLS, name: "beside.example.net", want: isClosed},
		{what: "of a parent", to: cdn, say: overTLS, name: "cdn.example.com", want: isClosed},
		{what: "none", to: foreign, say: overTLS, want: isClosed},
		{what: "none, to the address of the domain", to: cdn, say: overTLS, want: isClosed},
		{what: "allowed, on another port", to: inner, say: overTLS, name: "inner.example.net", want: "inner"},
	})
	j.visits("HTTP", []visit{
		{what: "Host allowed", to: www, say: get, name: "www.example.com", want: "www"},
		{what: "Host allowed, to a foreign address", to: foreignW, say: get, name: "www.example.com", want: "www", pinned: true},
		{what: "Host allowed, with its port", to: foreignW, say: get, name: "WWW.example.com:80", want: "www", pinned: true},
		{what: "Host not allowed", to: foreignW, say: get, name: "foreign.example.net", want: isRefused},
		{what: "any Host, by the address", to: www, say: get, name: "whoever.example.net", want: "www"},
		{what: "HTTP/1.0", to: foreignW, say: get10, name: "www.example.com", want: isClosed},
		{what: "HTTP/2", to: h2, say: getH2, name: "h2.example.com", want: "h2", pinned: true},
		{what: "HTTP/2, Host not allowed", to: h2, say: getH2, name: "www.example.com", want: isRefused},
		{what: "a line where HTTP is expected", to: foreignW, say: aLine, want: isClosed},
		{what: "TLS where HTTP is expected", to: foreignW, say: overTLS, name: "www.example.com", want: isClosed},
	})
	j.visits("TCP", []visit{
		{what: "by network", to: database, say: aLine, want: "database"},
		{what: "by address", to: box, say: aLine, want: "box"},
		{what: "by address of IPv6", to: boxV6, say: aLine, want: "box v6"},
		{what: "another network", to: outside, say: aLine, want: isClosed},
		{what: "another address", to: boxBeside, say: aLine, want: isClosed},
		{what: "another address of IPv6", to: otherV6, say: aLine, want: isClosed},
		{what: "beside a domain, to its address", to: api, say: aLine, want: "api"},
		{what: "TLS is not TCP", to: box, say: overTLS, name: "api.example.com", want: isClosed},
	})
	j.visits("one network within another", []visit{
		{what: "TLS, which the inner has", to: inner, say: overTLS, name: "inner.example.net", want: "inner"},
		{what: "TCP, which the outer has", to: inner, say: aLine, want: "inner"},
		{what: "TCP outside of the inner", to: outer, say: aLine, want: "outer"},
		{what: "TLS outside of the inner", to: outer, say: overTLS, name: "outer.example.net", want: isClosed},
	})
	j.visits("the server speaks first", []visit{
		{what: "where that is said", to: mysql, say: nothing, want: "mysql"},
		{what: "another address", to: mysqlNext, say: nothing, want: isClosed},
		{what: "another port, which is inspected", to: database, say: nothing, want: isClosed},
	})
	j.visits("services of the mesh beside the policy", []visit{
		{what: "HTTP", to: j.virtual("backend"), say: get, name: "backend.mesh", want: "backend"},
		{what: "TCP", to: j.virtual("ledger"), say: aLine, want: "ledger"},
	})
	if n := j.world.reached("foreign"); n != 1 { // while everything was open
		t.Errorf("the foreign server was reached %d times, want once", n)
	}

	// The policy changes under the running proxy.
	j.apply(passthroughOf("Matched", `{type: Domain, value: www.example.com, port: 80, protocol: http}`, `{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`))
	j.visits("other matches", []visit{
		{what: "SNI no longer allowed", to: api, say: overTLS, name: "api.example.com", want: isClosed},
		{what: "an address no longer allowed", to: box, say: aLine, want: isClosed},
		{what: "an address newly allowed", to: boxBeside, say: aLine, want: "beside the box"},
		{what: "Host still allowed", to: www, say: get, name: "www.example.com", want: "www", pinned: true},
		{what: "no family has a match", to: boxV6, say: aLine, want: isClosed},
	})
	// Another policy adds to it, and takes away with it what it has added.
	more := passthroughOf("Matched", `{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`, `{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`)
	j.apply(strings.Replace(more, "name: outside", "name: more", 1))
	j.visits("two policies", []visit{
		{what: "of the first", to: www, say: get, name: "www.example.com", want: "www", pinned: true},
		{what: "of the second", to: database, say: aLine, want: "database"},
		{what: "of both", to: boxBeside, say: aLine, want: "beside the box"},
		{what: "of neither", to: box, say: aLine, want: isClosed},
	})
	j.remove(resource.Key{Kind: "MeshPassthrough", Mesh: "default", Name: "more"})
	j.visits("one policy again", []visit{
		{what: "of the one that is gone", to: database, say: aLine, want: isClosed},
		{what: "of both", to: boxBeside, say: aLine, want: "beside the box"},
	})

	// What the policy says goes over an open mesh.
	j.apply("type: Mesh\nname: default\n")
	j.apply(passthroughOf("None"))
	j.visits("mode None", nobody)
	j.shut()
	j.apply(passthroughOf("All"))
	j.visits("mode All", everything)
	j.apply(passthroughOf("Matched"))
	j.visits("no matches", nobody)
	j.shut()
	j.remove(resource.Key{Kind: "MeshPassthrough", Mesh: "default", Name: "outside"})
	j.visits("without the policy", everything)

	if now := j.proxy.listeners(); now != opened {
		t.Errorf("the proxy has opened %d sockets, and had %d at the start: a policy costs it its listeners", now, opened)
	}
}

// listeners is how many sockets the proxy has ever listened at.
func (d *dataplane) listeners() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened
}
