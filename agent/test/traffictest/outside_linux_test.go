package traffictest_test

import (
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// keys returns the key of one resource in mesh default, as a slice.
func keys(kind, name string) []resource.Key { return []resource.Key{key(kind, name)} }

// outsides returns scenes about services outside the mesh, with and without an egress.
func outsides() []scene {
	through := []row{
		{what: "MeshExternalService of HTTP", to: "partner.outside:80", say: get, want: "partner"},
		{what: "MeshExternalService over IPv6", to: "partner.outside:80", v6: true, say: get, want: "partner"},
		{what: "MeshExternalService of TCP", to: "rows.outside:5432", say: aLine, want: "database"},
		{what: "TCP, closed by half", to: "rows.outside:5432", say: halfway, body: mega, want: "database",
			upstream: sized(mega)},
		{what: "100 MB", to: "partner.outside:80", say: get, method: "PUT", body: 100 * mega, want: "partner",
			upstream: sized(100 * mega)},
		{what: "ExternalService of HTTP", to: "far-web.mesh:80", say: get, want: "www"},
		{what: "ExternalService by its address", to: "www.example.com:80", ip: "198.51.100.30", say: get, want: "www"},
		{what: "ExternalService by its host, at the virtual address", to: "www.example.com:80", say: get, want: "www"},
		{what: "ExternalService of TCP", to: "far-rows.mesh:80", say: aLine, want: "box"},
		{what: "HTTP/2", to: "far-web.mesh:80", say: getH2, want: "www"},
	}
	direct := []row{
		{what: "MeshExternalService", to: "partner.outside:80", say: get, want: "partner"},
		{what: "ExternalService of HTTP", to: "far-web.mesh:80", say: get, want: "www"},
		{what: "ExternalService by its host", to: "www.example.com:80", say: get, want: "www"},
		{what: "ExternalService of TCP", to: "far-rows.mesh:80", say: aLine, want: "box"},
	}
	return []scene{
		{what: "through an egress", rows: through},
		{what: "past the egress", docs: theMesh(strict), rows: direct},
		{what: "spoken otherwise", docs: "---\n{type: ExternalService, mesh: default, name: far-two, tags: " +
			"{kuma.io/service: far-two, kuma.io/protocol: http2}, networking: {address: \"h2.example.com:81\"}}\n", rows: []row{
			{what: "an ExternalService of HTTP/2", to: "far-two.mesh:80", say: getH2, want: "h2",
				upstream: func(a *answered) bool { return a.seen.Proto == "HTTP/2.0" && a.seen.Host == "h2.example.com" }},
		}},
		{what: "closed but for services",
			docs: theMesh(strict + ", " + viaEgress + ", networking: {outbound: {passthrough: false}}"), rows: []row{
				{what: "MeshExternalService", to: "partner.outside:80", say: get, want: "partner"},
				{what: "ExternalService", to: "far-rows.mesh:80", say: aLine, want: "box"},
				{what: "ExternalService by its address and port", to: box, say: aLine, want: "box"},
				{what: "what is no service", to: boxThird, say: aLine, want: closed},
				{what: "a service of the mesh", to: "db.mesh:80", say: aLine, want: "backend-2/5432"},
			}},
		{what: "access to services outside forbidden",
			docs:    theMesh(strict + ", routing: {zoneEgress: true, defaultForbidMeshExternalServiceAccess: true}"),
			without: keys("MeshTrafficPermission", "all"), rows: []row{
				{what: "MeshExternalService", to: "partner.outside:80", say: get, want: "403|503"},
				{what: "TCP", to: "rows.outside:5432", say: aLine, want: closed},
			}},
		{what: "TLS from the egress",
			docs: "---\n{type: ExternalService, mesh: default, name: vault, tags: {kuma.io/service: vault, kuma.io/protocol: " +
				"tcp}, networking: {address: \"198.51.100.10:443\", tls: {enabled: true, serverName: api.example.com}}}\n" +
				"---\n{type: MeshExternalService, mesh: default, name: safe, spec: {match: {type: HostnameGenerator, port: 443, " +
				"protocol: tcp}, endpoints: [{address: 198.51.100.10, port: 443}], tls: {enabled: true, " +
				"verification: {serverName: api.example.com}}}}\n", rows: []row{
				{what: "an ExternalService without caCert", to: "vault.mesh:80", say: aLine, want: "api"},
				{what: "a MeshExternalService that no authority knows", to: "safe.outside:443", say: aLine, want: closed,
					beyond: "whom the egress trusts is known when it has connected"},
			}},
	}
}
