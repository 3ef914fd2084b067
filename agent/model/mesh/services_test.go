package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// describeServices formats each service of a kind with its cluster, section, protocol, and
// endpoints, and the number of endpoints that are not ready after a plus sign.
func describeServices(v *mesh.View, kind string) []string {
	var out []string
	for _, s := range v.Services() {
		if s.ID.Kind != kind {
			continue
		}
		line := fmt.Sprintf("%s %q %s", s.ID.Name, s.Section, s.Protocol)
		for _, e := range s.Endpoints.List {
			line += fmt.Sprintf(" %s:%d", e.Address, e.Port)
		}
		if s.NotReady > 0 {
			line += fmt.Sprintf(" +%d", s.NotReady)
		}
		out = append(out, line)
	}
	return out
}

func exclusive(docs ...string) string {
	return meshDoc + "meshServices: {mode: Exclusive}\n" + strings.Join(docs, "")
}

func inbounds(name, address string, list ...string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n  inbound:\n  - {%s}\n",
		name, address, strings.Join(list, "}\n  - {"))
}

func labeled(labels, dataplane string) string {
	return strings.Replace(dataplane, "networking:", "labels: {"+labels+"}\nnetworking:", 1)
}

func endpointState(dataplane, state string) string {
	return fmt.Sprintf("---\ntype: EndpointState\nmesh: default\nname: %s\nspec: {state: %s}\n", dataplane, state)
}

