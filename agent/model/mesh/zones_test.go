package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const strictMesh = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"

// zoned returns a dataplane of a zone.
func zoned(name, address, zone, tags string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n  inbound:\n"+
		"  - {port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http, kuma.io/zone: %s%s}}\n", name,
		address, zone, tags)
}

func zoneIngress(name, zone, networking, services string) string {
	doc := fmt.Sprintf("---\ntype: ZoneIngress\nname: %s\nzone: %s\nnetworking: {%s}\n", name, zone, networking)
	if services != "" {
		doc += "availableServices: [" + services + "]\n"
	}
	return doc
}

func inZone(t testing.TB, doc string, o mesh.Options) *mesh.View {
	t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	v, err := mesh.Build(resource.NewSet(rs), "default", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// endpoints formats the endpoints of a service as proxies get them: "address:port zone weight
// tags".
func endpoints(s *mesh.Service) []string {
	var out []string
	list := mesh.Distinct(s.Endpoints.List)
	for i := range list {
		e := &list[i]
		line := fmt.Sprintf("%s:%d %s", e.Address, e.Port, e.Zone)
		if e.Relay() {
			line += fmt.Sprintf(" x%d", e.Weight)
		}
		e.EachTag(func(k, v string) {
			if k != resource.TagZone && k != resource.TagProtocol {
				line += " " + k + "=" + v
			}
		})
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// TestZones checks how proxies reach the instances of other zones.
func TestZones(t *testing.T) {
	dps := zoned("a", "10.0.0.1", "west", ", version: v1") + zoned("b", "10.0.1.1", "east", ", version: v1") +
		zoned("c", "10.0.1.2", "east", ", version: v2") + zoned("d", "10.0.1.3", "east", ", version: v2")
	at := "address: 10.9.0.1, port: 10001"
	ms := "---\ntype: MeshService\nmesh: default\nname: %s\nlabels: {app: web%s}\n" +
		"spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, appProtocol: http}]}\n"
	mz := "---\ntype: MeshMultiZoneService\nmesh: default\nname: all\n" +
		"spec: {selector: {meshService: {matchLabels: {app: web}}}, ports: [{port: 80}]}\n"
	kind := func(k string) func(*mesh.Service) bool {
		return func(s *mesh.Service) bool { return s.ID.Kind == k }
	}
	for _, c := range []struct {
		name, doc string
		flat      bool
		of        string
		want      []string
		warning   string
	}{
		{name: "no ingress: directly", doc: strictMesh + dps, want: []string{
			"10.0.0.1:80 west version=v1", "10.0.1.1:80 east version=v1", "10.0.1.2:80 east version=v2",
			"10.0.1.3:80 east version=v2"}},
		{name: "an ingress that lists nothing has what its zone offers", doc: strictMesh + dps +
			zoneIngress("in", "east", at, ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3"}},
		{name: "an ingress that lists its services has these", doc: strictMesh + dps + zoneIngress("in", "east", at,
			"{tags: {kuma.io/service: web, version: v1}, instances: 7}, {tags: {kuma.io/service: web, version: v1, a: b}}, "+
				"{tags: {kuma.io/service: web}, mesh: other}"), want: []string{
			"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x8 version=v1"}},
		{name: "where it is advertised", doc: strictMesh + dps +
			zoneIngress("in", "east", at+", advertisedAddress: 192.0.2.1, advertisedPort: 443", ""), want: []string{
			"10.0.0.1:80 west version=v1", "192.0.2.1:443 east x3"}},
		{name: "two ingresses", doc: strictMesh + dps + zoneIngress("in", "east", at, "") +
			zoneIngress("in2", "east", "address: 10.9.0.2, port: 10001", ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3", "10.9.0.2:10001 east x3"}},
		{name: "the own ingress", doc: strictMesh + dps + zoneIngress("in", "west", at, ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.0.1.1:80 east version=v1", "10.0.1.2:80 east version=v2",
			"10.0.1.3:80 east version=v2"}},
		{name: "a flat network", flat: true, doc: strictMesh + dps + zoneIngress("in", "east", at, ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.0.1.1:80 east version=v1", "10.0.1.2:80 east version=v2",
			"10.0.1.3:80 east version=v2"}},
		{name: "without mutual TLS", doc: meshDoc + dps + zoneIngress("in", "east", at, ""),
			want:    []string{"10.0.0.1:80 west version=v1"},
			warning: "Mesh/default: the zones east are behind a ZoneIngress"},
		{name: "permissive", doc: strings.Replace(strictMesh, "type: builtin", "type: builtin, mode: PERMISSIVE", 1) + dps +
			zoneIngress("in", "east", at, ""),
			want: []string{"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3"}},
		{name: "a service without dataplanes here", doc: strictMesh +
			zoneIngress("in", "east", at, "{tags: {kuma.io/service: web, kuma.io/protocol: http}, instances: 2}"),
			want: []string{"10.9.0.1:10001 east x2"}},

		{name: "a MeshService of all zones", of: mesh.KindMeshService, doc: strictMesh + dps + fmt.Sprintf(ms, "s", "") +
			zoneIngress("in", "east", at, ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3"}},
		{name: "a MeshService of the own zone", of: mesh.KindMeshService, doc: strictMesh + dps +
			fmt.Sprintf(ms, "s", ", kuma.io/zone: west") + zoneIngress("in", "east", at, ""), want: []string{
			"10.0.0.1:80 west version=v1"}},
		{name: "a MeshService of another zone", of: mesh.KindMeshService, doc: strictMesh + dps +
			fmt.Sprintf(ms, "s", ", kuma.io/zone: east") + zoneIngress("in", "east", at, ""), want: []string{
			"10.9.0.1:10001 east x3"}},
		{name: "a MeshService of which nothing else is known", of: mesh.KindMeshService, doc: strictMesh +
			fmt.Sprintf(ms, "s", ", kuma.io/zone: east") + zoneIngress("in", "east", at, ""), want: []string{
			"10.9.0.1:10001 east x1"}},
		{name: "MeshServices of two zones together", of: mesh.KindMeshMultiZoneService, doc: strictMesh + dps +
			fmt.Sprintf(ms, "w", ", kuma.io/zone: west") + fmt.Sprintf(ms, "e", ", kuma.io/zone: east") +
			mz + zoneIngress("in", "east", at, ""), want: []string{"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3"}},

		{name: "a host name", doc: strictMesh + dps + zoneIngress("in", "east", "address: ingress.example.com, port: 1", ""),
			want:    []string{"10.0.0.1:80 west version=v1"},
			warning: "ZoneIngress/in: the advertised address \"ingress.example.com\", port 1"},
		{name: "two at one address", doc: strictMesh + dps + zoneIngress("in", "east", at, "") +
			zoneIngress("other", "north", at, ""), want: []string{
			"10.0.0.1:80 west version=v1", "10.9.0.1:10001 east x3"},
			warning: "ZoneIngress/other: the advertised address 10.9.0.1:10001 is also that of ZoneIngress/in"},
		{name: "at a dataplane's address", doc: strictMesh + dps +
			zoneIngress("in", "east", "address: 10.0.0.1, port: 80", ""), want: []string{"10.0.0.1:80 west version=v1"},
			warning: "also that of an inbound of Dataplane/default/a"},
		{name: "too many instances", doc: strictMesh + zoneIngress("in", "east", at, "{tags: {kuma.io/service: web}, "+
			"instances: 4294967295}, {tags: {kuma.io/service: web, a: b}, instances: 4294967295}"),
			want:    []string{"10.9.0.1:10001 east x65535"},
			warning: "ZoneIngress/in: availableServices lists for mesh default 2 services with more than 65535 instances"},
		{name: "of others", doc: strictMesh + zoned("a", "10.0.0.1", "west", "") + zoneIngress("in", "east", at,
			"{tags: {kuma.io/service: web, kuma.io/zone: north}}, {tags: {kuma.io/service: web}, externalService: true}"),
			want: []string{"10.0.0.1:80 west"}, warning: "1 services of another zone: they"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := inZone(t, c.doc, mesh.Options{Zone: "west", FlatNetwork: c.flat})
			var got []string
			found := 0
			for _, s := range v.Services() {
				if kind(c.of)(s) {
					if s.ID.Name == "web" || s.Resource.Name == "s" || s.Resource.Name == "all" {
						got = append(got, endpoints(s)...)
						found++
					}
				}
			}
			if found != 1 {
				t.Errorf("%d services are looked at, want one", found)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(c.want, "\n "))
			}
			var all []string
			for _, w := range v.Warnings {
				all = append(all, w.Resource.String()+": "+w.Reason)
			}
			if c.warning != "" && !strings.Contains(strings.Join(all, "\n"), c.warning) {
				t.Errorf("got %q, want %q", all, c.warning)
			}
		})
	}
}

// TestNobodyIsReachedInTwoWays builds random zones. In each zone's services, no address is both a
// dataplane's and an ingress's. No dataplane of another mesh, or of a zone behind an ingress, is
// reached directly. The weight of an ingress that lists nothing is the number of ready instances in
// its zone.
func TestNobodyIsReachedInTwoWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"},
			Spec: &resource.Mesh{MTLS: &resource.MTLS{
				EnabledBackend: "ca", Backends: []resource.MTLSBackend{{Name: "ca", Type: "builtin"}}}}}}
		zone := rapid.SampledFrom([]string{"west", "east", "north", "south"})
		service := rapid.SampledFrom([]string{"a", "b"})
		address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "::1",
			"::ffff:10.0.0.1"})
		port := rapid.Uint32Range(1, 3)
		ready := map[string]uint32{} // by zone and service
		for i := range rapid.IntRange(0, 12).Draw(t, "dataplanes") {
			z, s, m := zone.Draw(t, "zone"), service.Draw(t, "service"),
				rapid.SampledFrom([]string{"default", "default", "other"}).Draw(t, "mesh")
			in := resource.Inbound{Port: port.Draw(t, "port"),
				Tags: map[string]string{resource.TagService: s, resource.TagZone: z}}
			if rapid.Bool().Draw(t, "unready") {
				in.State = resource.InboundNotReady
			} else if m == "default" {
				ready[z+s]++
			}
			rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "Dataplane", Mesh: m, Name: fmt.Sprint("d", i)},
				Spec: &resource.Dataplane{Networking: resource.Networking{Address: address.Draw(t, "address"),
					Inbound: []resource.Inbound{in}}}})
		}
		behind := map[string]bool{}
		for i := range rapid.IntRange(0, 4).Draw(t, "ingresses") {
			z := zone.Draw(t, "zone of ingress")
			behind[z] = behind[z] || z != "west"
			rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "ZoneIngress", Name: fmt.Sprint("i", i)},
				Spec: &resource.ZoneIngress{Zone: z,
					Networking: resource.ZoneIngressNetworking{Address: address.Draw(t, "at"), Port: port.Draw(t, "at port")}}})
		}
		v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{Zone: "west"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		direct, through := map[string]bool{}, map[string]bool{}
		for _, s := range v.Services() {
			list := mesh.Distinct(s.Endpoints.List)
			for i := range list {
				e := &list[i]
				at := fmt.Sprintf("%s:%d", strings.TrimPrefix(e.Address, "::ffff:"), e.Port)
				if e.Relay() {
					through[at] = true
					if s.ID.Kind == mesh.KindTag && e.Weight != ready[e.Zone+s.Tag] {
						t.Fatalf("%s through %s has the weight %d, and zone %s has %d instances",
							s.Tag, at, e.Weight, e.Zone, ready[e.Zone+s.Tag])
					}
					continue
				}
				direct[at] = true
				if behind[e.Zone] || e.Resource.Mesh != "default" {
					t.Fatalf("%s of zone %s, %s, is reached directly", at, e.Zone, e.Resource.Key)
				}
			}
		}
		for at := range through {
			if direct[at] {
				t.Fatalf("%s is both a dataplane and an ingress", at)
			}
		}
	})
}
