package mesh_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// TestIdentities checks the identities of services: the listed ones, else those of the dataplanes,
// and none without mTLS.
func TestIdentities(t *testing.T) {
	const secure = "type: Mesh\nname: default\nmeshServices: {mode: Everywhere}\n" +
		"mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"
	dps := dataplane("a", "10.0.0.1", "one", "  - port: 9090\n    tags: {kuma.io/service: admin}\n"+
		"  - {port: 9091, state: Ignored, tags: {kuma.io/service: ignored}}\n") +
		strings.Replace(dataplane("b", "10.0.0.2", "two", ""), "port: 8080", "port: 8080\n    state: NotReady", 1)
	service := func(name, selector, rest string) string {
		return service(name, "set: x", selector, "{port: 8080}, {port: 81}") + rest
	}
	const multi = "---\ntype: MeshMultiZoneService\nmesh: default\nname: all\n" +
		"spec: {selector: {meshService: {matchLabels: {set: x}}}, ports: [{port: 8080}]}\n"
	for want, doc := range map[string]string{
		"s spiffe://default/admin spiffe://default/one ready=false": service("s", "dataplaneTags: {kuma.io/service: one}",
			""),
		"s spiffe://default/admin spiffe://default/one spiffe://default/two ready=false": service("s",
			"dataplaneTags: {kuma.io/protocol: http}", ""),
		"s spiffe://default/two ready=false": service("s",
			"dataplaneRef: {name: b}", ""),
		"s spiffe://default/x spiffe://elsewhere/ns ready=true": service("s", "dataplaneRef: {name: b}",
			"  identities: [{type: SpiffeID, value: 'spiffe://elsewhere/ns'}, {type: ServiceTag, value: x}]\n"+
				"status: {tls: {status: Ready}}\n"),
		"s ready=false":                        service("s", "dataplaneRef: {name: nobody}", ""),
		"two spiffe://default/two ready=false": "",
		"all spiffe://default/admin spiffe://default/one spiffe://default/two ready=false": service("p",
			"dataplaneRef: {name: a}", "") + service("q", "dataplaneRef: {name: b}", "") + multi,
	} {
		name, _, _ := strings.Cut(want, " ")
		for _, head := range []string{secure, "type: Mesh\nname: default\nmeshServices: {mode: Everywhere}\n"} {
			v := build(t, head+dps+doc)
			n := 0
			for _, s := range v.Services() {
				if s.ID.Kind == mesh.KindTag || s.Resource.Name != name {
					continue
				}
				n++
				got := strings.Join(append([]string{name}, s.Identities...), " ")
				if s.TLSReady {
					got += " ready=true"
				} else {
					got += " ready=false"
				}
				if head == secure && got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if head != secure && len(s.Identities) > 0 {
					t.Errorf("without mTLS: got %v", s.Identities)
				}
			}
			if n == 0 {
				t.Errorf("there is no service %s", name)
			}
		}
	}
}

// TestIdentitiesAreOfTheCatalog checks that the catalog hash changes with an identity, but not with
// an endpoint that becomes ready.
func TestIdentitiesAreOfTheCatalog(t *testing.T) {
	const secure = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"
	msvc := service("s", "", "dataplaneLabels: {matchLabels: {team: x}}", "{port: 8080}")
	a := strings.Replace(dataplane("a", "10.0.0.1", "one", ""), "name: a\n", "name: a\nlabels: {team: x}\n", 1)
	b := dataplane("b", "10.0.0.2", "two", "")
	base := build(t, secure+msvc+a+b).Catalog
	if notReady := strings.Replace(a, "port: 8080", "port: 8080\n    state: NotReady",
		1); build(t, secure+msvc+notReady+b).Catalog != base {
		t.Error("an endpoint that is not ready changes the catalog")
	}
	if build(t, secure+msvc+a+strings.Replace(b, "name: b\n", "name: b\nlabels: {team: x}\n", 1)).Catalog == base {
		t.Error("another identity does not change the catalog")
	}
}
