package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/node"
)

// TestOwners asks which policies shape which resources.
func TestOwners(t *testing.T) {
	rs := slices.Concat(bigMesh(2, 0), decoded(t, `
{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 3s}}]}}
---
{type: MeshTimeout, mesh: default, name: hidden, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 3s}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: c, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 7}}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: elsewhere, spec: {targetRef: {kind: MeshService, name: svc-1}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 8}}}]}}
`))
	m := meshOf(t, rs, nil)
	owners, err := m.Owners("web", node.FlavorEnvoy, func(id draft.ResourceID) bool { return strings.HasSuffix(id.TypeURL, ".Cluster") })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for id, list := range owners {
		for _, o := range list {
			got = append(got, fmt.Sprintf("%s %s/%s %v", id.Name, o.Policy.Kind, o.Policy.Name, o.Without != nil))
		}
	}
	slices.Sort(got)
	want := []string{"svc-0 MeshCircuitBreaker/c true", "svc-1 MeshCircuitBreaker/c true"}
	if diff := cmp.Diff(want, slices.DeleteFunc(got, func(s string) bool { return !strings.Contains(s, "svc-") || strings.Contains(s, "MeshTimeout") })); diff != "" {
		t.Error(diff)
	}
	a, b := proxyOf(t, m, "web", nil, nil), proxyOf(t, meshOf(t, bigMesh(2, 0), nil), "web", nil, nil)
	var names []string
	for _, id := range generate.Difference(a, b) {
		names = append(names, id.TypeURL[strings.LastIndexByte(id.TypeURL, '.')+1:]+"/"+id.Name)
	}
	if len(names) == 0 || !slices.IsSorted(names) || !slices.Contains(names, "Cluster/svc-0") {
		t.Errorf("changed: %v", names)
	}
	if len(generate.Difference(a, a)) != 0 {
		t.Error("a config differs from itself")
	}
}
