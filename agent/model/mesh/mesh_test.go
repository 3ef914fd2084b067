package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func build(t testing.TB, doc string) *mesh.View {
	t.Helper()
	rs, faults := kinds.Registry().WithInternal().Decode("test", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const meshDoc = "type: Mesh\nname: default\n"

func dataplane(name, address, service, rest string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n  inbound:\n"+
		"  - port: 8080\n    name: main\n    tags: {kuma.io/service: %s, kuma.io/protocol: http}\n%s", name, address,
		service, rest)
}

func service(name, labels, selector, ports string) string {
	return fmt.Sprintf("---\ntype: MeshService\nmesh: default\nname: %s\nlabels: {%s}\nspec:\n  selector: {%s}\n"+
		"  ports: [%s]\n", name, labels, selector, ports)
}

// TestSelectors selects one dataplane in each way that a MeshService allows.
func TestSelectors(t *testing.T) {
	dps := meshDoc + strings.Replace(dataplane("a", "10.0.0.1", "one", ""), "name: a\n", "name: a\nlabels: {team: blue}\n",
		1) + dataplane("b", "10.0.0.2", "two", "")
	for _, c := range []struct{ selector, ports, want string }{
		{"dataplaneTags: {kuma.io/service: one}", "{port: 8080}", "10.0.0.1"},
		{"dataplaneTags: {kuma.io/service: one, kuma.io/zone: default}", "{port: 8080}", "10.0.0.1"},
		{"dataplaneTags: {kuma.io/service: one, kuma.io/zone: elsewhere}", "{port: 8080}", ""},
		{"dataplaneTags: {kuma.io/protocol: http}", "{port: 80, targetPort: 8080}", "10.0.0.1 10.0.0.2"},
		{"dataplaneTags: {kuma.io/protocol: http}", "{port: 80, targetPort: main}", "10.0.0.1 10.0.0.2"},
		{"dataplaneLabels: {matchLabels: {team: blue}}", "{port: 80, targetPort: 8080}", "10.0.0.1"},
		{"dataplaneRef: {name: b}", "{port: 80, targetPort: 8080}", "10.0.0.2"},
		{"dataplaneRef: {name: b}", "{port: 80, targetPort: 9999}", ""},
		{"dataplaneRef: {name: b}", "{port: 80}", ""},
	} {
		v := build(t, dps+service("s", "", c.selector, c.ports))
		var got []string
		for _, s := range v.Services() {
			if s.ID.Kind == mesh.KindMeshService {
				for _, e := range s.Endpoints.List {
					got = append(got, e.Address)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s, %s: got %v, want %s", c.selector, c.ports, got, c.want)
		}
	}
}

// TestDataplaneRefOfNamespace selects the pod of the service's own namespace, and a name with its
// namespace.
func TestDataplaneRefOfNamespace(t *testing.T) {
	v := build(t, meshDoc+dataplane("db-0.a", "10.0.0.1", "one", "")+dataplane("db-0.b", "10.0.0.2", "two", "")+
		dataplane("db-0", "10.0.0.3", "three", "")+
		service("db.a", "k8s.kuma.io/namespace: a", "dataplaneRef: {name: db-0}", "{port: 8080}")+
		service("db.b", "k8s.kuma.io/namespace: b", "dataplaneRef: {name: db-0.b}", "{port: 8080}")+
		service("db.c", "k8s.kuma.io/namespace: c", "dataplaneRef: {name: db-0}", "{port: 8080}"))
	for name, want := range map[string]string{"db.a": "10.0.0.1", "db.b": "10.0.0.2", "db.c": "10.0.0.3"} {
		key := resource.Key{Kind: mesh.KindMeshService, Mesh: "default", Name: name}
		list := v.Ports(key)[0].Endpoints.List
		if len(list) != 1 || list[0].Address != want {
			t.Errorf("%s: %v, want %s", name, list, want)
		}
		for _, dp := range v.Dataplanes() {
			n := &dp.Spec.(*resource.Dataplane).Networking
			if got := v.Selects(v.MeshService(key), dp, &n.Inbound[0]); got != (list[0].Address == n.Address) {
				t.Errorf("%s selects %s: %v", name, dp.Name, got)
			}
		}
	}
}

// TestServiceModes checks the services of a transparent proxy in each mode.
func TestServiceModes(t *testing.T) {
	const tp = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001%s}\n"
	for _, c := range []struct{ mode, more, want string }{
		{"", "", "a web default_m__default_mzsvc_80 default_s__default_msvc_80 default_x__default_extsvc_90"},
		{"Disabled", "", "a web default_m__default_mzsvc_80 default_s__default_msvc_80 default_x__default_extsvc_90"},
		{"Disabled", ", reachableBackends: {refs: []}", "a web"},
		{"Disabled", ", reachableServices: [a]", "a"},
		{"Disabled", ", reachableServices: [nothing]", ""},
		{"Everywhere", ", reachableServices: [a]", "a"},
		{"Everywhere", ", reachableServices: [a], reachableBackends: {refs: [{kind: MeshMultiZoneService, name: m}]}",
			"a default_m__default_mzsvc_80"},
		{"Everywhere", ", reachableBackends: {refs: []}", "a web"},
		{"Everywhere", "", "a web default_m__default_mzsvc_80 default_x__default_extsvc_90 default_a___msvc_8080 " +
			"default_s__default_msvc_80 default_web___msvc_8080"},
		{"Exclusive", ", reachableServices: [a]", ""},
		{"Exclusive", "", "default_m__default_mzsvc_80 default_x__default_extsvc_90 default_a___msvc_8080 " +
			"default_s__default_msvc_80 default_web___msvc_8080"},
		{"Exclusive", ", reachableBackends: {refs: [{kind: MeshService, name: s}]}", "default_s__default_msvc_80"},
		{"Exclusive", ", reachableBackends: {refs: [{kind: MeshService, name: s, port: 81}]}", ""},
		{"Exclusive", ", reachableBackends: {refs: [{kind: MeshService, labels: {app: x}}]}", "default_s__default_msvc_80"},
		{"Exclusive", ", reachableBackends: {refs: []}", ""},
		{"ReachableBackends", "", "a web"},
		{"ReachableBackends", ", reachableBackends: {refs: [{kind: MeshService, name: s}]}",
			"a web default_s__default_msvc_80"},
	} {
		doc := meshDoc
		if c.mode != "" {
			doc += "meshServices: {mode: " + c.mode + "}\n"
		}
		v := build(t, doc+dataplane("a", "10.0.0.1", "a", "")+service("s", "app: x", "dataplaneTags: {kuma.io/service: a}",
			"{port: 80, targetPort: 8080}")+"---\n{type: MeshMultiZoneService, mesh: default, name: m, "+
			"labels: {kuma.io/zone: default}, spec: {selector: {meshService: {matchLabels: {app: x}}}, ports: [{port: 80, "+
			"appProtocol: tcp}]}}\n---\n{type: MeshExternalService, mesh: default, name: x, "+
			"spec: {match: {type: HostnameGenerator, port: 90, protocol: tcp}, endpoints: [{address: x.example, port: 90}]}}\n"+
			dataplane("web", "10.0.0.2", "web", fmt.Sprintf(tp, c.more)))
		out, warnings := v.Outbounds(v.Dataplane("web"))
		if len(warnings) > 0 && c.want != "" { // references without a target cause warnings
			t.Error(warnings)
		}
		var got []string
		for _, o := range out {
			got = append(got, o.Service.ID.Name)
		}
		slices.Sort(got)
		want := strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("mode %q%s: got %v, want %v", c.mode, c.more, got, want)
		}
	}
}

// TestNamespaces resolves references within a namespace and across namespaces.
func TestNamespaces(t *testing.T) {
	k8s := func(name, namespace string) string {
		return fmt.Sprintf("---\napiVersion: kuma.io/v1alpha1\nkind: MeshService\n"+
			"metadata: {name: %s, namespace: %s, labels: {kuma.io/mesh: default}}\n"+
			"spec: {selector: {dataplaneTags: {kuma.io/service: a}}, ports: [{port: 80, targetPort: 8080}]}\n", name, namespace)
	}
	v := build(t, meshDoc+dataplane("a", "10.0.0.1", "a", "")+k8s("redis", "data")+k8s("redis", "other")+
		dataplane("web", "10.0.0.2", "web",
			"  outbound:\n  - {port: 1, backendRef: {kind: MeshService, name: redis, namespace: data, port: 80}}\n"+
				"  - {port: 2, backendRef: {kind: MeshService, name: redis.other, port: 80}}\n"+
				"  - {port: 3, backendRef: {kind: MeshService, name: redis, port: 80}}\n"))
	out, warnings := v.Outbounds(v.Dataplane("web"))
	var got []string
	for _, o := range out {
		got = append(got, o.Service.ID.Name)
	}
	want := []string{"default_redis_data_default_msvc_80", "default_redis_other_default_msvc_80"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0].Reason, "outbound[2]") {
		t.Errorf("got %v, want a warning about the third outbound", warnings)
	}
}