// TestDerivedServices derives MeshServices from tags as Kuma does.
func TestDerivedServices(t *testing.T) {
	const a80 = "port: 80, tags: {kuma.io/service: a, kuma.io/protocol: http}"
	for _, c := range []struct{ name, doc, want, warnings string }{
		{"one port", exclusive(inbounds("a-1", "10.0.0.1", a80), inbounds("a-2", "10.0.0.2", a80)),
			`default_a___msvc_80 "80" http 10.0.0.1:80 10.0.0.2:80`, ""},
		{"named ports, in the order of their numbers",
			exclusive(inbounds("a-1", "10.0.0.1", "port: 90, name: admin, tags: {kuma.io/service: a}", a80)),
			`default_a___msvc_80 "80" http 10.0.0.1:80|default_a___msvc_90 "admin" tcp 10.0.0.1:90`, ""},
		{"one that is not ready", exclusive(inbounds("a-1", "10.0.0.1", a80+", state: NotReady"),
			inbounds("a-2", "10.0.0.2", a80)), `default_a___msvc_80 "80" http 10.0.0.2:80 +1`, ""},
		{"one whose Envoy has ended, and one with an unready port", exclusive(
			inbounds("a-1", "10.0.0.1", a80), endpointState("a-1", "ended"),
			inbounds("a-2", "10.0.0.2", a80), endpointState("a-2", "unready, inbounds: [81]"),
			inbounds("a-3", "10.0.0.3", a80), endpointState("a-3", "unready, inbounds: [80]"), endpointState("b", "ended")),
			`default_a___msvc_80 "80" http 10.0.0.2:80 +2`, ""},
		{"the first dataplane decides", exclusive(inbounds("a-1", "10.0.0.1", a80), inbounds("a-2", "10.0.0.2", a80,
			"port: 81, tags: {kuma.io/service: a}"), inbounds("a-3", "10.0.0.3", "port: 80, tags: {kuma.io/service: a}")),
			`default_a___msvc_80 "80" http 10.0.0.1:80 10.0.0.2:80 10.0.0.3:80`,
			"a: it is derived from the tag kuma.io/service, and dataplanes with the tag differ in their ports: the ports of " +
				"a-1 are used, and other ports of a-2, a-3 are ignored; " +
				"give all of them the same ports, names, and protocols, or create the MeshService"},
		{"a document of that name goes before", exclusive(inbounds("a-1", "10.0.0.1", a80),
			service("a", "", "dataplaneTags: {kuma.io/service: a}", "{port: 1, targetPort: 80}")),
			`default_a__default_msvc_1 "" tcp 10.0.0.1:80`, ""},
		{"one to display as it does not", exclusive(inbounds("a-1", "10.0.0.1", a80),
			service("a-x7", "kuma.io/display-name: a, kuma.io/origin: global, kuma.io/zone: east",
				"dataplaneTags: {x: y}", "{port: 80}")),
			`default_a___msvc_80 "80" http 10.0.0.1:80|default_a__east_msvc_80 "" tcp`, ""},
		{"no name", exclusive(inbounds("a-1", "10.0.0.1", "port: 80, tags: {kuma.io/service: A:b}")), "",
			`A:b: no MeshService is derived from the tag kuma.io/service: "A:b" is not a name: only lower-case letters, digits, '-', '.' and '_' are allowed; it remains a tag service`},
		{"too long a name",
			exclusive(inbounds("a-1", "10.0.0.1", "port: 80, tags: {kuma.io/service: "+strings.Repeat("a", 64)+"}")), "",
			strings.Repeat("a", 64) + ": no MeshService is derived from the tag kuma.io/service: the name has 64 characters, " +
				"at most 63 are allowed; it remains a tag service"},
		{"ignored inbounds", exclusive(inbounds("a-1", "10.0.0.1", a80+", state: Ignored")), "", ""},
		{"one port on two addresses", exclusive(inbounds("a-1", "10.0.0.1", a80, a80+", address: 10.0.0.9")),
			`default_a___msvc_80 "80" http 10.0.0.1:80 10.0.0.9:80`, ""},
		{"the zone, if the first dataplane has labels", exclusive(labeled("app: a", inbounds("a-1", "10.0.0.1", a80)),
			inbounds("a-2", "10.0.0.2", a80)), `default_a__default_msvc_80 "80" http 10.0.0.1:80 10.0.0.2:80`, ""},
		{"the zone of a label", exclusive(labeled("kuma.io/zone: east", inbounds("a-1", "10.0.0.1", a80))),
			`default_a__east_msvc_80 "80" http 10.0.0.1:80`, ""},
		{"labels of agents only", exclusive(labeled("nearside.io/liveness: alive", inbounds("a-1", "10.0.0.1", a80))),
			`default_a___msvc_80 "80" http 10.0.0.1:80`, ""},
		{"disabled", meshDoc + inbounds("a-1", "10.0.0.1", a80), "", ""},
		{"everywhere", meshDoc + "meshServices: {mode: Everywhere}\n" + inbounds("a-1", "10.0.0.1", a80),
			`default_a___msvc_80 "80" http 10.0.0.1:80`, ""},
		{"with reachable backends", meshDoc + "meshServices: {mode: ReachableBackends}\n" + inbounds("a-1", "10.0.0.1", a80),
			`default_a___msvc_80 "80" http 10.0.0.1:80`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := build(t, c.doc)
			if diff := cmp.Diff(c.want, strings.Join(describeServices(v, mesh.KindMeshService), "|")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.warnings, strings.Join(warningsOf(v, "MeshService"), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDerivedDocument checks a derived MeshService in document form.
func TestDerivedDocument(t *testing.T) {
	v := build(t,
		exclusive(inbounds("a-1", "10.0.0.1", "port: 80, name: web, tags: {kuma.io/service: a, kuma.io/protocol: http}"),
			service("s", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80}")))
	key := func(n string) resource.Key { return resource.Key{Kind: "MeshService", Mesh: "default", Name: n} }
	want := &resource.Resource{Key: key("a"),
		Labels: map[string]string{"kuma.io/mesh": "default", "kuma.io/display-name": "a",
			"kuma.io/managed-by": "meshservice-generator",
			"kuma.io/env":        "universal", "kuma.io/origin": "zone", "kuma.io/zone": "default"},
		Spec: &resource.MeshService{
			Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{"kuma.io/service": "a"}},
			Ports: []resource.MeshServicePort{{Name: "web", Port: 80, TargetPort: &resource.IntOrString{Int: 80},
				AppProtocol: "http"}}}}
	if diff := cmp.Diff(want, v.Derived(key("a"))); diff != "" {
		t.Error(diff)
	}
	if v.Derived(key("s")) != nil || v.Derived(key("none")) != nil {
		t.Error("an explicit or missing service is reported as derived")
	}
	// The document yields the same service as the derivation.
	explicit := build(t,
		exclusive(inbounds("a-1", "10.0.0.1", "port: 80, name: web, tags: {kuma.io/service: a, kuma.io/protocol: http}"),
			service("a", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, name: web, targetPort: 80, appProtocol: http}")))
	derivedText, wantText := describeServices(v, mesh.KindMeshService)[0],
		describeServices(explicit, mesh.KindMeshService)[0]
	if strings.TrimPrefix(derivedText, "default_a___msvc_80") != strings.TrimPrefix(wantText,
		"default_a__default_msvc_80") {
		t.Errorf("derived %s, from the document %s", derivedText, wantText)
	}
}

// TestMeshServiceWarnings checks the warnings about parts of a MeshService without effect.
func TestMeshServiceWarnings(t *testing.T) {
	dps := meshDoc + strings.Replace(dataplane("a", "10.0.0.1", "a", ""), "name: a\n", "name: a\nlabels: {team: blue}\n",
		1) + dataplane("b", "10.0.0.2", "b", "")
	for _, c := range []struct{ name, labels, selector, ports, want string }{
		{"well", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: main}", ""},
		{"nothing by tags", "", "dataplaneTags: {kuma.io/service: a, version: v9}", "{port: 8080}",
			"spec.selector: no inbound of a dataplane has the tags kuma.io/service=a, version=v9: the service has no endpoints"},
		{"nothing by name", "", "dataplaneRef: {name: c}", "{port: 8080}",
			`spec.selector: no inbound of a dataplane has the name "c": the service has no endpoints`},
		{"nothing by labels", "", "dataplaneLabels: {matchLabels: {team: red}}", "{port: 8080}",
			"spec.selector: no inbound of a dataplane has the labels team=red: the service has no endpoints"},
		{"nothing in another zone", "kuma.io/zone: east", "dataplaneTags: {kuma.io/service: gone}", "{port: 8080}", ""},
		{"everything by labels", "", "dataplaneLabels: {matchLabels: {}}", "{port: 8080}",
			"spec.selector.dataplaneLabels.matchLabels is empty and matches every dataplane: all 2 inbounds of the mesh " +
				"are selected; name a label that only dataplanes of this service have"},
		{"labels that every dataplane has by itself",
			"", "dataplaneLabels: {matchLabels: {kuma.io/zone: default, team: blue}}", "{port: 8080}", ""},
		{"no selector", "", "", "{port: 8080}",
			"spec.selector is empty and selects nothing: set dataplaneTags, dataplaneLabels or dataplaneRef"},
		{"no ports", "", "dataplaneRef: {name: a}", "", "spec.ports is empty: list at least one port"},
		{"ports without inbounds", "", "dataplaneRef: {name: a}",
			"{port: 8080}, {port: 1}, {port: 2, name: two, targetPort: 3}, {port: 4, targetPort: none}",
			`spec.ports[1] (port 1), spec.ports[2] ("two", targetPort 3), spec.ports[3] (targetPort "none"): none of the 1 selected inbounds matches: ` +
				"set targetPort to the port or the name of one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want != "" {
				want = "s: " + want
			}
			v := build(t, dps+service("s", c.labels, c.selector, c.ports))
			if diff := cmp.Diff(want, strings.Join(warningsOf(v, "MeshService"), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestServicesShareInbounds selects one inbound by two MeshServices and a derived one.
func TestServicesShareInbounds(t *testing.T) {
	v := build(t, exclusive(dataplane("a", "10.0.0.1", "a", ""),
		service("one", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080, appProtocol: http}"),
		service("two", "", "dataplaneRef: {name: a}", "{port: 81, targetPort: main, appProtocol: grpc}")))
	want := []string{`default_a___msvc_8080 "main" http 10.0.0.1:8080`,
		`default_one__default_msvc_80 "" http 10.0.0.1:8080`, `default_two__default_msvc_81 "" grpc 10.0.0.1:8080`}
	if diff := cmp.Diff(want, describeServices(v, mesh.KindMeshService)); diff != "" {
		t.Error(diff)
	}
	if len(v.Warnings) > 0 {
		t.Error(v.Warnings)
	}
}

// TestServicesOfOneName checks that one of two services with the same cluster name remains, and
// that both get a warning.
func TestServicesOfOneName(t *testing.T) {
	v := build(t, exclusive(dataplane("a", "10.0.0.1", "a", ""), service("y", "kuma.io/display-name: s",
		"dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080}, {port: 81, targetPort: 8080}"),
		service("s", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: main}"),
		service("z", "kuma.io/display-name: a, kuma.io/origin: global", "dataplaneTags: {kuma.io/service: a}",
			"{port: 8080}")))
	want := []string{`default_a___msvc_8080 "" tcp 10.0.0.1:8080`, `default_s__default_msvc_80 "" tcp 10.0.0.1:8080`,
		`default_s__default_msvc_81 "" tcp 10.0.0.1:8080`}
	if diff := cmp.Diff(want, describeServices(v, mesh.KindMeshService)); diff != "" {
		t.Error(diff)
	}
	got := warningsOf(v, "MeshService")
	slices.Sort(got)
	wantWarnings := []string{
		"a: port 8080 has the cluster name default_a___msvc_8080, which MeshService/default/z already uses: the port is " +
			"ignored; change kuma.io/display-name of one of them",
		"s: MeshService/default/y has the same cluster name default_s__default_msvc_80: its port 80 is ignored",
		"y: port 80 has the cluster name default_s__default_msvc_80, which MeshService/default/s already uses: the port is " +
			"ignored; change kuma.io/display-name of one of them",
		"z: MeshService/default/a has the same cluster name default_a___msvc_8080: its port 8080 is ignored",
	}
	if diff := cmp.Diff(wantWarnings, got); diff != "" {
		t.Error(diff)
	}
}

// TestMultiZoneServices selects MeshServices by their labels.
func TestMultiZoneServices(t *testing.T) {
	multi := func(labels, ports string) string {
		return "---\ntype: MeshMultiZoneService\nmesh: default\nname: m\nspec:\n  selector: {meshService: {matchLabels: {" +
			labels + "}}}\n  ports: [" + ports + "]\n"
	}
	services := exclusive(dataplane("a", "10.0.0.1", "a", ""),
		dataplane("b", "10.0.0.2", "b", "  - {port: 9090, tags: {kuma.io/service: b}, state: NotReady}\n"),
		service("a1", "app: x", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080, appProtocol: grpc}"),
		service("b1", "app: x", "dataplaneTags: {kuma.io/service: b}",
			"{port: 80, targetPort: 8080, appProtocol: http2}, {port: 90, targetPort: 9090}"),
		service("far", "app: y, kuma.io/zone: east, kuma.io/origin: global", "dataplaneTags: {kuma.io/service: a}",
			"{port: 80, targetPort: 8080}")+"  state: Unavailable\n")
	for _, c := range []struct{ name, labels, ports, want, warning string }{
		{"the common protocol", "app: x", "{port: 80, name: web}",
			`default_m__default_mzsvc_80 "web" http2 10.0.0.1:8080 10.0.0.2:8080`, ""},
		{"the protocol that is given", "app: x", "{port: 80, appProtocol: tcp}",
			`default_m__default_mzsvc_80 "" tcp 10.0.0.1:8080 10.0.0.2:8080`, ""},
		{"endpoints that are not ready", "app: x", "{port: 90}", `default_m__default_mzsvc_90 "" tcp +1`, ""},
		{"those that are derived", "kuma.io/managed-by: meshservice-generator",
			"{port: 8080}", `default_m__default_mzsvc_8080 "" http 10.0.0.1:8080 10.0.0.2:8080`, ""},
		{"by a label of all", "kuma.io/zone: default, app: x",
			"{port: 80}", `default_m__default_mzsvc_80 "" http2 10.0.0.1:8080 10.0.0.2:8080`, ""},
		{"one inbound by two services", "kuma.io/origin: zone", "{port: 8080}",
			`default_m__default_mzsvc_8080 "" http 10.0.0.1:8080 10.0.0.2:8080`, ""},
		{"another zone that has nothing", "app: y", "{port: 80}", `default_m__default_mzsvc_80 "" tcp`, ""},
		{"no such labels", "app: x, more: y", "{port: 80}", `default_m__default_mzsvc_80 "" tcp`,
			"m: spec.selector.meshService: no MeshService has the labels app=x, more=y: the service has no endpoints"},
		{"no such port", "app: x", "{port: 80}, {port: 8080}, {port: 1}",
			`default_m__default_mzsvc_1 "" tcp|default_m__default_mzsvc_80 "" http2 10.0.0.1:8080 10.0.0.2:8080|default_m__default_mzsvc_8080 "" tcp`, "m: spec.ports[1] (8080), " +
				"spec.ports[2] (1): no MeshService with the labels app=x has a port with that number: no endpoint serves it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := build(t, services+multi(c.labels, c.ports))
			if diff := cmp.Diff(c.want, strings.Join(describeServices(v, mesh.KindMeshMultiZoneService), "|")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.warning, strings.Join(warningsOf(v, mesh.KindMeshMultiZoneService), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestThousandsOfLabels selects among services and dataplanes with thousands of labels.
func TestThousandsOfLabels(t *testing.T) {
	many := func(i int) map[string]string {
		out := map[string]string{"own": fmt.Sprint(i)}
		for j := range 2000 {
			out[fmt.Sprintf("label-%d", j)] = fmt.Sprint(j)
		}
		return out
	}
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}}}
	for i := range 40 {
		dp := endpoint("s", i, fmt.Sprintf("10.0.0.%d", i+1))
		dp.Labels = many(i)
		name := fmt.Sprintf("s%02d", i)
		rs = append(rs, dp, &resource.Resource{Key: resource.Key{Kind: "MeshService", Mesh: "default", Name: name},
			Labels: many(i), Digest: digest(i),
			Spec: &resource.MeshService{
				Selector: resource.MeshServiceSelector{DataplaneLabels: &resource.LabelSelector{MatchLabels: many(i)}},
				Ports:    []resource.MeshServicePort{{Port: 8080}}}},
			&resource.Resource{Key: resource.Key{Kind: "MeshMultiZoneService", Mesh: "default", Name: name},
				Spec: &resource.MeshMultiZoneService{
					Selector: resource.MultiZoneSelector{MeshService: resource.LabelSelector{MatchLabels: many(i)}},
					Ports:    []resource.MultiZonePort{{Port: 8080}}}},
			hostnameGenerator("g"+name, many(i), `{{ .Name }}.{{ label "own" }}.mesh`))
	}
	v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Services() {
		if s.ID.Kind == mesh.KindTag {
			continue
		}
		if len(s.Endpoints.List) != 1 || s.Endpoints.List[0].Resource.Labels["own"] != s.Resource.Name[1:] &&
			"0"+s.Endpoints.List[0].Resource.Labels["own"] != s.Resource.Name[1:] {
			t.Errorf("%s has the endpoints of %v, want its own", s.ID.Name, s.Endpoints.List)
		}
	}
	if h := v.Hostname("s07.7.mesh"); h == nil || h.Resource.Name != "s07" || len(v.Hostnames()) != 41 {
		t.Errorf("%d names, s07.7.mesh is %+v", len(v.Hostnames()), h)
	}
}

// TestAnotherInboundAtThePort checks that an inbound is an endpoint of a service only if it has the
// service's tags itself, not if another inbound of the dataplane has them.
func TestAnotherInboundAtThePort(t *testing.T) {
	v := build(t, exclusive(dataplane("a", "10.0.0.1",
		"a", "  - port: 3001\n    tags: {kuma.io/service: b, kuma.io/protocol: http}\n"),
		service("one", "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 3001, appProtocol: http}")))
	for _, s := range v.Services() {
		if s.Resource.Name == "one" && len(s.Endpoints.List) != 0 {
			t.Errorf("the endpoints are %v", s.Endpoints.List)
		}
	}
	if v.MeshService(resource.Key{Kind: mesh.KindMeshService, Mesh: "default", Name: "one"}) == nil {
		t.Error("there is no such service")
	}
}
