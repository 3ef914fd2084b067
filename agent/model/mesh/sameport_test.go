package mesh_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestSamePort checks that a dataplane whose inbounds share a port is an endpoint of each of their
// services, and one endpoint of a service that selects both.
func TestSamePort(t *testing.T) {
	const regular, headless = "port: 3306, tags: {kuma.io/service: db}", "port: 3306, tags: {kuma.io/service: db-headless}"
	doc := exclusive(inbounds("db-0", "10.0.0.1", regular, headless), inbounds("db-1", "10.0.0.2", regular),
		service("both", "", "dataplaneRef: {name: db-0}", "{port: 3306}"))
	want := `default_both__default_msvc_3306 "" tcp 10.0.0.1:3306
default_db-headless___msvc_3306 "3306" tcp 10.0.0.1:3306
default_db___msvc_3306 "3306" tcp 10.0.0.1:3306 10.0.0.2:3306`
	v := build(t, doc)
	if d := cmp.Diff(want, strings.Join(describeServices(v, mesh.KindMeshService), "\n")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, tag := range []string{"db", "db-headless"} {
		if s := v.Service(mesh.ServiceID{Name: tag}); s == nil || s.Endpoints.List[0].Address != "10.0.0.1" {
			t.Errorf("the tag service %s has no endpoint of the dataplane", tag)
		}
	}
}

// TestWithoutTags checks that MeshServices select inbounds without tags by the labels of their
// dataplane, also when the next view reuses them, and that no tag service results.
func TestWithoutTags(t *testing.T) {
	labelled := func(state string) string {
		return strings.Replace(inbounds("web-1", "10.0.0.1", "port: 8080, name: main, protocol: http"+state,
			"port: 9090, name: admin"), "name: web-1", "name: web-1\nlabels: {app: web, kuma.io/workload: web}", 1)
	}
	docs := func(state string) []*resource.Resource {
		rs, faults := kinds.Registry().Decode("test", []byte(exclusive(labelled(state),
			service("web", "", "dataplaneLabels: {matchLabels: {app: web}}",
				"{port: 80, targetPort: main, appProtocol: http}, {port: 81, name: side, targetPort: 9090}"),
			inbounds("db-1", "10.0.0.2", "port: 5432, tags: {kuma.io/service: db}"))))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return rs
	}
	var v *mesh.View
	for _, c := range []struct{ state, want string }{
		{"", `default_db___msvc_5432 "5432" tcp 10.0.0.2:5432|default_web__default_msvc_80 "" http 10.0.0.1:8080|` +
			`default_web__default_msvc_81 "side" tcp 10.0.0.1:9090`},
		{", state: NotReady", `default_db___msvc_5432 "5432" tcp 10.0.0.2:5432|default_web__default_msvc_80 "" http +1|` +
			`default_web__default_msvc_81 "side" tcp 10.0.0.1:9090`},
	} {
		var err error
		if v, err = mesh.Build(resource.NewSet(docs(c.state)), "default", mesh.Options{}, v); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(c.want, "|"), describeServices(v, mesh.KindMeshService)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if tags := describeServices(v, mesh.KindTag); len(tags) != 1 {
			t.Errorf("tag services %q, want only db", tags)
		}
		if len(v.Warnings) > 0 {
			t.Errorf("unexpected warnings: %v", v.Warnings)
		}
	}
}

// TestUnknownExtensions checks the warnings about fields that are accepted without effect.
func TestUnknownExtensions(t *testing.T) {
	for doc, want := range map[string]string{
		"---\n{type: HostnameGenerator, mesh: default, name: g, spec: {template: \"{{ .Name }}.local\", " +
			"selector: {meshService: {}}}}\n": `mesh: "default" has no effect: a generator belongs to no mesh`,
		"---\n{type: HostnameGenerator, name: g, spec: {template: \"{{ .Name }}.local\", " +
			"selector: {meshService: {}}, extension: {type: X}}}\n": "spec.extension: extensions are unknown here",
		"---\n{type: HostnameGenerator, name: g, spec: {selector: {meshService: {}}, extension: {type: X}}}\n": "spec." +
			"extension: unknown extension, and no template",
		"mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n---\n{type: ZoneEgress, name: e, networking: " +
			"{address: 10.0.0.9, port: 1}}\n---\n{type: MeshExternalService, mesh: default, name: x, spec: {match: " +
			"{port: 80}, extension: {type: Lambda}, endpoints: [{address: 192.0.2.1, port: 80}]}}\n": "spec.extension: " +
			"extensions are unknown here and have no effect: only spec.endpoints",
	} {
		w := build(t, meshDoc+doc).Warnings
		if len(w) != 1 || !strings.HasPrefix(w[0].Reason, want) {
			t.Errorf("%s: got %v, want one warning that begins with %q", doc, w, want)
		}
	}
}
