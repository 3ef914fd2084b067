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

func passthroughOf(matches ...string) string {
	return "---\ntype: MeshPassthrough\nmesh: default\nname: some\nspec:\n  targetRef: {kind: Mesh}\n  default:\n" +
		"    passthroughMode: Matched\n    appendMatch: [" + strings.Join(matches, ", ") + "]\n"
}

const transparentWeb = "---\ntype: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 10.0.0.1\n" +
	"  inbound: [{port: 8080, tags: {kuma.io/service: web}}]\n" +
	"  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n"

// TestPassthroughThroughEgress checks where a workload's passthrough connections end after they
// pass its proxy and the egress.
func TestPassthroughThroughEgress(t *testing.T) {
	b := newBorder(t, decode(t, "input", []byte(zoneOut+borderMesh("default", "routing: {zoneEgress: true}\n")+
		transparentWeb+passthroughOf(
		"{type: Domain, value: api.example.com, port: 443, protocol: tls}",
		"{type: Domain, value: www.example.com, port: 80, protocol: http}",
		"{type: IP, value: 192.0.2.1, port: 5432, protocol: tcp}",
		"{type: IP, value: 192.0.2.2, protocol: tcp}",
		"{type: CIDR, value: 198.51.100.0/25, port: 443, protocol: tls}",
		"{type: CIDR, value: 198.51.100.0/25, port: 80, protocol: http}",
		"{type: Domain, value: '*.example.org', port: 443, protocol: tls}",
		"{type: Domain, value: '*.example.org', port: 80, protocol: http}",
	))), nil)
	sidecar, out := b.sidecar(t, "default", "web"), b.egress(t, "out", nil, nil)
	sound(t, sidecar)
	sound(t, out)
	here, there := match.Open(sidecar.Snapshot(), nil), match.Open(out.Snapshot(), nil)
	for _, c := range []struct {
		dst, name string
		first     match.FirstBytes
		cluster   string // of the sidecar
		end       string // "" if the egress tunnels to the dialed address
		closed    bool
	}{
		{"203.0.113.9:443", "api.example.com", match.TLSHello, "meshpassthrough_tls_api.example.com_443",
			"api.example.com:443", false},
		{"203.0.113.9:80", "www.example.com", match.HTTP11, "meshpassthrough_http_www.example.com_80",
			"www.example.com:80", false},
		{"192.0.2.1:5432", "", match.PlainBytes, "meshpassthrough_tcp_192.0.2.1_5432", "192.0.2.1:5432", false},
		{"192.0.2.2:7", "", match.PlainBytes, "meshpassthrough_tcp_192.0.2.2_*", "", false},
		{"198.51.100.7:443", "x.example.net", match.TLSHello, "meshpassthrough_tls_198.51.100.0/25_443", "", false},
		{"198.51.100.7:80", "x.example.net", match.HTTP11, "meshpassthrough_http_198.51.100.0/25_80", "", false},
		{"203.0.113.9:443", "a.example.org", match.TLSHello, "meshpassthrough_tls_*.example.org_443", "", false},
		{"203.0.113.9:80", "a.example.org", match.HTTP11, "meshpassthrough_http_*.example.org_80", "", true},
	} {
		dst := netip.MustParseAddrPort(c.dst)
		conn := &match.Conn{Dst: dst, Src: netip.MustParseAddrPort("10.0.0.1:40000"),
			Entry: netip.MustParseAddrPort("127.0.0.1:15001"), First: c.first}
		if c.first == match.TLSHello {
			conn.SNI = c.name
		}
		got := here.Connection(conn)
		if got.Outcome == match.Accepted {
			got = here.Request(conn, &match.Request{Host: c.name})
		}
		if c.closed {
			if got.Outcome != match.NoCluster {
				t.Errorf("%s %s: %v %+v, want no endpoint", c.dst, c.name, got.Outcome, got.Targets)
			}
			continue
		}
		if got.Outcome != match.Forwarded || got.Targets[0].Cluster != c.cluster ||
			!slices.Equal(got.Targets[0].Endpoints, []string{egressAt}) {
			t.Errorf("%s %s: %v %+v, want %s at the egress", c.dst, c.name, got.Outcome, got.Targets, c.cluster)
			continue
		}
		sni, san := upstream(t, sidecar, c.cluster)
		if san != "spiffe://default/zone-egress" {
			t.Errorf("%s: the proxy believes %q", c.cluster, san)
		}
		in := &match.Conn{Dst: netip.MustParseAddrPort(egressAt), Src: netip.MustParseAddrPort("10.0.0.1:40000"),
			First: match.TLSHello, SNI: sni,
			Peer: &match.Peer{URIs: []string{"spiffe://default/web"}}}
		if c.end != "" {
			if got := there.Connection(in); got.Outcome != match.Forwarded ||
				!slices.Equal(got.Targets[0].Endpoints, []string{c.end}) {
				t.Errorf("%s at the egress: %v %s %+v, want %s", sni, got.Outcome, got.Reason, got.Targets, c.end)
			}
			continue
		}
		ask := func(to string) *match.Trace {
			return there.Request(in, &match.Request{Method: "CONNECT", Host: to,
				Headers: []match.Header{{Name: "x-envoy-original-dst-host", Value: to}}})
		}
		if got := ask(c.dst); got.Outcome != match.Forwarded || got.Targets[0].Cluster != "default:"+c.cluster {
			t.Errorf("a tunnel to %s under %s: %v %s", c.dst, sni, got.Outcome, got.Reason)
		}
		bad := []string{"127.0.0.1:443", "169.254.169.254:443", "203.0.113.9:1", c.dst + "," + c.dst, "example.com:443"}
		if strings.HasPrefix(c.cluster, "meshpassthrough_tcp_192.0.2.2") || strings.Contains(c.cluster, "/25") {
			bad = append(bad, "203.0.113.9:443", "198.51.100.128:443", "198.51.100.128:80")
		}
		for _, to := range bad {
			if got := ask(to); got.Outcome == match.Forwarded {
				t.Errorf("a tunnel to %s passes under %s", to, sni)
			}
		}
		if got := there.Request(in, &match.Request{Host: "example.com",
			Headers: []match.Header{{Name: "x-envoy-original-dst-host", Value: c.dst}}}); got.Outcome == match.Forwarded {
			t.Errorf("a request that is no tunnel passes under %s", sni)
		}
	}
	if w := fmt.Sprint(sidecar.Warnings); !strings.Contains(w, "cannot leave through the ZoneEgress") {
		t.Errorf("requests by wildcard are closed without a word: %s", w)
	}
}

