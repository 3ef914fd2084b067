package mesh_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const reachTP = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, %s}\n"

// TestListsThatLeadNowhere checks the warnings about entries that match nothing, and their
// suggestions.
func TestListsThatLeadNowhere(t *testing.T) {
	doc := meshDoc + "meshServices: {mode: Everywhere}\n" + dataplane("a", "10.0.0.1", "backend", "") +
		service("redis", "app: x", "dataplaneTags: {kuma.io/service: backend}",
			"{port: 80, targetPort: 8080}, {port: 81, targetPort: 8080}") +
		// in another format
		"---\napiVersion: kuma.io/v1alpha1\nkind: MeshService\nmesh: default\nmetadata: {name: queue, namespace: shop}\n" +
		"spec:\n  selector: {dataplaneTags: {app: q}}\n  ports: [{port: 80}]\n"
	for name, c := range map[string]struct{ lists, want string }{
		"all is well": {"reachableServices: [backend], reachableBackends: {refs: [{kind: MeshService, name: redis, " +
			"port: 81}, {kind: MeshService, labels: {app: x}}]}", ""},
		"a service": {"reachableServices: [backen]",
			`networking.transparentProxying.reachableServices[0]: there is no service "backen"; did you mean "backend"?`},
		"any": {"reachableServices: ['*']", `there is no service "*"`},
		"a name": {"reachableBackends: {refs: [{kind: MeshService, name: redi}]}",
			`networking.transparentProxying.reachableBackends.refs[0]: there is no MeshService "redi"; did you mean "redis"?`},
		"nothing like it": {"reachableBackends: {refs: [{kind: MeshService, name: elsewhere}]}",
			`refs[0]: there is no MeshService "elsewhere"`},
		"another kind": {"reachableBackends: {refs: [{kind: MeshMultiZoneService, name: redis}]}",
			`refs[0]: there is no MeshMultiZoneService "redis"`},
		"a port": {"reachableBackends: {refs: [{kind: MeshService, name: redis, port: 82}]}",
			`refs[0]: MeshService "redis" has no port 82; it has 80, 81`},
		"a namespace": {"reachableBackends: {refs: [{kind: MeshService, name: queue}]}",
			`refs[0]: there is no MeshService "queue"; there is one in namespace "shop"`},
		"another namespace": {"reachableBackends: {refs: [{kind: MeshService, name: queue, namespace: shopp}]}",
			`in namespace "shopp"; there is one in namespace "shop"`},
		"labels": {"reachableBackends: {refs: [{kind: MeshService, labels: {app: z}}]}",
			`refs[0]: there is no MeshService with labels app=z`},
	} {
		v := build(t, doc+dataplane("web", "10.0.0.2", "web", fmt.Sprintf(reachTP, c.lists)))
		_, warnings := v.Outbounds(v.Dataplane("web"))
		switch {
		case c.want == "" && len(warnings) == 0:
		case len(warnings) != 1 || warnings[0].Resource.Name != "web" || c.want == "" ||
			!strings.HasSuffix(warnings[0].Reason, c.want):
			t.Errorf("%s: %v, want %q", name, warnings, c.want)
		}
	}
	long := "reachableServices: [" + strings.Repeat("x, ", 1000) + "y]"
	v := build(t, doc+dataplane("web", "10.0.0.2", "web", fmt.Sprintf(reachTP, long)))
	if _, warnings := v.Outbounds(v.Dataplane("web")); len(warnings) != 17 ||
		!strings.Contains(warnings[16].Reason, "985 more entries") {
		t.Errorf("%d warnings, the last %v", len(warnings), warnings[len(warnings)-1])
	}
}

// TestReferenceDefaults selects in the namespace of the dataplane, and by implied labels.
func TestReferenceDefaults(t *testing.T) {
	k8s := func(kind, name, ns, labels, spec string) string {
		return fmt.Sprintf("---\napiVersion: kuma.io/v1alpha1\nkind: %s\nmesh: default\n"+
			"metadata: {name: %s, namespace: %s, labels: {%s}}\nspec:\n%s", kind, name, ns, labels, spec)
	}
	const ports = "  selector: {dataplaneTags: {app: q}}\n  ports: [{port: 80}, {port: 81}]\n"
	doc := meshDoc + "meshServices: {mode: Exclusive}\n" + dataplane("a", "10.0.0.1", "derived", "") +
		k8s("MeshService", "db", "shop", "", ports) + k8s("MeshService", "db", "other", "", ports) +
		k8s("MeshService", "db-x7", "system", "kuma.io/display-name: db, kuma.io/origin: global, kuma.io/zone: west", ports)
	for refs, want := range map[string]string{
		"{kind: MeshService, name: db}":                             "db.shop:80 db.shop:81",
		"{kind: MeshService, name: db, port: 81}":                   "db.shop:81",
		"{kind: MeshService, name: db, namespace: other, port: 80}": "db.other:80",
		"{kind: MeshService, labels: {kuma.io/display-name: db}}": "db-x7.system:80 db-x7.system:81 db.other:80 " +
			"db.other:81 db.shop:80 db.shop:81",
		"{kind: MeshService, labels: {kuma.io/display-name: db, kuma.io/zone: west}}": "db-x7.system:80 db-x7.system:81",
		"{kind: MeshService, labels: {kuma.io/zone: default}}": "db.other:80 db.other:81 db.shop:80 db.shop:81 " +
			"derived:8080",
		"{kind: MeshService, labels: {kuma.io/env: universal}}":       "derived:8080",
		"{kind: MeshService, labels: {k8s.kuma.io/namespace: other}}": "db.other:80 db.other:81",
		"{kind: MeshService, labels: {kuma.io/origin: global}}":       "db-x7.system:80 db-x7.system:81",
	} {
		v := build(t, doc+k8s("Dataplane", "web", "shop", "", "  networking:\n    address: 10.0.0.2\n"+
			"    inbound: [{port: 1, tags: {kuma.io/service: w, kuma.io/protocol: http}}]\n  "+
			fmt.Sprintf(reachTP, "reachableBackends: {refs: ["+refs+"]}")))
		out, warnings := v.Outbounds(v.Dataplane("web.shop"))
		var got []string
		for _, o := range out {
			got = append(got, fmt.Sprintf("%s:%d", o.Service.Resource.Name, o.Port))
		}
		got = slices.DeleteFunc(got, func(s string) bool { return s == "w:1" })
		slices.Sort(got)
		if strings.Join(got, " ") != want || len(warnings) > 0 {
			t.Errorf("%s: %v %v, want %s", refs, got, warnings, want)
		}
	}
}

