package generate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func permissionOf(name, top, from, action string) string {
	return fmt.Sprintf("---\n{type: MeshTrafficPermission, mesh: m, name: %s, spec: {targetRef: %s, "+
		"from: [{targetRef: %s, default: {action: %s}}]}}\n", name, top, from, action)
}

func legacyPermissionOf(name, from, to string) string {
	return fmt.Sprintf("---\n{type: TrafficPermission, mesh: m, name: %s, sources: [{match: %s}], "+
		"destinations: [{match: %s}]}\n", name, from, to)
}

// TestPermissionsOutside checks that a client without permission for an external service has no
// endpoints of it, and that an egress does not forward its connections.
func TestPermissionsOutside(t *testing.T) {
	const all, api, web = "{kind: Mesh}", "{kind: MeshService, name: api}", "{kind: MeshService, name: web}"
	const any = "{kuma.io/service: '*'}"
	for _, tc := range []struct {
		name, docs string
		v1, v2     bool // whether web may use each of the two endpoints
	}{
		{"nobody speaks", "", false, false},
		{"everybody may", permissionOf("p", all, all, "Allow"), true, true},
		{"web may", permissionOf("p", api, web, "Allow"), true, true},
		{"counted as denied", permissionOf("p", api, web, "AllowWithShadowDeny"), true, true},
		{"nobody may", permissionOf("p", all, all, "Deny"), false, false},
		{"all but web may", permissionOf("p", all, all, "Allow") + permissionOf("q", api, web, "Deny"), false, false},
		{"others may", permissionOf("p", api, "{kind: MeshService, name: other}", "Allow"), false, false},
		{"web may go elsewhere", permissionOf("p", "{kind: MeshService, name: db}", web, "Allow"), false, false},
		{"by a tag of the client", permissionOf("p", api, "{kind: MeshSubset, tags: {team: front}}", "Allow"), true, true},
		{"one of them", permissionOf("p", "{kind: MeshServiceSubset, name: api, tags: {version: v1}}", web, "Allow"),
			true, false},
		{"dataplanes of that name", permissionOf("p", "{kind: Dataplane, labels: {kuma.io/zone: default}}", web, "Allow"),
			false, false},
		{"legacy", legacyPermissionOf("p", any, any), true, true},
		{"legacy for web", legacyPermissionOf("p", "{kuma.io/service: web}", "{kuma.io/service: api}"), true, true},
		{"legacy for others", legacyPermissionOf("p", "{kuma.io/service: other}", any), false, false},
		{"legacy, the strongest", legacyPermissionOf("p", any, any) +
			legacyPermissionOf("q", "{kuma.io/service: other}", "{kuma.io/service: api}"), false, false},
		{"legacy, one of them", legacyPermissionOf("p", any, "{kuma.io/service: api, version: v2}"), false, true},
		{"legacy is replaced", legacyPermissionOf("p", any, any) + permissionOf("q", api, all, "Deny"), false, false},
		{"legacy is not replaced",
			legacyPermissionOf("p", any, any) + permissionOf("q", "{kind: MeshService, name: web}", all, "Deny"), true, true},
	} {
		for _, mode := range []string{"", ", mode: PERMISSIVE"} {
			mesh := func(more string) string {
				return strings.Replace(closedMesh("m", more), "type: builtin", "type: builtin"+mode, 1)
			}
			rest := "---\n{type: ExternalService, mesh: m, name: api-1, tags: {kuma.io/service: api, kuma.io/protocol: http, " +
				"version: v1}, networking: {address: '192.0.2.1:7'}}\n" +
				"---\n{type: ExternalService, mesh: m, name: api-2, tags: {kuma.io/service: api, kuma.io/protocol: http, " +
				"version: v2}, networking: {address: '192.0.2.2:7'}}\n" + strings.Replace(dataplaneOf("m",
				"{port: 20000, tags: {kuma.io/service: api}}, {port: 20001, tags: {kuma.io/service: api, version: v1}}, {port: "+
					"20002, tags: {kuma.io/service: api, version: v2}}"), "service: web", "service: web, team: front", 1) + tc.docs
			direct := newBorder(t, decode(t, "input", []byte(mesh("")+rest)), nil)
			through := newBorder(t, decode(t, "input", []byte(zoneOut+mesh("routing: {zoneEgress: true}\n")+rest)), nil)
			egress := through.egress(t, "out", nil, nil)
			sound(t, egress)
			for _, ask := range []struct {
				port uint16
				tags string
				want []string
			}{
				{20000, "", wantOf(tc.v1, "192.0.2.1:7", tc.v2, "192.0.2.2:7")},
				{20001, "version=v1", wantOf(tc.v1, "192.0.2.1:7", false, "")},
				{20002, "version=v2", wantOf(false, "", tc.v2, "192.0.2.2:7")},
			} {
				what := fmt.Sprintf("%s%s, port %d", tc.name, mode, ask.port)
				p := direct.sidecar(t, "m", "web")
				sound(t, p)
				if got := endsOf(p, ask.port); !slices.Equal(got, ask.want) {
					t.Errorf("%s: it leads to %v, want %v", what, got, ask.want)
				}
				// Through an egress, a client needs permission for all endpoints of the service.
				whole := ask.want
				if ask.tags == "" && len(whole) == 1 {
					whole = nil
				}
				if got := endsOf(through.sidecar(t, "m", "web"), ask.port); (len(got) > 0) != (len(whole) > 0) {
					t.Errorf("%s: through the egress: %v, want %v", what, got, whole)
				}
				sni := "api{mesh=m}"
				if ask.tags != "" {
					sni = "api{mesh=m," + ask.tags + "}"
				}
				at := match.Open(egress.Snapshot(), nil).Request(&match.Conn{
					Dst: netip.MustParseAddrPort(egressAt), Src: netip.MustParseAddrPort("10.0.0.1:40000"), First: match.TLSHello,
					SNI: sni, ALPN: []string{"kuma"},
					Peer: &match.Peer{URIs: []string{"kuma://kuma.io/zone/default", "kuma://team/front", "spiffe://m/web"}},
				}, &match.Request{Method: "GET", Host: "api", Path: "/"})
				if (at.Outcome == match.Forwarded) != (len(whole) > 0) {
					t.Errorf("%s: at the egress: %v %s, want %v", what, at.Outcome, at.Reason, whole)
				}
			}
		}
	}
}

