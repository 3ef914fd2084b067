package mesh_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// documentForms returns resources of a mesh, each with its possible forms. Every result that views
// reuse depends on some of them.
func documentForms() [][]string {
	const mtls = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"
	slots := [][]string{{
		meshDoc, meshDoc + "meshServices: {mode: Everywhere}\n", meshDoc + "meshServices: {mode: Everywhere}\n" + mtls,
		meshDoc + "meshServices: {mode: Exclusive}\nrouting: {zoneEgress: true}\n" + mtls,
	}}
	for i, name := range []string{"d0", "d1", "d2", "d3", "d4"} {
		at := fmt.Sprintf("10.0.0.%d", i+1)
		slots = append(slots, []string{"",
			inbounds(name, at, "port: 80, tags: {kuma.io/service: a, kuma.io/protocol: http}"),
			inbounds(name, at, "port: 80, tags: {kuma.io/service: a, kuma.io/protocol: http}, state: NotReady"),
			inbounds(name, at, "port: 80, tags: {kuma.io/service: a, kuma.io/protocol: grpc, kuma.io/zone: east}"),
			inbounds(name, "10.1.0.9", "port: 80, tags: {kuma.io/service: a}", "port: 81, tags: {kuma.io/service: b, x: y}"),
			inbounds(name, "d.test", "port: 80, address: "+at+", tags: {kuma.io/service: a, x: y}",
				"port: 81, tags: {kuma.io/service: b}"),
			inbounds(name, at, "port: 80, name: main, tags: {kuma.io/service: c}, state: Ignored",
				"port: 82, tags: {kuma.io/service: b}"),
			strings.Replace(inbounds(name, at, "port: 80, tags: {kuma.io/service: c}"), "name: "+name,
				"name: "+name+"\nlabels: {team: blue}", 1),
		}, []string{"", endpointState(name, "unready, inbounds: [80]"), endpointState(name, "ended")})
	}
	for _, name := range []string{"a", "m", "n"} {
		slots = append(slots, []string{"",
			service(name, "team: x", "dataplaneTags: {kuma.io/service: a}", "{port: 80, appProtocol: http}"),
			service(name, "", "dataplaneTags: {kuma.io/service: a}", "{port: 80}, {port: 81, targetPort: main}"),
			service(name, "kuma.io/display-name: m", "dataplaneTags: {x: y}", "{port: 80}, {port: 81}"),
			service(name, "kuma.io/zone: east, kuma.io/origin: global", "dataplaneTags: {kuma.io/service: a}", "{port: 80}"),
			service(name, "kuma.io/zone: '', kuma.io/display-name: b, kuma.io/origin: global",
				"dataplaneTags: {kuma.io/service: nothing}", "{port: 82}"),
			service(name, "", "dataplaneLabels: {matchLabels: {team: blue}}", "{port: 80}"),
			service(name, "nearside.io/optional: 'true'", "dataplaneTags: {x: y}", "{port: 80}, {port: 83}"),
			service(name, "nearside.io/optional: 'true'", "dataplaneRef: {name: d2}", "{port: 80, targetPort: main}"),
			service(name, "", "dataplaneRef: {name: d1}", "{port: 80}") +
				"status: {vips: [{ip: 241.0.0.9}], addresses: [{hostname: n.test}]}\n",
		})
	}
	return append(slots,
		[]string{"",
			"---\ntype: ExternalService\nmesh: default\nname: x\ntags: {kuma.io/service: a, kuma.io/protocol: http}\n" +
				"networking: {address: 'a.test:80'}\n",
			"---\ntype: ExternalService\nmesh: default\nname: x\ntags: {kuma.io/service: out}\n" +
				"networking: {address: 'a.test:81'}\n"},
		[]string{"",
			zoneIngress("i", "east", "address: 10.9.0.1, port: 10001, advertisedAddress: 10.9.0.1, advertisedPort: 10001", ""),
			zoneIngress("i", "east", "address: 10.9.0.1, port: 10001, advertisedAddress: 10.9.0.1, advertisedPort: 10001",
				"{tags: {kuma.io/service: b, kuma.io/zone: east}, instances: 2, mesh: default}"),
			zoneIngress("i", "east", "address: 10.9.0.3, port: 10001, advertisedAddress: 10.9.0.3, advertisedPort: 10001", "")},
		[]string{"",
			zoneIngress("j", "west", "address: 10.9.0.2, port: 10001, advertisedAddress: 10.9.0.2, advertisedPort: 10001", "")},
		[]string{"", "---\ntype: ZoneEgress\nname: e\nnetworking: {address: 10.8.0.1, port: 10002}\n"},
		[]string{"", "---\ntype: HostnameGenerator\nname: g\nspec: {selector: {meshService: {matchLabels: {team: x}}}, " +
			"template: '{{ .DisplayName }}.mesh'}\n", "---\ntype: HostnameGenerator\nname: g\n" +
			"spec: {selector: {meshService: {matchLabels: {}}}, template: '{{ .DisplayName }}.test'}\n"},
		[]string{"", "---\ntype: MeshMultiZoneService\nmesh: default\nname: z\n" +
			"spec: {selector: {meshService: {matchLabels: {team: x}}}, ports: [{port: 80}]}\n"},
	)
}

