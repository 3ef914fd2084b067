package generate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"google.golang.org/protobuf/proto"
)

// border holds the resources and meshes of a zone whose zone proxies are tested.
type border struct {
	set    *resource.Set
	meshes []*generate.Mesh
}

// newBorder derives all meshes of the resources.
func newBorder(t testing.TB, rs []*resource.Resource, prev *border) *border {
	t.Helper()
	b := &border{set: resource.NewSet(rs)}
	for i, r := range b.set.Kind("Mesh") {
		var last *generate.Mesh
		if prev != nil && i < len(prev.meshes) {
			last = prev.meshes[i]
		}
		m, err := generate.NewMesh(b.set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, last)
		if err != nil {
			t.Fatal(err)
		}
		b.meshes = append(b.meshes, m)
	}
	return b
}

func (b *border) input(name string) generate.ZoneInput {
	return generate.ZoneInput{
		Resource: b.set.Get(resource.Key{Kind: "ZoneEgress", Name: name}), Zone: mesh.DefaultZone, Meshes: b.meshes,
		Flavor: node.FlavorEnvoy, SystemCA: "/etc/ssl/certs/ca-certificates.crt",
	}
}

func (b *border) egress(t testing.TB, name string, prev *generate.Proxy, memo *generate.Memo) *generate.Proxy {
	t.Helper()
	p, err := generate.GenerateZone(b.input(name), prev, memo)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *border) sidecar(t testing.TB, mesh, name string) *generate.Proxy {
	t.Helper()
	for _, m := range b.meshes {
		if m.View.Name == mesh {
			p, err := generate.Generate(generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("no mesh %s", mesh)
	return nil
}

// sound fails the test if Envoy would reject the config.
func sound(t testing.TB, p *generate.Proxy) {
	t.Helper()
	for _, f := range p.Check(&check.Checker{}, nil) {
		if f.Severity.Blocks() {
			t.Errorf("%v %s %s %s: %s", f.Severity, f.Type, f.Resource, f.Pointer, f.Message)
		}
	}
}

// lines returns the fields of a config as "path = value".
func lines(t testing.TB, p *generate.Proxy) []string {
	t.Helper()
	doc, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				out = append(out, path+" = {}")
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(path+"/"+k, v[k])
			}
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s/%d", path, i), x)
			}
		default:
			b, _ := json.Marshal(v)
			out = append(out, path+" = "+string(b))
		}
	}
	for url, list := range doc {
		for name, body := range list {
			var v any
			d := json.NewDecoder(bytes.NewReader(body))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			walk(url[strings.LastIndexByte(url, '.')+1:]+"/"+name, v)
		}
	}
	slices.Sort(out)
	return out
}

// egressAt is the address of the egress in these tests.
const egressAt = "10.0.0.9:10002"

// borderMesh returns a mesh with mTLS in which all traffic is allowed.
func borderMesh(name, more string) string {
	return closedMesh(name, more) + "---\n{type: MeshTrafficPermission, mesh: " + name +
		", name: all, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}\n"
}

// closedMesh returns a mesh with mTLS and without permissions.
func closedMesh(name, more string) string {
	return "---\ntype: Mesh\nname: " + name + "\nmtls:\n  enabledBackend: ca\n  backends: [{name: ca, type: builtin}]\n" +
		more
}

const zoneOut = "---\ntype: ZoneEgress\nname: out\nnetworking: {address: 10.0.0.9, port: 10002}\n"

func dataplaneOf(mesh, outbounds string) string {
	return "---\ntype: Dataplane\nmesh: " + mesh + "\nname: web\nnetworking:\n  address: 10.0.0.1\n" +
		"  inbound: [{port: 8080, tags: {kuma.io/service: web}}]\n  outbound: [" + outbounds + "]\n"
}

// upstream returns the server name (SNI) that a cluster sends, and the SAN that it accepts.
func upstream(t testing.TB, p *generate.Proxy, cluster string) (sni, san string) {
	t.Helper()
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeCluster)] {
		if r.Name != cluster {
			continue
		}
		c, ctx := &clusterv3.Cluster{}, &tlsv3.UpstreamTlsContext{}
		if err := proto.Unmarshal(r.Body(), c); err != nil {
			t.Fatal(err)
		}
		if c.TransportSocket == nil {
			t.Fatalf("cluster %s is without TLS", cluster)
		}
		if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(ctx); err != nil {
			t.Fatal(err)
		}
		sans := ctx.CommonTlsContext.GetCombinedValidationContext().GetDefaultValidationContext().
			GetMatchTypedSubjectAltNames()
		if len(sans) != 1 {
			t.Fatalf("cluster %s believes %v", cluster, sans)
		}
		return ctx.Sni, sans[0].Matcher.GetExact()
	}
	t.Fatalf("there is no cluster %s", cluster)
	return "", ""
}

// through follows a connection from a local port of the workload through its proxy and the egress.
// It returns the egress's cluster for the connection and that cluster's endpoints.
func through(t testing.TB, b *border, meshName string, sidecar, out *generate.Proxy,
	dst string) (cluster string, endpoints []string) {
	t.Helper()
	request := &match.Request{Method: "GET", Host: "api.example.com", Path: "/"}
	first := match.Open(sidecar.Snapshot(), nil).Request(&match.Conn{
		Dst: netip.MustParseAddrPort(dst), Src: netip.MustParseAddrPort("127.0.0.1:40000"), First: match.HTTP11,
	}, request)
	if first.Outcome != match.Forwarded || len(first.Targets) != 1 ||
		!slices.Contains(first.Targets[0].Endpoints, egressAt) {
		t.Fatalf("to %s: the proxy does not lead to the egress: %v %s %+v", dst, first.Outcome, first.Reason, first.Targets)
	}
	sni, san := upstream(t, sidecar, first.Targets[0].Cluster)
	if want := "spiffe://" + meshName + "/zone-egress"; san != want {
		t.Fatalf("to %s: the proxy believes %q, and the egress proves %q", dst, san, want)
	}
	second := match.Open(out.Snapshot(), nil).Request(&match.Conn{
		Dst: netip.MustParseAddrPort(egressAt), Src: netip.MustParseAddrPort("10.0.0.1:40000"), First: match.TLSHello,
		SNI: sni, ALPN: []string{"kuma"}, Peer: &match.Peer{URIs: []string{"spiffe://" + meshName + "/web"}},
	}, request)
	if second.Outcome != match.Forwarded || len(second.Targets) != 1 {
		t.Fatalf("to %s: the egress does not forward what asks for %q: %v %s", dst, sni, second.Outcome, second.Reason)
	}
	return second.Targets[0].Cluster, second.Targets[0].Endpoints
}