// TestVirtualAddresses checks that the address in a status is used, that a second claimant gets
// another one, and that all ports share one address.
func TestVirtualAddresses(t *testing.T) {
	ports := "{port: 80, targetPort: 8080}, {port: 81, targetPort: 8080}"
	doc := meshDoc + dataplane("a", "10.0.0.1", "a", "")
	for _, name := range []string{"first", "second"} {
		doc += service(name, "", "dataplaneTags: {kuma.io/service: a}", ports) + "status: {vips: [{ip: 241.0.0.9}]}\n"
	}
	v := build(t, doc)
	vips := map[string]map[netip.Addr]bool{}
	for _, s := range v.Services() {
		if s.ID.Kind == mesh.KindMeshService {
			if vips[s.Resource.Name] == nil {
				vips[s.Resource.Name] = map[netip.Addr]bool{}
			}
			vips[s.Resource.Name][s.VIP] = true
		}
	}
	if !vips["first"][netip.MustParseAddr("241.0.0.9")] || len(vips["first"]) != 1 {
		t.Errorf("first: got %v, want 241.0.0.9 alone", vips["first"])
	}
	if len(vips["second"]) != 1 || vips["second"][netip.MustParseAddr("241.0.0.9")] {
		t.Errorf("second: got %v, want one address of its own", vips["second"])
	}
	if len(v.Warnings) != 1 || v.Warnings[0].Resource.Name != "second" {
		t.Errorf("got warnings %v, want one about second", v.Warnings)
	}
}