// viewDump holds the public results of a view in a comparable form.
type viewDump struct {
	Services []mesh.Service
	Warnings []mesh.Warning
	Catalog  [32]byte
	Names    []mesh.Hostname
	Status   [][]mesh.HostnameStatus
	VIPs     []virtualip.Entry
	Real     map[string]bool
}

func dumpView(v *mesh.View) viewDump {
	d := viewDump{Warnings: slices.Clone(v.Warnings), Catalog: v.Catalog, Names: slices.Clone(v.Hostnames()),
		VIPs: v.VIPs().Entries(), Real: map[string]bool{}}
	for _, s := range v.Services() {
		d.Services = append(d.Services, *s)
		d.Status = append(d.Status, v.HostnamesOf(s))
		d.Real[s.Resource.String()] = v.MeshService(s.Resource) != nil
	}
	return d
}

// sameDump compares resources by their content, as views do. It ignores the other services behind
// an ingress.
var sameDump = cmp.Options{
	cmpopts.IgnoreUnexported(mesh.Service{}), cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b mesh.Endpoint) bool {
		return a.Address == b.Address && a.Port == b.Port && a.Zone == b.Zone && maps.Equal(a.Tags, b.Tags) &&
			a.Index == b.Index && a.Weight == b.Weight && sameContent(a.Resource, b.Resource)
	}),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func sameContent(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil && a.Key == b.Key && (a.Digest == b.Digest || a.Kind == "ZoneIngress")
}

// TestViewsTakeOver changes a mesh at random many times. Each view that reuses parts of the
// previous one equals a view built from scratch, and the previous view does not change.
func TestViewsTakeOver(t *testing.T) {
	decode := func(doc string) *resource.Resource {
		rs, faults := kinds.Registry().WithInternal().Decode("test", []byte(doc))
		if len(faults) > 0 || len(rs) != 1 {
			t.Fatalf("%v\n%s", faults, doc)
		}
		return rs[0]
	}
	slots := documentForms()
	forms := make([][]*resource.Resource, len(slots))
	for i, docs := range slots {
		for _, doc := range docs {
			var r *resource.Resource
			if doc != "" {
				r = decode(doc)
			}
			forms[i] = append(forms[i], r)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		have := make([]*resource.Resource, len(slots))
		for i := range have {
			have[i] = rapid.SampledFrom(forms[i]).Draw(t, "first")
		}
		var last *mesh.View
		o := mesh.Options{}
		for range rapid.IntRange(2, 6).Draw(t, "steps") {
			if last != nil {
				for range rapid.IntRange(0, 2).Draw(t, "changes") {
					i := rapid.IntRange(0, len(have)-1).Draw(t, "which")
					have[i] = rapid.SampledFrom(forms[i]).Draw(t, "form")
					if have[i] != nil && rapid.IntRange(0, 3).Draw(t, "anew") == 0 { // decoded a second time, with equal content
						decoded := *have[i]
						have[i] = &decoded
					}
				}
			}
			switch rapid.IntRange(0, 9).Draw(t, "options") {
			case 0:
				o.FlatNetwork = !o.FlatNetwork
			case 1:
				o.Zone = "east"
			case 2:
				o.Zone = ""
			case 3:
				o.VIPs.IPv6 = !o.VIPs.IPv6
			case 4: // every address of a MeshService moves
				o.VIPs.Ranges.MeshService.V4 = netip.MustParsePrefix(fmt.Sprintf("%d.0.0.0/8",
					rapid.IntRange(244, 247).Draw(t, "range")))
			}
			set := resource.NewSet(slices.DeleteFunc(slices.Clone(have), func(r *resource.Resource) bool { return r == nil }))
			if last != nil {
				o.VIPs.Known = last.VIPs()
			}
			fresh, err := mesh.Build(set, "default", o, nil)
			if err != nil {
				t.Fatal(err)
			}
			var before viewDump
			if last != nil {
				before = dumpView(last)
			}
			next, err := mesh.Build(set, "default", o, last)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(dumpView(fresh), dumpView(next), sameDump); diff != "" {
				t.Fatalf("a view that reuses parts differs from one built from scratch: %s", diff)
			}
			if last != nil {
				if diff := cmp.Diff(before, dumpView(last), sameDump); diff != "" {
					t.Fatalf("making a view changed the one before: %s", diff)
				}
			}
			last = next
		}
	})
}

// TestOneChangeMakesLittle measures allocations after one of many endpoints moved: less than a
// third of a full build.
func TestOneChangeMakesLittle(t *testing.T) {
	for _, mode := range []string{resource.MeshServicesDisabled, resource.MeshServicesExclusive} {
		rs := bigMesh(200, 4, mode)
		set, moved := resource.NewSet(rs), resource.NewSet(append(rs, endpoint("s00100", 2, "10.200.0.1")))
		var last *mesh.View
		allocations := func(set *resource.Set, prev *mesh.View) float64 {
			o := mesh.Options{}
			if prev != nil {
				o.VIPs.Known = prev.VIPs()
			}
			return testing.AllocsPerRun(3, func() { last, _ = mesh.Build(set, "default", o, prev) })
		}
		first := allocations(set, nil)
		if second := allocations(moved, last); second > first/3 {
			t.Errorf("%s: one endpoint moved, and the view took %.0f allocations, of %.0f for the first", mode, second, first)
		}
	}
}
