package mesh_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestOptionalService checks that a MeshService with the label nearside.io/optional exists only
// while it selects an inbound, ready or not, and that its absence is no warning.
func TestOptionalService(t *testing.T) {
	service := func(label string) string {
		return "---\ntype: MeshService\nmesh: default\nname: web\nlabels: {" + label + "}\nspec:\n" +
			"  selector: {dataplaneTags: {app: web}}\n  ports: [{port: 80, targetPort: 8080, appProtocol: http}]\n"
	}
	const optional = `nearside.io/optional: "true"`
	web := func(tags string) string {
		return inbounds("web-1", "10.0.0.1", "port: 8080, "+tags+"tags: {kuma.io/service: web_ns_svc_80, app: web}")
	}
	for _, c := range []struct{ name, doc, want string }{
		{"no dataplane", exclusive(service(optional)), ""},
		{"one dataplane", exclusive(service(optional), web("")), `default_web__default_msvc_80 "" http 10.0.0.1:8080`},
		{"not ready", exclusive(service(optional), web("state: NotReady, ")), `default_web__default_msvc_80 "" http +1`},
		{"not optional", exclusive(service("a: b")), `default_web__default_msvc_80 "" http`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := build(t, c.doc)
			var got []string
			for _, line := range describeServices(v, mesh.KindMeshService) {
				if strings.Contains(line, "default_web_") && !strings.Contains(line, "web_ns_svc") {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "|")); diff != "" {
				t.Error(diff)
			}
			warned := false
			for _, w := range v.Warnings {
				warned = warned || w.Resource == resource.Key{Kind: "MeshService", Mesh: "default", Name: "web"}
			}
			if want := c.name == "not optional"; warned != want {
				t.Errorf("warned: %v, want %v", warned, want)
			}
		})
	}
}

// TestIdleServices checks that Services of Kubernetes without a pod cause one warning with their
// number, and a MeshService of a user one of its own.
func TestIdleServices(t *testing.T) {
	service := func(name, label string) string {
		return "---\ntype: MeshService\nmesh: default\nname: " + name + "\nlabels: {" + label + "}\nspec:\n" +
			"  selector: {dataplaneTags: {app: " + name + "}}\n  ports: [{port: 80, targetPort: 8080, appProtocol: http}]\n"
	}
	const kubernetes = "kuma.io/managed-by: k8s-controller"
	v := build(t, exclusive(service("a", kubernetes), service("b", kubernetes), service("web", kubernetes),
		service("own", ""),
		inbounds("web-1", "10.0.0.1", "port: 8080, tags: {kuma.io/service: web_ns_svc_80, app: web}")))
	var got []string
	for _, w := range v.Warnings {
		if w.Resource.Kind == "MeshService" && !strings.Contains(w.Resource.Name, "_svc_") {
			got = append(got, w.Resource.Name+": "+w.Reason)
		}
	}
	if text := strings.Join(got, "; "); len(got) != 2 ||
		!strings.Contains(text, "without a pod in the mesh: 2 (a, b). ") ||
		!strings.Contains(text, "own: spec.selector: no inbound") {
		t.Error(text)
	}
}
