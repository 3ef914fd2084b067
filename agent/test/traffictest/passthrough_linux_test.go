package traffictest_test

import "strings"

// matched returns a MeshPassthrough for proxy web.
func matched(name, mode string, matches ...string) string {
	return policy("MeshPassthrough", name, "{targetRef: {kind: Dataplane, name: web}, default: {passthroughMode: "+mode+
		", appendMatch: ["+strings.Join(matches, ", ")+"]}}")
}

// passthroughs returns scenes about traffic to destinations that the mesh does not know.
func passthroughs() []scene {
	tls := func(what, to, name, want string) row {
		return row{what: what, to: to, say: overTLS, name: name, want: want}
	}
	plain := func(what, to, want string) row { return row{what: what, to: to, say: aLine, want: want} }
	web := func(what, to, name, want string) row {
		return row{what: what, to: to, say: get, name: name, want: want}
	}
	of := func(s speech, r row) row { r.say = s; return r }

	everything := []row{
		tls("TLS", foreign, "foreign.example.net", "foreign"),
		plain("a line", database, "database"),
		{what: "closed by half", to: database, say: halfway, body: 1000, want: "database", upstream: sized(1000)},
		{what: "a server that speaks first", to: mysqlNext, say: nothing, want: "next-mysql"},
		of(get10, web("HTTP/1.0", foreignW, "foreign.example.net", "foreign-web")),
		of(upgrade, web("a WebSocket", foreignW, "foreign.example.net", "foreign-web")),
		plain("IPv6", otherV6, "other-v6"),
		plain("nobody", nowhere, closed),
	}
	for i := range everything {
		if everything[i].want == closed {
			everything[i].beyond = "whether somebody listens"
		}
	}
	nobody := []row{
		tls("TLS", apiService, "api.example.com", closed),
		plain("a line", database, closed),
		{what: "a server that speaks first", to: mysql, say: nothing, want: closed},
		web("HTTP", www, "www.example.com", closed),
		plain("IPv6", boxV6, closed),
		web("a service of the mesh", "backend.mesh:80", "", backends),
	}
	shut := theMesh(strict + ", " + viaEgress + ", networking: {outbound: {passthrough: false}}")
	matches := []string{
		`{type: Domain, value: api.example.com, port: 443, protocol: tls}`,
		`{type: Domain, value: "*.cdn.example.com", port: 443, protocol: tls}`,
		`{type: Domain, value: www.example.com, port: 80, protocol: http}`,
		`{type: Domain, value: h2.example.com, port: 81, protocol: http2}`,
		`{type: CIDR, value: 198.51.100.0/24, port: 80, protocol: http}`,
		`{type: IP, value: 198.51.100.10, port: 443, protocol: tcp}`,
		`{type: IP, value: 203.0.113.77, port: 443, protocol: tcp}`,
		`{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`,
		`{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`,
		`{type: IP, value: "2001:db8:7::7", port: 9000, protocol: tcp}`,
		`{type: IP, value: 10.10.0.9, port: 3306, protocol: mysql}`,
		`{type: IP, value: 10.10.0.8, port: 3306, protocol: tcp}`,
		`{type: IP, value: 10.10.0.8, port: 80, protocol: tcp}`,
		`{type: CIDR, value: 172.16.0.0/12, protocol: tcp}`,
		`{type: CIDR, value: 172.20.0.0/16, protocol: tls}`,
	}
	return []scene{
		{what: "open by default", rows: everything},
		{what: "closed by the mesh", docs: shut, rows: nobody},
		{what: "what matches", docs: shut + matched("outside", "Matched", matches...), rows: []row{
			tls("SNI allowed", apiService, "api.example.com", "api"),
			{what: "SNI allowed, in capitals, with ALPN", to: apiService, say: overTLS, name: "API.Example.com",
				alpn: []string{"own"},
				want: "api"},
			tls("SNI allowed, to a foreign address", foreign, "api.example.com", "api"),
			tls("SNI allowed, to a foreign address of IPv6", foreignV6, "api.example.com", "api|api over IPv6"),
			tls("SNI allowed, to an address where only TCP is", beside, "api.example.com", "api"),
			tls("SNI allowed by a wildcard", cdn, "a.cdn.example.com", "cdn"),
			tls("SNI not allowed", foreign, "foreign.example.net", closed),
			tls("SNI of no match, to an address where TCP is", beside, "beside.example.net", "beside"),
			tls("SNI of a parent", cdn, "cdn.example.com", closed),
			tls("no SNI", foreign, "", closed),
			tls("no SNI, to the address of the domain", cdn, "", closed),
			tls("TLS in a network", inner, "inner.example.net", "inner"),
			web("Host allowed", www, "www.example.com", "www"),
			web("Host allowed, to a foreign address", foreignW, "www.example.com", "www"),
			web("Host allowed, with its port", foreignW, "WWW.example.com:80", "www"),
			web("Host not allowed", foreignW, "foreign.example.net", "503"),
			web("any Host, by the address", www, "whoever.example.net", "www"),
			of(get10, web("HTTP/1.0", foreignW, "www.example.com", "www")),
			of(getH2, web("HTTP/2", h2, "h2.example.com", "h2")),
			of(getH2, web("HTTP/2, Host not allowed", h2, "www.example.com", "503")),
			of(upgrade, web("a WebSocket", www, "www.example.com", "www")),
			plain("a line where HTTP is expected", foreignW, closed),
			tls("TLS where HTTP is expected", foreignW, "www.example.com", closed),
			plain("TCP by network", database, "database"),
			plain("TCP by address", boxBeside, "beside-the-box"),
			plain("TCP by address of IPv6", boxV6, "box-v6"),
			plain("TCP to another network", outside, closed),
			plain("TCP to another address", boxThird, closed),
			plain("TCP to the address of a service outside", box, "box"),
			plain("TCP to another address of IPv6", otherV6, closed),
			plain("TCP beside a domain, to its address", apiService, "api"),
			{what: "TLS where TCP is", to: boxBeside, say: overTLS, name: "api.example.com", want: closed,
				cluster: "meshpassthrough_tcp_10.20.0.8_9000", beyond: "that the server speaks no TLS"},
			plain("TCP, which the outer network has", inner, "inner"),
			plain("TCP outside of the inner network", outer, "outer"),
			tls("TLS outside of the inner network, where TCP is", outer, "outer.example.net", "outer"),
			{what: "a server that speaks first, where that is said", to: mysql, say: nothing, want: "mysql"},
			{what: "a server that speaks first, and is allowed as TCP", to: mysqlNext, say: nothing, want: "next-mysql"},
			{what: "a server that speaks first, beside HTTP", to: mysqlOn80, say: nothing, want: noAnswer,
				beyond: "that the client waits for less than the inspection"},
			web("a service of the mesh", "backend.mesh:80", "", backends),
			plain("TCP of the mesh", "db.mesh:80", "backend-2/5432"),
		}},
		{what: "two policies", docs: shut +
			matched("outside", "Matched", `{type: Domain, value: www.example.com, port: 80, protocol: http}`,
				`{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`) +
			matched("more", "Matched", `{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`,
				`{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`), rows: []row{
			web("of the first", www, "www.example.com", "www"),
			plain("of the second", database, "database"),
			plain("of both", boxBeside, "beside-the-box"),
			plain("of neither", boxThird, closed),
			plain("no family has a match", boxV6, closed),
		}},
		{what: "mode None in an open mesh", docs: matched("outside", "None"), rows: nobody},
		{what: "mode All in a closed mesh", docs: shut + matched("outside", "All"), rows: everything},
		{what: "no matches", docs: matched("outside", "Matched"), rows: nobody},
	}
}