// TestVirtualAddressesAreUnique checks that no two services share an address, whatever their names,
// and that the order of resources does not change the addresses.
func TestVirtualAddressesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,12}`), 1, 40, rapid.ID).Draw(t, "services")
		rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}}}
		for i, n := range names {
			rs = append(rs, &resource.Resource{
				Key: resource.Key{Kind: "Dataplane", Mesh: "default", Name: n},
				Spec: &resource.Dataplane{Networking: resource.Networking{Address: fmt.Sprintf("10.0.0.%d", i+1),
					Inbound: []resource.Inbound{{Port: 80, Tags: map[string]string{resource.TagService: n}}}}},
			})
		}
		addresses := func() map[mesh.ServiceID]netip.Addr {
			v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := map[mesh.ServiceID]netip.Addr{}
			seen := map[netip.Addr]bool{}
			for _, s := range v.Services() {
				if !s.VIP.IsValid() || seen[s.VIP] || s.VIP.As4()[0] != 240 {
					t.Fatalf("%v has the address %v, which is shared, missing or out of range", s.ID, s.VIP)
				}
				seen[s.VIP] = true
				out[s.ID] = s.VIP
			}
			return out
		}
		want := addresses()
		rand.New(rand.NewPCG(7, 7)).Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		if diff := cmp.Diff(want, addresses(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestEndpointSetsAreShared changes one endpoint of two services. The other service keeps its set,
// and the catalog does not change.
func TestEndpointSetsAreShared(t *testing.T) {
	doc := func(address string) []*resource.Resource {
		rs, faults := kinds.Registry().Decode("test",
			[]byte(meshDoc+dataplane("a", address, "a", "")+dataplane("b", "10.0.0.2", "b", "")))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return rs
	}
	v1, err := mesh.Build(resource.NewSet(doc("10.0.0.1")), "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v2, err := mesh.Build(resource.NewSet(doc("10.0.0.9")), "default", mesh.Options{}, v1)
	if err != nil {
		t.Fatal(err)
	}
	id := func(n string) mesh.ServiceID { return mesh.ServiceID{Kind: mesh.KindTag, Name: n} }
	if v1.Service(id("b")).Endpoints != v2.Service(id("b")).Endpoints {
		t.Error("the set of a service that did not change was rebuilt")
	}
	if v1.Service(id("a")).Endpoints == v2.Service(id("a")).Endpoints {
		t.Error("the set of a service whose endpoint moved is the old one")
	}
	if v1.Catalog != v2.Catalog {
		t.Error("an endpoint changed the catalog")
	}
}

// TestProxyTags merges the tags of several inbounds.
func TestProxyTags(t *testing.T) {
	v := build(t, meshDoc+
		dataplane("web", "10.0.0.1", "web", "  - port: 9090\n    tags: {kuma.io/service: admin, kuma.io/protocol: grpc}\n"))
	got := mesh.TagString(v.ProxyTags(v.Dataplane("web").Spec.(*resource.Dataplane)))
	const want = "&kuma.io/protocol=grpc,http&&kuma.io/service=admin,web&&kuma.io/zone=default&"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
