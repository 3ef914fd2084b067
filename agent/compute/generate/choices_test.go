package generate_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// asked returns the server names (SNI) that the clusters of a config send.
func asked(t testing.TB, p *generate.Proxy) []string {
	t.Helper()
	names := map[string]bool{}
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeCluster)] {
		c, ctx := &clusterv3.Cluster{}, &tlsv3.UpstreamTlsContext{}
		if err := proto.Unmarshal(r.Body(), c); err != nil {
			t.Fatal(err)
		}
		if c.TransportSocket == nil {
			continue
		}
		if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(ctx); err != nil {
			t.Fatal(err)
		}
		if ctx.Sni != "" {
			names[ctx.Sni] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// offer is an endpoint and its tags.
type offer struct {
	at   string
	tags map[string]string
}

// wanted returns the endpoints that a server name selects. It parses the server name and uses no
// code under test.
func wanted(t *rapid.T, sni string, offers []offer) []string {
	service, rest, ok := strings.Cut(strings.TrimSuffix(sni, "}"), "{")
	if !ok {
		t.Fatalf("%q is not the name of a tag service", sni)
	}
	want := map[string]string{resource.TagService: service}
	for _, pair := range strings.Split(rest, ",") {
		if k, v, _ := strings.Cut(pair, "="); k != "mesh" {
			want[k] = v
		}
	}
	var out []string
	for _, o := range offers {
		all := true
		for k, v := range want {
			all = all && o.tags[k] == v
		}
		if all {
			out = append(out, o.at)
		}
	}
	slices.Sort(out)
	return out
}

// randomTags draws tags as YAML. It includes the service unless service is "".
func randomTags(rt *rapid.T, service string, any bool) string {
	var tags []string
	if service != "" {
		tags = append(tags, "kuma.io/service: "+service)
	}
	values := []string{"a", "b"}
	if any {
		values = append(values, "'*'")
	}
	for _, k := range []string{"version", "Group", "kuma.io/zone"} {
		if v := rapid.SampledFrom(append([]string{""}, values...)).Draw(rt, k); v != "" {
			if k == "kuma.io/zone" && v != "'*'" {
				v = "east"
			}
			tags = append(tags, k+": "+v)
		}
	}
	return "{" + strings.Join(tags, ", ") + "}"
}

// randomRoutes draws route policies of all three kinds for the services.
func randomRoutes(rt *rapid.T, services []string) string {
	service := rapid.SampledFrom(services)
	ref := func() string {
		return fmt.Sprintf("{kind: MeshServiceSubset, name: %s, tags: %s}", service.Draw(rt, "to"), randomTags(rt, "", false))
	}
	weighted := func() string { return strings.TrimSuffix(ref(), "}") + ", weight: 1}" }
	var docs strings.Builder
	for i := range rapid.IntRange(0, 5).Draw(rt, "routes") {
		about := "{kind: MeshService, name: " + service.Draw(rt, "about") + "}"
		top := rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshSubset, tags: {kuma.io/service: web}}",
			"{kind: MeshService, name: other}"}).Draw(rt, "top")
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0:
			fmt.Fprintf(&docs, "---\ntype: MeshHTTPRoute\nmesh: m\nname: h%d\nspec:\n  targetRef: %s\n  to:\n  - targetRef: "+
				"%s\n    rules:\n    - matches: [{path: {type: PathPrefix, value: /x}}]\n      default: {backendRefs: [%s, %s]}\n",
				i, top, about, weighted(), weighted())
		case 1:
			fmt.Fprintf(&docs, "---\ntype: MeshHTTPRoute\nmesh: m\nname: h%d\nspec:\n  targetRef: %s\n  to:\n"+
				"  - targetRef: %s\n    rules:\n    - matches: [{path: {type: PathPrefix, value: /y}}]\n"+
				"      default: {filters: [{type: RequestMirror, requestMirror: {backendRef: %s}}]}\n", i, top, about, ref())
		case 2:
			fmt.Fprintf(&docs, "---\ntype: MeshTCPRoute\nmesh: m\nname: t%d\nspec:\n  targetRef: %s\n  to:\n"+
				"  - targetRef: %s\n    rules: [{default: {backendRefs: [%s]}}]\n", i, top, about, weighted())
		case 3:
			to := rapid.SampledFrom(append([]string{"'*'"}, services...))
			split := func() string {
				return fmt.Sprintf("[{weight: 1, destination: %s}, {weight: 0, destination: %s}]",
					randomTags(rt, to.Draw(rt, "split"), true), randomTags(rt, to.Draw(rt, "no split"), true))
			}
			fmt.Fprintf(&docs, "---\ntype: TrafficRoute\nmesh: m\nname: r%d\nsources: [{match: {kuma.io/service: '*'}}]\n"+
				"destinations: [{match: {kuma.io/service: %s}}]\nconf:\n  split: %s\n"+
				"  http: [{match: {path: {prefix: /z}}, split: %s}]\n", i, to.Draw(rt, "destination"), split(), split())
		}
	}
	return docs.String()
}

