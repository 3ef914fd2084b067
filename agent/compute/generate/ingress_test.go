package generate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// zoneOf derives all meshes of the resources as an agent in the zone does.
func zoneOf(t testing.TB, rs []*resource.Resource, zone string) *border {
	t.Helper()
	b := &border{set: resource.NewSet(rs)}
	for _, r := range b.set.Kind("Mesh") {
		m, err := generate.NewMesh(b.set, r.Name, mesh.Options{Zone: zone}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.meshes = append(b.meshes, m)
	}
	return b
}

// ingressOf generates the config of the ingress "in" of a zone.
func (b *border) ingressOf(t testing.TB, zone string, prev *generate.Proxy, memo *generate.Memo) *generate.Proxy {
	t.Helper()
	p, err := generate.GenerateZone(generate.ZoneInput{
		Resource: b.set.Get(resource.Key{Kind: "ZoneIngress", Name: "in"}), Zone: zone, Meshes: b.meshes,
		Flavor: node.FlavorEnvoy,
	}, prev, memo)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ingressAt is the address of the ingress in these tests.
const ingressAt = "10.9.0.1:10001"

const zoneIn = "---\ntype: ZoneIngress\nname: in\nzone: east\nnetworking: {address: 10.9.0.1, port: 10001}\n"

// arrive follows a connection from a local port of a workload in zone west through the ingress of
// zone east, and through the egress of zone west unless out is nil. It returns the endpoints that
// the connection may reach.
func arrive(t testing.TB, sidecar, in, out *generate.Proxy, dst string) []string {
	t.Helper()
	request := &match.Request{Method: "GET", Host: "web", Path: "/"}
	first := match.Open(sidecar.Snapshot(), nil).Request(&match.Conn{
		Dst: netip.MustParseAddrPort(dst), Src: netip.MustParseAddrPort("127.0.0.1:40000"), First: match.HTTP11}, request)
	next := ingressAt
	if out != nil {
		next = egressAt
	}
	if first.Outcome != match.Forwarded || len(first.Targets) != 1 || !slices.Contains(first.Targets[0].Endpoints, next) ||
		out != nil && slices.Contains(first.Targets[0].Endpoints, ingressAt) {
		t.Fatalf("to %s: the proxy does not lead to %s: %v %s %+v", dst, next, first.Outcome, first.Reason, first.Targets)
	}
	sni, _ := upstream(t, sidecar, first.Targets[0].Cluster)
	if out != nil {
		between := match.Open(out.Snapshot(), nil).Connection(&match.Conn{
			Dst: netip.MustParseAddrPort(egressAt), Src: netip.MustParseAddrPort("10.0.0.1:40000"), First: match.TLSHello,
			SNI: sni, ALPN: []string{"kuma"}})
		if between.Outcome != match.Forwarded || len(between.Targets) != 1 ||
			!slices.Equal(between.Targets[0].Endpoints, []string{ingressAt}) {
			t.Fatalf("to %s: the egress does not lead what asks for %q to the ingress: %v %s %+v",
				dst, sni, between.Outcome, between.Reason, between.Targets)
		}
	}
	second := match.Open(in.Snapshot(), nil).Connection(&match.Conn{
		Dst: netip.MustParseAddrPort(ingressAt), Src: netip.MustParseAddrPort("10.0.0.1:40000"), First: match.TLSHello,
		SNI: sni, ALPN: []string{"kuma"}})
	if second.Outcome != match.Forwarded || len(second.Targets) != 1 {
		t.Fatalf("to %s: the ingress does not forward what asks for %q: %v %s", dst, sni, second.Outcome, second.Reason)
	}
	return second.Targets[0].Endpoints
}

// TestIngressIsFollowed follows connections between two zones for random services of all kinds and
// random tags. It checks that the ingress of one zone forwards each server name of a proxy in the
// other zone to exactly the instances in its own zone.
func TestIngressIsFollowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}[a-z0-9]`)
		names := rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(rt, "services")
		docs := borderMesh("m", "") + zoneIn
		leaves := rapid.Bool().Draw(rt, "through the egress")
		if leaves {
			docs = borderMesh("m", "routing: {zoneEgress: true}\n") + zoneIn + zoneOut
		}
		var outbounds []string
		type want struct {
			dst string
			at  []string
		}
		var wants []want
		reach := func(ref string, at ...string) {
			dst := 20000 + len(wants)
			outbounds = append(outbounds, fmt.Sprintf("{port: %d, %s}", dst, ref))
			wants = append(wants, want{fmt.Sprintf("127.0.0.1:%d", dst), at})
		}
		for i, s := range names {
			var east []string
			for v := range 2 {
				east = append(east, fmt.Sprintf("10.1.%d.%d:80", i, v))
				docs += fmt.Sprintf("---\ntype: Dataplane\nmesh: m\nname: e%d-%d\nnetworking: {address: 10.1.%d.%d, "+
					"inbound: [{port: 80, tags: {kuma.io/service: %s, kuma.io/protocol: http, kuma.io/zone: east, Version: v%d}}]}\n",
					i, v, i, v, s, v)
			}
			if rapid.Bool().Draw(rt, "in both zones") {
				docs += fmt.Sprintf("---\ntype: Dataplane\nmesh: m\nname: w%d\nnetworking: {address: 10.0.1.%d, inbound: [{port: "+
					"80, tags: {kuma.io/service: %s, kuma.io/protocol: http, kuma.io/zone: west, Version: v0}}]}\n", i, i, s)
			}
			docs += fmt.Sprintf("---\ntype: MeshService\nmesh: m\nname: all-%d\nspec: {selector: {dataplaneTags: "+
				"{kuma.io/service: %s}}, ports: [{port: 8080, targetPort: 80, appProtocol: http}]}\n", i, s)
			docs += fmt.Sprintf("---\ntype: MeshService\nmesh: m\nname: east-%d\nlabels: {kuma.io/zone: east, n: n%d}\nspec: "+
				"{selector: {dataplaneTags: {kuma.io/service: %s}}, ports: [{port: 8080, targetPort: 80, appProtocol: http}]}\n",
				i, i, s)
			docs += fmt.Sprintf("---\ntype: MeshMultiZoneService\nmesh: m\nname: both-%d\n"+
				"spec: {selector: {meshService: {matchLabels: {n: n%d}}}, ports: [{port: 8080, appProtocol: http}]}\n", i, i)
			reach("tags: {kuma.io/service: "+s+"}", east...)
			reach("tags: {kuma.io/service: "+s+", Version: v1}", east[1])
			reach("tags: {kuma.io/service: "+s+", kuma.io/zone: east}", east...)
			reach(fmt.Sprintf("backendRef: {kind: MeshService, name: all-%d, port: 8080}", i), east...)
			reach(fmt.Sprintf("backendRef: {kind: MeshService, name: east-%d, port: 8080}", i), east...)
			reach(fmt.Sprintf("backendRef: {kind: MeshMultiZoneService, name: both-%d, port: 8080}", i), east...)
		}
		docs += dataplaneOf("m", strings.Join(outbounds, ", "))
		rs := decode(t, "input", []byte(docs))
		for _, r := range rs {
			if dp, ok := r.Spec.(*resource.Dataplane); ok && r.Name == "web" {
				dp.Networking.Inbound[0].Tags[resource.TagZone] = "west"
			}
		}
		west, east := zoneOf(t, rs, "west"), zoneOf(t, rs, "east")
		in := east.ingressOf(t, "east", nil, nil)
		sound(t, in)
		sidecar := west.sidecar(t, "m", "web")
		sound(t, sidecar)
		var out *generate.Proxy
		if leaves {
			out = west.egress(t, "out", nil, nil)
			sound(t, out)
			if n := len(out.Sealed.Resources[draft.Rank(draft.TypeSecret)]); n > 0 {
				t.Errorf("an egress that ends no TLS has %d secrets", n)
			}
		}
		for _, w := range wants {
			got := arrive(t, sidecar, in, out, w.dst)
			slices.Sort(got)
			if !slices.Equal(got, w.at) {
				rt.Fatalf("%s (%s): ends at %v, want %v", w.dst, outbounds[slices.IndexFunc(wants, func(o want) bool {
					return o.dst == w.dst
				})], got, w.at)
			}
		}
	})
}

// TestIngressIsKept checks that the ingress reuses its config if nothing changes, and that a new
// address of one endpoint changes one resource. It also checks that the ingress does not forward a
// connection with a missing or unknown server name.
func TestIngressIsKept(t *testing.T) {
	docs := func(address string) []*resource.Resource {
		return decode(t, "input", []byte(borderMesh("m", "")+zoneIn+
			"---\ntype: Dataplane\nmesh: m\nname: a\nnetworking: {address: "+address+", inbound: [{port: 80, "+
			"tags: {kuma.io/service: a, kuma.io/zone: east}}]}\n---\ntype: Dataplane\nmesh: m\nname: w\n"+
			"networking: {address: 10.0.0.9, inbound: [{port: 80, tags: {kuma.io/service: w, kuma.io/zone: west}}]}\n"))
	}
	memo := generate.NewMemo()
	first := zoneOf(t, docs("10.1.0.1"), "east").ingressOf(t, "east", nil, memo)
	if repeated := zoneOf(t, docs("10.1.0.1"), "east").ingressOf(t, "east", first, memo); repeated != first {
		t.Error("nothing changed, and the config is another")
	}
	next := zoneOf(t, docs("10.1.0.2"), "east").ingressOf(t, "east", first, memo)
	changed := 0
	for rank, list := range next.Sealed.Resources {
		for i, r := range list {
			if r.Version != first.Sealed.Resources[rank][i].Version {
				changed++
			}
		}
	}
	if changed != 1 {
		t.Errorf("an endpoint moved, and %d resources changed", changed)
	}
	sound(t, next)
	for _, c := range []match.Conn{
		{First: match.TLSHello}, {First: match.PlainBytes}, {First: match.TLSHello, SNI: "w{mesh=m}"},
		{First: match.TLSHello, SNI: "a{mesh=other}"},
	} {
		c.Dst, c.Src = netip.MustParseAddrPort(ingressAt), netip.MustParseAddrPort("10.0.0.1:40000")
		if got := match.Open(next.Snapshot(), nil).Connection(&c); got.Outcome == match.Forwarded {
			t.Errorf("%+v is forwarded to %v", c, got.Targets)
		}
	}
	if _, err := generate.GenerateZone(generate.ZoneInput{Resource: zoneOf(t, docs("10.1.0.1"), "west").set.Get(
		resource.Key{Kind: "ZoneIngress", Name: "in"}), Zone: "west", Flavor: node.FlavorEnvoy}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "belongs to zone \"east\"") {
		t.Errorf("an agent of another zone: %v", err)
	}
}

// TestLocalZoneFirst checks that endpoints of the local zone have priority if the mesh enables
// locality awareness, and always for a MeshMultiZoneService, unless a policy disables it.
func TestLocalZoneFirst(t *testing.T) {
	dps := ""
	for i, zone := range []string{"west", "east"} {
		dps += fmt.Sprintf("---\ntype: Dataplane\nmesh: m\nname: d%d\nnetworking: {address: 10.0.1.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: a, kuma.io/zone: %s}}]}\n", i, i, zone)
	}
	dps += "---\ntype: MeshService\nmesh: m\nname: s\nlabels: {a: b}\n" +
		"spec: {selector: {dataplaneTags: {kuma.io/service: a}}, ports: [{port: 80}]}\n" +
		"---\ntype: MeshMultiZoneService\nmesh: m\nname: z\n" +
		"spec: {selector: {meshService: {matchLabels: {a: b}}}, ports: [{port: 80}]}\n" + dataplaneOf("m",
		"{port: 1, tags: {kuma.io/service: a}}, {port: 2, backendRef: {kind: MeshMultiZoneService, name: z, port: 80}}")
	off := "---\ntype: MeshLoadBalancingStrategy\nmesh: m\nname: off\n" +
		"spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {localityAwareness: {disabled: true}}}]}\n"
	for _, c := range []struct{ name, docs, want string }{
		{"by default", "type: Mesh\nname: m\n" + dps, "m_z__west_mzsvc_80"},
		{"asked for", "type: Mesh\nname: m\nrouting: {localityAwareLoadBalancing: true}\n" + dps, "a m_z__west_mzsvc_80"},
		{"switched off", "type: Mesh\nname: m\nrouting: {localityAwareLoadBalancing: true}\n" + dps + off, ""},
	} {
		p := zoneOf(t, decode(t, "input", []byte(c.docs)), "west").sidecar(t, "m", "web")
		var second []string // clusters that have endpoints with priority 1
		for _, line := range lines(t, p) {
			if rest, ok := strings.CutPrefix(line, "ClusterLoadAssignment/"); ok && strings.HasSuffix(line, "/priority = 1") {
				cluster, _, _ := strings.Cut(rest, "/")
				second = append(second, cluster)
			}
		}
		if got := strings.Join(second, " "); got != c.want {
			t.Errorf("%s: endpoints come second in %q, want %q", c.name, got, c.want)
		}
	}
}
