package access_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestKubernetesRole checks that the role of the watcher's directories writes only what the watcher
// derives from pods and Services.
func TestKubernetesRole(t *testing.T) {
	r, err := access.NewRoles(access.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range access.Verbs {
		for _, kind := range []string{"Dataplane", "MeshService", "Mesh", "MeshExternalService", access.KindAgent} {
			act := access.Action{Verb: verb, Kind: kind, Mesh: "default", Name: "a"}
			want := act.Writes() && (kind == "Dataplane" || kind == "MeshService")
			if got, known := r.RoleMay(access.TemplateKubernetes, act); got != want || !known {
				t.Errorf("%s: %v", act, got)
			}
		}
	}
}