func wantOf(first bool, a string, second bool, b string) (out []string) {
	if first {
		out = append(out, a)
	}
	if second {
		out = append(out, b)
	}
	return out
}

// endsOf returns the endpoints that a request to a local port of the workload may reach.
func endsOf(p *generate.Proxy, port uint16) (out []string) {
	got := match.Open(p.Snapshot(), nil).Request(&match.Conn{
		Dst: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), Src: netip.MustParseAddrPort("127.0.0.1:40000"),
		First: match.HTTP11,
	}, &match.Request{Method: "GET", Host: "api", Path: "/"})
	for _, target := range got.Targets {
		out = append(out, target.Endpoints...)
	}
	return out
}

// TestMeshExternalServicesForbidden checks that a Mesh can forbid them at the client and at the
// egress.
func TestMeshExternalServicesForbidden(t *testing.T) {
	for _, forbid := range []bool{false, true} {
		docs := zoneOut +
			borderMesh("m", fmt.Sprintf("routing: {zoneEgress: true, defaultForbidMeshExternalServiceAccess: %v}\n", forbid)) +
			"---\n{type: MeshExternalService, mesh: m, name: real, spec: {match: {port: 443, protocol: tcp}, " +
			"endpoints: [{address: 192.0.2.1, port: 7}]}}\n" +
			dataplaneOf("m", "{port: 20000, backendRef: {kind: MeshExternalService, name: real, port: 443}}")
		b := newBorder(t, decode(t, "input", []byte(docs)), nil)
		p, out := b.sidecar(t, "m", "web"), b.egress(t, "out", nil, nil)
		sound(t, p)
		sound(t, out)
		if got := endsOf(p, 20000); (len(got) == 0) != forbid {
			t.Errorf("forbidden %v: the client has %v", forbid, got)
		}
		listener := out.Sealed.Resources[draft.Rank(draft.TypeListener)][0]
		if guarded := strings.Contains(string(listener.Body()), "envoy.filters.network.rbac"); guarded != forbid {
			t.Errorf("forbidden %v: the egress guards: %v", forbid, guarded)
		}
	}
}

// TestPermissionsOutsideChange checks that an added or removed permission leads to the same bytes
// as a newly generated config, at the client and at the egress, also if a route leads to the
// service.
func TestPermissionsOutsideChange(t *testing.T) {
	const all = "{kind: Mesh}"
	for _, more := range []string{"", "routing: {zoneEgress: true}\n"} {
		docs := zoneOut + closedMesh("m", more) +
			"---\n{type: ExternalService, mesh: m, name: api, tags: {kuma.io/service: api, kuma.io/protocol: http}, " +
			"networking: {address: '192.0.2.1:7'}}\n" +
			"---\n{type: Dataplane, mesh: m, name: old, networking: {address: 10.0.0.5, inbound: [{port: 80, " +
			"tags: {kuma.io/service: old, kuma.io/protocol: http}}]}}\n" +
			"---\n{type: MeshHTTPRoute, mesh: m, name: r, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: " +
			"MeshService, name: old}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: " +
			"[{kind: MeshService, name: api}]}}]}]}}\n" + dataplaneOf("m", "{port: 20000, tags: {kuma.io/service: old}}")
		var last *border
		var proxy, egress *generate.Proxy
		memo := generate.NewMemo()
		for i, permission := range []string{
			"", permissionOf("p", all, all, "Allow"), permissionOf("p", all, all, "Deny"),
			legacyPermissionOf("q", "{kuma.io/service: web}", "{kuma.io/service: api}"), "",
		} {
			b := newBorder(t, decode(t, "input", []byte(docs+permission)), last)
			derive := func(b *border, prev *generate.Proxy) *generate.Proxy {
				p, err := generate.Generate(generate.Input{Mesh: b.meshes[0], Name: "web", Flavor: node.FlavorEnvoy}, prev, memo)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			proxy, egress = derive(b, proxy), b.egress(t, "out", egress, memo)
			fresh := newBorder(t, decode(t, "input", []byte(docs+permission)), nil)
			if p, e := derive(fresh, nil), fresh.egress(t, "out", nil, nil); p.Sealed.Versions != proxy.Sealed.Versions ||
				e.Sealed.Versions != egress.Sealed.Versions {
				t.Errorf("%q: step %d: a change gives other bytes than a fresh start", more, i)
			}
			if got := endsOf(proxy, 20000); (len(got) > 0) != (i == 1 || i == 3) {
				t.Errorf("%q: step %d: it leads to %v", more, i, got)
			}
			last = b
		}
	}
}
