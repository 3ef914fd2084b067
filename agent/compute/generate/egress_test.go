package generate_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"
)

// TestEgressCases runs testdata/egress/*.txtar. Each case has input.yaml and the fields and
// warnings of the egress "out". A line "only: PREFIX" in the comment restricts the comparison to
// these fields. UPDATE_GOLDEN=1 rewrites the cases.
func TestEgressCases(t *testing.T) {
	kindtest.Cases(t, "testdata/egress/*.txtar", func(t *testing.T, file string, a *txtar.Archive) {
		var only []string
		for line := range strings.Lines(string(a.Comment)) {
			if prefix, ok := strings.CutPrefix(line, "only: "); ok {
				only = append(only, strings.TrimSpace(prefix))
			}
		}
		b := newBorder(t, decode(t, "input.yaml", a.Files[0].Data), nil)
		p := b.egress(t, "out", nil, nil)
		sound(t, p)
		var got strings.Builder
		for _, line := range lines(t, p) {
			if len(only) == 0 ||
				slices.ContainsFunc(only, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
				got.WriteString(line + "\n")
			}
		}
		var warnings []mesh.Warning
		for _, m := range b.meshes {
			warnings = append(warnings, m.View.Warnings...)
		}
		for _, w := range append(warnings, p.Warnings...) {
			fmt.Fprintf(&got, "! %s: %s\n", w.Resource, w.Reason)
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			a.Files = []txtar.File{a.Files[0], {Name: "config.txt", Data: []byte(got.String())}}
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if len(a.Files) < 2 {
			t.Fatal("the case has no config.txt; run with UPDATE_GOLDEN=1")
		}
		if d := cmp.Diff(strings.Split(string(a.Files[1].Data), "\n"), strings.Split(got.String(), "\n")); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

// TestEgressIsFollowed follows connections from a proxy through the egress for random services. It
// checks that both use the same server name, and that each connection ends at the endpoints of its
// service.
func TestEgressIsFollowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-zA-Z0-9._:-]{0,20}[a-z0-9]`)
		n := rapid.IntRange(1, 6).Draw(rt, "services")
		var docs strings.Builder
		meshes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}[a-z]`), 1, 2, rapid.ID).Draw(rt, "meshes")
		slices.Sort(meshes)
		docs.WriteString(zoneOut)
		type want struct{ mesh, dst, endpoint string }
		var wants []want
		for mi, m := range meshes {
			docs.WriteString(borderMesh(m, "routing: {zoneEgress: true}\n"))
			var outbounds []string
			taken := map[string]bool{}
			for i := range n {
				service := name.Draw(rt, "service")
				if taken[strings.ToLower(service)] {
					continue
				}
				taken[strings.ToLower(service)] = true
				protocol := rapid.SampledFrom([]string{"tcp", "http", "http2", "grpc"}).Draw(rt, "protocol")
				dst := fmt.Sprintf("127.0.0.1:%d", 20000+i)
				if rapid.Bool().Draw(rt, "real") {
					at := fmt.Sprintf("192.0.%d.%d", mi, i)
					fmt.Fprintf(&docs, "---\ntype: MeshExternalService\nmesh: %s\nname: m%d\nspec:\n  match: {type: "+
						"HostnameGenerator, port: 443, protocol: %s}\n  endpoints: [{address: %s, port: 7}]\n", m, i, protocol, at)
					outbounds = append(outbounds,
						fmt.Sprintf("{port: %d, backendRef: {kind: MeshExternalService, name: m%d, port: 443}}", 20000+i, i))
					wants = append(wants, want{m, dst, at + ":7"})
					continue
				}
				for v, tags := range []string{"a", "b"} {
					at := fmt.Sprintf("198.51.%d.%d", 10*mi+v, i)
					fmt.Fprintf(&docs, "---\ntype: ExternalService\nmesh: %s\nname: e%d-%d\ntags: {kuma.io/service: '%s', "+
						"kuma.io/protocol: %s, Version: %s}\nnetworking: {address: '%s:7'}\n", m, i, v, service, protocol, tags, at)
				}
				tag := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tag")
				outbounds = append(outbounds,
					fmt.Sprintf("{port: %d, tags: {kuma.io/service: '%s', Version: %s}}", 20000+i, service, tag))
				wants = append(wants, want{m, dst, fmt.Sprintf("198.51.%d.%d:7", 10*mi+int(tag[0]-'a'), i)})
			}
			docs.WriteString(dataplaneOf(m, strings.Join(outbounds, ", ")))
		}
		b := newBorder(t, decode(t, "input", []byte(docs.String())), nil)
		out := b.egress(t, "out", nil, nil)
		sound(t, out)
		for _, w := range wants {
			cluster, endpoints := through(t, b, w.mesh, b.sidecar(t, w.mesh, "web"), out, w.dst)
			if len(endpoints) != 1 || endpoints[0] != w.endpoint {
				rt.Fatalf("mesh %s, %s: cluster %s leads to %v, want %s", w.mesh, w.dst, cluster, endpoints, w.endpoint)
			}
		}
	})
}