// crossing checks that a zone proxy forwards each of the server names to the wanted endpoints. It
// returns how many server names with tags were forwarded.
func crossing(rt *rapid.T, asked []string, border *generate.Proxy, at string, offers []offer) (choices int) {
	engine := match.Open(border.Snapshot(), nil)
	for _, sni := range asked {
		want := wanted(rt, sni, offers)
		conn := &match.Conn{Dst: netip.MustParseAddrPort(at), Src: netip.MustParseAddrPort("10.0.0.1:40000"),
			First: match.TLSHello, SNI: sni,
			ALPN: []string{"kuma"}, Peer: &match.Peer{URIs: []string{"spiffe://m/web"}}}
		got := engine.Request(conn, &match.Request{Method: "GET", Host: "x", Path: "/"})
		var ends []string
		for _, target := range got.Targets {
			ends = append(ends, target.Endpoints...)
		}
		slices.Sort(ends)
		switch {
		case len(want) == 0 && len(ends) == 0:
		case got.Outcome != match.Forwarded || !slices.Equal(ends, want):
			rt.Fatalf("what asks for %q ends at %v (%v %s), want %v", sni, ends, got.Outcome, got.Reason, want)
		case strings.Contains(sni, "="+"a") || strings.Contains(sni, "="+"b") || strings.Contains(sni, "=east"):
			choices++
		}
	}
	return choices
}

