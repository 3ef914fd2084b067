package attribute_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestOwners checks which policies shape which resources. If two policies set the same value,
// neither is an owner.
func TestOwners(t *testing.T) {
	m, _ := fixture(t, `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: s0, networking: {address: 10.1.0.1, inbound: [{port: 8080, tags: {kuma.io/service: svc-0, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: s1, networking: {address: 10.1.0.2, inbound: [{port: 8080, tags: {kuma.io/service: svc-1, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.9.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 20000, tags: {kuma.io/service: svc-0}}, {port: 20001, tags: {kuma.io/service: svc-1}}]}}
---
{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 3s}}]}}
---
{type: MeshTimeout, mesh: default, name: hidden, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 3s}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: c, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 7}}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: elsewhere, spec: {targetRef: {kind: MeshService, name: svc-1}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 8}}}]}}
`)
	owners, err := attribute.Owners(m, generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy},
		func(id draft.ResourceID) bool { return strings.HasSuffix(id.TypeURL, ".Cluster") })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for id, list := range owners {
		for _, o := range list {
			got = append(got, fmt.Sprintf("%s %s/%s", id.Name, o.Kind, o.Name))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"svc-0 MeshCircuitBreaker/c", "svc-1 MeshCircuitBreaker/c"}, got); diff != "" {
		t.Error(diff)
	}
}