// TestEgressKnowsTheMesh checks that the egress refuses connections without a certificate of the
// mesh or without a known server name.
func TestEgressKnowsTheMesh(t *testing.T) {
	b := newBorder(t, decode(t, "input", []byte(zoneOut+borderMesh("a", "routing: {zoneEgress: true}\n")+
		borderMesh("b", "")+"---\ntype: ExternalService\nmesh: a\nname: api\ntags: {kuma.io/service: api}\n"+
		"networking: {address: '192.0.2.1:7'}\n"+dataplaneOf("a", "{port: 20000, tags: {kuma.io/service: api}}"))), nil)
	out, sni := b.egress(t, "out", nil, nil), "api{mesh=a}"
	if got, _ := through(t, b, "a", b.sidecar(t, "a", "web"), out, "127.0.0.1:20000"); got != "a:api" {
		t.Fatalf("a proxy of the mesh ends at %q", got)
	}
	for _, c := range []struct {
		what string
		conn match.Conn
	}{
		{"another mesh", match.Conn{First: match.TLSHello, SNI: sni, Peer: &match.Peer{URIs: []string{"spiffe://b/web"}}}},
		{"a mesh that begins alike",
			match.Conn{First: match.TLSHello, SNI: sni, Peer: &match.Peer{URIs: []string{"spiffe://ab/web"}}}},
		{"no certificate", match.Conn{First: match.TLSHello, SNI: sni}},
		{"another name",
			match.Conn{First: match.TLSHello, SNI: "api{mesh=b}", Peer: &match.Peer{URIs: []string{"spiffe://a/web"}}}},
		{"no name", match.Conn{First: match.TLSHello, Peer: &match.Peer{URIs: []string{"spiffe://a/web"}}}},
		{"no TLS", match.Conn{First: match.PlainBytes}},
	} {
		c.conn.Dst, c.conn.Src = netip.MustParseAddrPort(egressAt), netip.MustParseAddrPort("10.0.0.1:40000")
		if got := match.Open(out.Snapshot(), nil).Connection(&c.conn); got.Outcome == match.Forwarded ||
			got.Outcome == match.Accepted {
			t.Errorf("%s: %v %+v", c.what, got.Outcome, got.Targets)
		}
	}
}

// TestEgressStaysTheSame checks that the egress reuses its config if nothing changes, that new
// secrets change only the secrets, and that 1,000 runs produce the same bytes.
func TestEgressStaysTheSame(t *testing.T) {
	docs := zoneOut + borderMesh("a", "routing: {zoneEgress: true}\n") + borderMesh("b", "") +
		"---\ntype: ExternalService\nmesh: a\nname: api\ntags: {kuma.io/service: api, kuma.io/protocol: http, v: '1'}\n" +
		"networking: {address: 'api.example.com:443', tls: {enabled: true}}\n" +
		"---\ntype: MeshExternalService\nmesh: b\nname: api\nspec:\n  match: {port: 443, protocol: tcp}\n  endpoints: " +
		"[{address: 192.0.2.1, port: 7}]\n" + dataplaneOf("a", "{port: 20000, tags: {kuma.io/service: api, v: '1'}}")
	memo := generate.NewMemo()
	b := newBorder(t, decode(t, "input", []byte(docs)), nil)
	first := b.egress(t, "out", nil, memo)
	want := lines(t, first)
	for range 1000 {
		if p := b.egress(t, "out", nil, nil); p.Sealed.Versions != first.Sealed.Versions {
			t.Fatal("the same input gives other bytes")
		}
	}
	if d := cmp.Diff(want, lines(t, b.egress(t, "out", nil, nil))); d != "" {
		t.Errorf("-first +again:\n%s", d)
	}
	other := newBorder(t, decode(t, "input", []byte(docs+"---\ntype: Dataplane\nmesh: b\nname: more\nnetworking:\n"+
		"  address: 10.0.0.7\n  inbound: [{port: 80, tags: {kuma.io/service: more}}]\n")), b)
	if p := other.egress(t, "out", first, memo); p != first {
		t.Error("a dataplane that does not concern the egress has its config made anew")
	}
	in := b.input("out")
	in.Secrets = map[string]*identity.Secrets{"a": new(identity.Secrets)}
	secrets, err := generate.GenerateZone(in, first, memo)
	if err != nil {
		t.Fatal(err)
	}
	rank := draft.Rank(draft.TypeSecret)
	for r, list := range secrets.Sealed.Resources {
		if same := secrets.Sealed.Versions[r] == first.Sealed.Versions[r]; same != (r != rank) {
			t.Errorf("%s: the same version: %v", draft.Types[r], same)
		}
		if r != rank && len(list) > 0 && &list[0] != &first.Sealed.Resources[r][0] {
			t.Errorf("%s is made anew", draft.Types[r])
		}
	}
	if repeated, _ := generate.GenerateZone(in, secrets, memo); repeated != secrets {
		t.Error("the same secrets make another config")
	}
	changed := newBorder(t, decode(t, "input", []byte(strings.Replace(docs, "port: 7}", "port: 8}", 1))), b)
	p := changed.egress(t, "out", first, memo)
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeCluster)] {
		if kept := slices.Contains(first.Sealed.Resources[draft.Rank(draft.TypeCluster)],
			r); kept == strings.HasPrefix(r.Name, "b:") {
			t.Errorf("cluster %s is kept: %v", r.Name, kept)
		}
	}
}

func TestEgressIsRefused(t *testing.T) {
	b := newBorder(t, decode(t, "input", []byte(zoneOut+
		"---\ntype: ZoneEgress\nname: named\nnetworking: {address: egress.example.com, port: 10002}\n"+
		"---\ntype: ZoneEgress\nname: west\nzone: west\nnetworking: {address: 10.0.0.9, port: 10002}\n")), nil)
	for name, want := range map[string]string{"named": "give an IP address", "west": `belongs to zone "west"`} {
		if p, err := generate.GenerateZone(b.input(name), nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	in := b.input("out")
	in.Flavor = node.FlavorGRPC
	if p, err := generate.GenerateZone(in, nil, nil); err == nil || !strings.Contains(err.Error(), "gRPC") {
		t.Errorf("%v, %v", p, err)
	}
	if p := b.egress(t, "out", nil, nil); len(p.Sealed.Resources[draft.Rank(draft.TypeListener)]) != 0 {
		t.Error("an egress without anything to do listens")
	}
}