// TestRoutesCrossTheBorder checks random outbounds and routes: for each server name that the
// proxies of a mesh send, the egress and the ingress of another zone have a chain that leads to
// exactly the endpoints with these tags.
func TestRoutesCrossTheBorder(t *testing.T) {
	out, in := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var outside, inside []offer
		outsiders, insiders := []string{"ext0", "ext1"}, []string{"svc0", "svc1"}
		docs := borderMesh("m", "routing: {zoneEgress: true}\n") + zoneIn +
			strings.Replace(zoneOut, "networking", "zone: west\nnetworking", 1)
		protocol := rapid.SampledFrom([]string{"http", "tcp"}).Draw(rt, "protocol")
		for i := range 2 {
			for j := range 4 {
				tags := map[string]string{resource.TagService: outsiders[i], "version": string("ab"[j&1]),
					"Group": string("ab"[j>>1])}
				at := fmt.Sprintf("192.0.%d.%d:7", i, j)
				outside = append(outside, offer{at, tags})
				docs += fmt.Sprintf("---\ntype: ExternalService\nmesh: m\nname: x%d-%d\n"+
					"tags: {kuma.io/service: %s, kuma.io/protocol: %s, version: %s, Group: %s}\nnetworking: {address: '%s'}\n",
					i, j, outsiders[i], protocol, tags["version"], tags["Group"], at)
				tags = maps.Clone(tags)
				tags[resource.TagService], tags[resource.TagZone] = insiders[i], "east"
				inside = append(inside, offer{fmt.Sprintf("10.1.%d.%d:80", i, j), tags})
				docs += fmt.Sprintf("---\ntype: Dataplane\nmesh: m\nname: e%d-%d\nnetworking: {address: 10.1.%d.%d, inbound: "+
					"[{port: 80, tags: {kuma.io/service: %s, kuma.io/zone: east, kuma.io/protocol: %s, version: %s, Group: %s}}]}\n",
					i, j, i, j, insiders[i], protocol, tags["version"], tags["Group"])
			}
		}
		all := append(slices.Clone(outsiders), insiders...)
		var outbounds []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "outbounds") {
			outbounds = append(outbounds,
				fmt.Sprintf("{port: %d, tags: %s}", 20000+i, randomTags(rt, rapid.SampledFrom(all).Draw(rt, "service"), false)))
		}
		docs += strings.Replace(dataplaneOf("m", strings.Join(outbounds, ", ")), "service: web}",
			"service: web, kuma.io/zone: west}", 1)
		docs += "---\ntype: Dataplane\nmesh: m\nname: tp\nnetworking:\n  address: 10.0.0.2\n" +
			"  inbound: [{port: 8080, tags: {kuma.io/service: other, kuma.io/zone: west}}]\n" +
			"  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n"
		docs += randomRoutes(rt, all)
		rs := decode(t, "input", []byte(docs))
		west, east := zoneOf(t, rs, "west"), zoneOf(t, rs, "east")
		leaving := west.input("out")
		leaving.Zone = "west"
		memo := generate.NewMemo()
		egress, err := generate.GenerateZone(leaving, nil, memo)
		if err != nil {
			rt.Fatal(err)
		}
		ingress := east.ingressOf(t, "east", nil, memo)
		sound(t, egress)
		sound(t, ingress)
		if repeated, _ := generate.GenerateZone(leaving, nil, nil); repeated.Sealed.Versions != egress.Sealed.Versions {
			rt.Fatal("the same input gives other bytes")
		}
		for _, name := range []string{"web", "tp"} {
			var leaves, stays []string
			for _, sni := range asked(t, west.sidecar(t, "m", name)) {
				if strings.HasPrefix(sni, "ext") {
					leaves = append(leaves, sni)
				} else if strings.HasPrefix(sni, "svc") {
					stays = append(stays, sni)
				}
			}
			out += crossing(rt, leaves, egress, egressAt, outside)
			in += crossing(rt, stays, ingress, ingressAt, inside)
		}
	})
	if out == 0 || in == 0 {
		t.Errorf("no choice of tags crossed the border: %d out, %d in", out, in)
	}
}

// TestTooManyChoices checks that a warning names the first policy whose tag combinations exceed the
// limit, and that all others work.
func TestTooManyChoices(t *testing.T) {
	var refs strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&refs, "{kind: MeshServiceSubset, name: ext, tags: {version: v%d}}, ", i)
	}
	docs := borderMesh("m", "routing: {zoneEgress: true}\n") + zoneIn + zoneOut +
		"---\ntype: ExternalService\nmesh: m\nname: x\ntags: {kuma.io/service: ext, version: v7}\n" +
		"networking: {address: '192.0.2.1:7'}\n"
	route := func(name, refs string) string {
		return fmt.Sprintf("---\ntype: MeshTCPRoute\nmesh: m\nname: %s\nspec:\n  targetRef: {kind: Mesh}\n"+
			"  to: [{targetRef: {kind: MeshService, name: ext}, rules: [{default: {backendRefs: [%s]}}]}]\n", name, refs)
	}
	rs := decode(t, "input", []byte(docs+route("long", refs.String())))
	memo := generate.NewMemo()
	west, east := zoneOf(t, rs, mesh.DefaultZone), zoneOf(t, rs, "east")
	out, in := west.egress(t, "out", nil, memo), east.ingressOf(t, "east", nil, memo)
	for _, p := range []*generate.Proxy{out, in} {
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].Reason, "those from MeshTCPRoute/m/long on") {
			t.Errorf("%s: %v", p.Name, p.Warnings)
		}
	}
	if got := out.Sealed.Resources[draft.Rank(draft.TypeCluster)]; len(got) != 10_001 {
		t.Errorf("%d clusters", len(got))
	}
	few := zoneOf(t,
		decode(t, "input", []byte(docs+route("long", "{kind: MeshServiceSubset, name: ext, tags: {version: v7}}"))),
		mesh.DefaultZone)
	if p := few.egress(t, "out", out, memo); len(p.Warnings) != 0 ||
		len(p.Sealed.Resources[draft.Rank(draft.TypeCluster)]) != 2 {
		t.Errorf("after it was shortened: %v", p.Warnings)
	}
}
