package servername_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

// TestOf checks the forms of the reference, and names that are too long for an SNI.
func TestOf(t *testing.T) {
	long := strings.Repeat("n", 70)
	real := func(kind, name string) *mesh.Outbound {
		return &mesh.Outbound{Service: &mesh.Service{ID: mesh.ServiceID{Kind: kind, Name: "x"}, FullName: name, Port: 8080}}
	}
	tag := func(name string, subset map[string]string) *mesh.Outbound {
		return &mesh.Outbound{Service: &mesh.Service{ID: mesh.ServiceID{Name: name}}, Subset: subset}
	}
	for want, o := range map[string]*mesh.Outbound{
		"backend{mesh=default}":         tag("backend", nil),
		"backend{a=1,mesh=default,z=2}": tag("backend", map[string]string{"z": "2", "a": "1"}),
		"":                              tag(strings.Repeat("b", 250), nil),
		"a601e0c00295a9fbe.backend.8080.default.ms":            real(mesh.KindMeshService, "backend"), // as in Kuma 2.9
		"add27113f6ca4edc8.web.8080.default.ms":                real(mesh.KindMeshService, "web"),
		"a601e0c00295a9fbe.backend.8080.default.mzms":          real(mesh.KindMeshMultiZoneService, "backend"),
		"a4c9c6636c4de60ac." + long[:62] + "x.8080.default.ms": real(mesh.KindMeshService, long),
		"a601e0c00295a9fbe.backend.8080.default.mes":           real(mesh.KindMeshExternalService, "backend"),
	} {
		if got := servername.Of("default", o); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