// TestEgressesChange checks that a change of the egresses' addresses changes only the proxies'
// endpoints.
func TestEgressesChange(t *testing.T) {
	docs := borderMesh("default", "routing: {zoneEgress: true}\n") + transparentWeb +
		passthroughOf("{type: Domain, value: api.example.com, port: 443, protocol: tls}") +
		"---\ntype: ExternalService\nmesh: default\nname: pay\ntags: {kuma.io/service: pay}\n" +
		"networking: {address: 'pay.example.com:443'}\n" +
		"---\ntype: MeshExternalService\nmesh: default\nname: real\nspec:\n  match: {port: 443, protocol: http}\n" +
		"  endpoints: [{address: 192.0.2.1, port: 7}]\n"
	memo := generate.NewMemo()
	one := newBorder(t, decode(t, "input", []byte(docs+zoneOut)), nil)
	two := newBorder(t, decode(t, "input",
		[]byte(docs+zoneOut+strings.NewReplacer("name: out", "name: out-2", "10.0.0.9", "10.0.0.8").Replace(zoneOut))), one)
	none := newBorder(t, decode(t, "input", []byte(docs)), one)
	derive := func(b *border, prev *generate.Proxy) *generate.Proxy {
		p, err := generate.Generate(generate.Input{Mesh: b.meshes[0], Name: "web", Flavor: node.FlavorEnvoy}, prev, memo)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := derive(one, nil)
	sound(t, first)
	if repeated := derive(one, first); repeated != first {
		t.Error("nothing has changed, and the config is made anew")
	}
	second := derive(two, first)
	for rank := range draft.Types {
		if same := first.Sealed.Versions[rank] == second.Sealed.Versions[rank]; same !=
			(draft.Types[rank] != draft.TypeEndpoint) {
			t.Errorf("%s: the same with another egress: %v", draft.Types[rank], same)
		}
	}
	if fresh := derive(two, nil); fresh.Sealed.Versions != second.Sealed.Versions {
		t.Error("a change of egresses gives other bytes than a fresh start")
	}
	for _, r := range second.Sealed.Resources[draft.Rank(draft.TypeEndpoint)] {
		if r.Name != "web" &&
			(!strings.Contains(string(r.Body()), "10.0.0.9") || !strings.Contains(string(r.Body()), "10.0.0.8")) {
			t.Errorf("%s has not both egresses", r.Name)
		}
	}
	closed := derive(none, first)
	sound(t, closed)
	for _, r := range closed.Sealed.Resources[draft.Rank(draft.TypeEndpoint)] {
		if strings.Contains(string(r.Body()), "10.0.0.9") {
			t.Errorf("%s leads to an egress that is gone", r.Name)
		}
	}
	if w := fmt.Sprint(none.meshes[0].View.Warnings); !strings.Contains(w, "has no ZoneEgress") {
		t.Errorf("a zone without an egress is not told of: %s", w)
	}
}

// TestManyExternalServices checks that an egress has a cluster for each of 10,000 external
// services, and forwards to the last one.
func TestManyExternalServices(t *testing.T) {
	const n = 10_000
	var docs strings.Builder
	docs.WriteString(zoneOut + borderMesh("default", "routing: {zoneEgress: true}\n"))
	for i := range n {
		fmt.Fprintf(&docs, "---\n{type: ExternalService, mesh: default, name: s%d, tags: {kuma.io/service: s%d}, "+
			"networking: {address: '192.0.2.1:%d'}}\n", i, i, i+1)
	}
	b := newBorder(t, decode(t, "input", []byte(docs.String())), nil)
	p := b.egress(t, "out", nil, nil)
	if len(p.Warnings) > 0 || len(p.Sealed.Resources[draft.Rank(draft.TypeCluster)]) != n {
		t.Errorf("%d clusters, %v", len(p.Sealed.Resources[draft.Rank(draft.TypeCluster)]), p.Warnings)
	}
	got := match.Open(p.Snapshot(), nil).Connection(&match.Conn{Dst: netip.MustParseAddrPort(egressAt),
		Src:   netip.MustParseAddrPort("10.0.0.1:40000"),
		First: match.TLSHello, SNI: "s9999{mesh=default}", Peer: &match.Peer{URIs: []string{"spiffe://default/web"}}})
	if got.Outcome != match.Forwarded || !slices.Equal(got.Targets[0].Endpoints, []string{"192.0.2.1:10000"}) {
		t.Errorf("the last of them: %v %s %+v", got.Outcome, got.Reason, got.Targets)
	}
}

// TestShadowExits checks that a shadow MeshPassthrough adds a cluster to the egress only in the
// shadow config.
func TestShadowExits(t *testing.T) {
	docs := zoneOut + borderMesh("default", "routing: {zoneEgress: true}\n") + transparentWeb +
		strings.Replace(passthroughOf("{type: IP, value: 192.0.2.1, port: 5432, protocol: tcp}"), "name: some\n",
			"name: some\nlabels: {kuma.io/effect: shadow}\n", 1)
	b := newBorder(t, decode(t, "input", []byte(docs)), nil)
	now := b.egress(t, "out", nil, nil)
	b.meshes[0] = b.meshes[0].Shadow()
	shadow := b.egress(t, "out", now, nil)
	clusters := draft.Rank(draft.TypeCluster)
	if n, m := len(now.Sealed.Resources[clusters]), len(shadow.Sealed.Resources[clusters]); n != 0 || m != 1 {
		t.Errorf("%d clusters, in the shadow %d", n, m)
	}
}