// reads implements the specification a second time: it reports whether references make a service
// reachable, from the documents.
func reads(v *mesh.View, dp *resource.Resource, tp *resource.TransparentProxying, s *mesh.Service) bool {
	if s.ID.Kind == mesh.KindTag {
		if v.Spec.ServicesMode() == resource.MeshServicesExclusive {
			return false
		}
		for _, name := range tp.ReachableServices {
			if name == s.Tag {
				return true
			}
		}
		return len(tp.ReachableServices) == 0
	}
	if tp.ReachableBackends == nil {
		return v.Spec.ServicesMode() != "ReachableBackends" && len(tp.ReachableServices) == 0
	}
	for _, ref := range tp.ReachableBackends.Refs {
		if ref.Kind != s.Resource.Kind || ref.Port != nil && *ref.Port != s.Port {
			continue
		}
		if len(ref.Labels) > 0 {
			have := map[string]string{"kuma.io/zone": v.Zone}
			maps.Copy(have, s.Labels)
			all := true
			for k, want := range ref.Labels {
				all = all && have[k] == want
			}
			if all {
				return true
			}
			continue
		}
		if ref.Name == s.Resource.Name {
			return true
		}
	}
	return false
}

// TestRestrictedIsFiltered checks random lists: a proxy reaches the services of a proxy without
// lists, filtered by the specification, in any order of the lists.
func TestRestrictedIsFiltered(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		var doc strings.Builder
		mode := rapid.SampledFrom([]string{"Disabled", "Everywhere", "Exclusive", "ReachableBackends"}).Draw(rt, "mode")
		doc.WriteString(meshDoc + "meshServices: {mode: " + mode + "}\n" + dataplane("one", "10.0.0.1", "a", "") +
			dataplane("two", "10.0.0.2", "b", ""))
		for _, n := range []string{"a", "c", "d"} {
			doc.WriteString(service(n, fmt.Sprintf("app: %s, kuma.io/zone: %s", name.Draw(rt, "app"),
				rapid.SampledFrom([]string{"west", "default"}).Draw(rt, "zone")),
				"dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080}, {port: 81, targetPort: 8080}"))
		}
		doc.WriteString("---\n{type: MeshMultiZoneService, mesh: default, name: d, labels: {app: a}, " +
			"spec: {selector: {meshService: {matchLabels: {app: a}}}, ports: [{port: 80, appProtocol: tcp}]}}\n")
		var services, refs []string
		for range rapid.IntRange(0, 3).Draw(rt, "services") {
			services = append(services, name.Draw(rt, "service"))
		}
		for range rapid.IntRange(0, 4).Draw(rt, "refs") {
			ref := "kind: " + rapid.SampledFrom([]string{"MeshService", "MeshMultiZoneService"}).Draw(rt, "kind")
			switch rapid.IntRange(0, 3).Draw(rt, "by") {
			case 0:
				ref += ", labels: {app: " + name.Draw(rt, "label") + "}"
			case 1:
				ref += ", labels: {app: " + name.Draw(rt, "label") + ", kuma.io/zone: default}"
			case 2:
				ref += ", port: 80, name: " + name.Draw(rt, "name")
			default:
				ref += ", name: " + name.Draw(rt, "name")
			}
			refs = append(refs, "{"+ref+"}")
		}
		restricted := rapid.Bool().Draw(rt, "restricted")
		lists := func(services, refs []string) string {
			out := "reachableServices: [" + strings.Join(services, ", ") + "]"
			if restricted {
				out += ", reachableBackends: {refs: [" + strings.Join(refs, ", ") + "]}"
			}
			return dataplane("web", "10.0.0.3", "web", fmt.Sprintf(reachTP, out))
		}
		reached := func(v *mesh.View) []string {
			var got []string
			out, _ := v.Outbounds(v.Dataplane("web"))
			for _, o := range out {
				got = append(got, o.Service.ID.Kind+"/"+o.Service.ID.Name)
			}
			return got
		}
		v := build(t, doc.String()+lists(services, refs))
		tp := v.Dataplane("web").Spec.(*resource.Dataplane).Networking.TransparentProxying
		var want []string
		for _, s := range v.Services() {
			if reads(v, v.Dataplane("web"), tp, s) {
				want = append(want, s.ID.Kind+"/"+s.ID.Name)
			}
		}
		got := reached(v)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("%s %v %v: got %v, want %v", mode, services, refs, got, want)
		}
		slices.Reverse(services)
		slices.Reverse(refs)
		reordered := reached(build(t, doc.String()+lists(services, refs)))
		slices.Sort(reordered)
		if !slices.Equal(got, reordered) {
			rt.Fatalf("in another order: %v and %v", got, reordered)
		}
	})
}
