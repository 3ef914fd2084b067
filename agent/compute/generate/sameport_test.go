package generate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// samePort is a dataplane with two services at one port.
const samePort = "---\n{type: Dataplane, mesh: m, name: web, networking: {address: 10.0.0.1, inbound: [" +
	"{port: 3306, servicePort: 3307, tags: {kuma.io/service: db, kuma.io/protocol: %s}}, " +
	"{port: 3306, servicePort: 3307, tags: {kuma.io/service: db-headless, kuma.io/protocol: http, team: data}}]}}\n"

// TestSamePortPolicies checks that policies and permissions for either service act on the one
// listener that serves both.
func TestSamePortPolicies(t *testing.T) {
	const all, one, two = "{kind: Mesh}", "{kind: MeshService, name: db}", "{kind: MeshService, name: db-headless}"
	const any = "{kuma.io/service: '*'}"
	for _, c := range []struct {
		name, docs string
		a, b       bool // whether the clients a and b are admitted
	}{
		{"none", "", false, false},
		{"for all", permissionOf("p", all, all, "Allow"), true, true},
		{"for the first", permissionOf("p", one, "{kind: MeshService, name: a}", "Allow"), true, false},
		{"for the second", permissionOf("p", two, "{kind: MeshService, name: b}", "Allow"), false, true},
		{"for each", permissionOf("p", one, "{kind: MeshService, name: a}", "Allow") +
			permissionOf("q", two, "{kind: MeshService, name: b}", "Allow"), true, true},
		{"all but one for the second", permissionOf("p", one, all, "Allow") +
			permissionOf("a", two, "{kind: MeshService, name: b}", "Deny"), true, false},
		{"by a tag of the second", permissionOf("p", "{kind: MeshSubset, tags: {team: data}}", all, "Allow"), true, true},
		{"legacy, for the second", legacyPermissionOf("p", "{kuma.io/service: a}", "{kuma.io/service: db-headless}"),
			true, false},
		{"legacy, the more specific one of two", legacyPermissionOf("p", any, any) +
			legacyPermissionOf("q", "{kuma.io/service: a}", "{kuma.io/service: db-headless}"), true, false},
	} {
		doc := closedMesh("m", "") + fmt.Sprintf(samePort, "http") + c.docs
		p := newBorder(t, decode(t, "input", []byte(doc)), nil).sidecar(t, "m", "web")
		sound(t, p)
		var names []string
		for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeListener)] {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"inbound:10.0.0.1:3306"}) {
			t.Errorf("%s: listeners %v, want one for both services", c.name, names)
		}
		for client, want := range map[string]bool{"a": c.a, "b": c.b} {
			got := match.Open(p.Snapshot(), nil).Request(&match.Conn{
				Dst: netip.MustParseAddrPort("10.0.0.1:3306"), Src: netip.MustParseAddrPort("10.0.0.2:40000"),
				First: match.TLSHello, SNI: "db{mesh=m}", ALPN: []string{"kuma"},
				Peer: &match.Peer{URIs: []string{"kuma://kuma.io/service/" + client, "spiffe://m/" + client}},
			}, &match.Request{Method: "GET", Host: "db", Path: "/"})
			if (got.Outcome == match.Forwarded) != want {
				t.Errorf("%s: client %s: %v %s, want admitted: %v", c.name, client, got.Outcome, got.Reason, want)
			}
		}
	}
}

// TestSamePortProtocols checks that the listener of two services treats connections by the protocol
// that all of their clients speak, and warns if the services differ.
func TestSamePortProtocols(t *testing.T) {
	for protocol, want := range map[string]struct {
		routes int
		warned bool
	}{"http": {1, false}, "tcp": {0, true}, "grpc": {0, true}} {
		doc := "---\n{type: Mesh, name: m}\n" + fmt.Sprintf(samePort, protocol)
		p := newBorder(t, decode(t, "input", []byte(doc)), nil).sidecar(t, "m", "web")
		sound(t, p)
		if n := len(p.Sealed.Resources[draft.Rank(draft.TypeRoute)]); n != want.routes {
			t.Errorf("%s beside http: %d route configurations, want %d", protocol, n, want.routes)
		}
		warned := slices.ContainsFunc(p.Warnings, func(w mesh.Warning) bool {
			return strings.Contains(w.Reason, "networking.inbound[1]: its protocol http differs from "+protocol)
		})
		if warned != want.warned {
			t.Errorf("%s beside http: warnings %v, want one: %v", protocol, p.Warnings, want.warned)
		}
	}
}

// TestSamePortIgnored checks that ignored inbounds, too, have one listener for an address and port,
// and none beside an active inbound.
func TestSamePortIgnored(t *testing.T) {
	for _, states := range [][2]string{{"Ignored", "Ignored"}, {"Ignored", "Ready"}, {"Ready", "Ignored"}} {
		doc := "---\n{type: Mesh, name: m}\n---\n{type: Dataplane, mesh: m, name: web, networking: {address: 10.0.0.1, " +
			"inbound: [{port: 80, servicePort: 81, state: " + states[0] + ", tags: {kuma.io/service: a}}, " +
			"{port: 80, servicePort: 81, state: " + states[1] + ", tags: {kuma.io/service: b}}]}}\n"
		p := newBorder(t, decode(t, "input", []byte(doc)), nil).sidecar(t, "m", "web")
		sound(t, p)
		if n := len(p.Sealed.Resources[draft.Rank(draft.TypeListener)]); n != 1 {
			t.Errorf("%v: %d listeners, want 1", states, n)
		}
	}
}

// TestPriorities checks that the endpoints of a MeshExternalService with other priorities are in
// other groups of the cluster of the egress, numbered without gaps.
func TestPriorities(t *testing.T) {
	docs := zoneOut + closedMesh("m", "routing: {zoneEgress: true}\n") +
		"---\n{type: MeshExternalService, mesh: m, name: x, spec: {match: {port: 443, protocol: tcp}, endpoints: [" +
		"{address: 192.0.2.1, port: 7, priority: 9}, {address: 192.0.2.2, port: 7}, " +
		"{address: 192.0.2.3, port: 7, priority: 2}, {address: 192.0.2.4, port: 7, priority: 9}]}}\n" +
		dataplaneOf("m", "{port: 20000, backendRef: {kind: MeshExternalService, name: x, port: 443}}")
	out := newBorder(t, decode(t, "input", []byte(docs)), nil).egress(t, "out", nil, nil)
	sound(t, out)
	var got []string
	for _, line := range lines(t, out) {
		if path, ok := strings.CutPrefix(line, "Cluster/m:m_x__default_extsvc_443/loadAssignment/endpoints/"); ok &&
			(strings.Contains(path, "/priority") || strings.Contains(path, "/address = ")) {
			got = append(got, path)
		}
	}
	want := []string{
		`0/lbEndpoints/0/endpoint/address/socketAddress/address = "192.0.2.2"`,
		`1/lbEndpoints/0/endpoint/address/socketAddress/address = "192.0.2.3"`, `1/priority = 1`,
		`2/lbEndpoints/0/endpoint/address/socketAddress/address = "192.0.2.1"`,
		`2/lbEndpoints/1/endpoint/address/socketAddress/address = "192.0.2.4"`, `2/priority = 2`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
