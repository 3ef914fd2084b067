package status_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestTargetProblems checks that a reference that leads nowhere is a problem while it does.
func TestTargetProblems(t *testing.T) {
	const route = "{type: MeshTCPRoute, mesh: default, name: canary, spec: {to: [{targetRef: {kind: MeshService, " +
		"name: backend}, rules: [{default: {backendRefs: [{kind: MeshServiceSubset, name: backend, " +
		"tags: {version: v9}}]}}]}]}}"
	last := func(version string) *status.Result {
		rs, faults := kinds.Registry().Decode("test.yaml", []byte("{type: Mesh, name: default}\n---\n"+
			"{type: Dataplane, mesh: default, name: backend, networking: {address: 192.0.2.1, "+
			"inbound: [{port: 80, tags: {kuma.io/service: backend, version: "+version+"}}], "+
			"outbound: [{port: 90, tags: {kuma.io/service: backend}}]}}\n---\n"+route))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &status.Result{Meshes: map[string]*generate.Mesh{"default": m}}
	}
	s, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var tracker status.Tracker
	problems := func(r *status.Result) (out []string) {
		f := &status.Facts{Snap: s.Snapshot(), Last: r, Status: &api.Status{}}
		for _, p := range tracker.Problems(t.Context(), f) {
			out = append(out, p.Severity+" "+p.Resource+" "+p.Reason)
		}
		return out
	}
	dead := last("v1")
	for range 2 { // computed, then cached
		got := problems(dead)
		if len(got) != 1 || !strings.Contains(got[0], "warning MeshTCPRoute/default/canary to[0].rules[0].default."+
			"backendRefs[0]: no instance of backend has the tag version: v9") {
			t.Errorf("got %q", got)
		}
	}
	if got := problems(last("v9")); len(got) > 0 {
		t.Errorf("an instance has the tag: %q", got)
	}
}
