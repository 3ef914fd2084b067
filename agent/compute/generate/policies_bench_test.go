package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// policies returns n policies each of MeshTimeout, MeshCircuitBreaker, MeshAccessLog, and
// MeshTrafficPermission. The first of each kind applies to all services, each other one to a single
// service or version.
func policies(tb testing.TB, n int) []*resource.Resource {
	tb.Helper()
	var b strings.Builder
	for i := range n {
		to := "{kind: Mesh}"
		if i > 0 {
			to = fmt.Sprintf("{kind: MeshService, name: svc-%d}", i)
		}
		for _, p := range []struct{ kind, name, rules string }{
			{"MeshTimeout",
				"t", fmt.Sprintf("to: [{targetRef: %s, default: {connectionTimeout: %ds, http: {requestTimeout: 9s}}}]", to, i+1)},
			{"MeshCircuitBreaker",
				"c", fmt.Sprintf("to: [{targetRef: %s, default: {connectionLimits: {maxConnections: %d}}}]", to, i+1)},
			{"MeshAccessLog", "l", fmt.Sprintf("to: [{targetRef: %s, default: {backends: [{type: File, "+
				"file: {path: /var/log/mesh/%d.log}}]}}]", to, i)},
			{"MeshTrafficPermission",
				"p", fmt.Sprintf("from: [{targetRef: {kind: MeshSubset, tags: {version: v%d}}, default: {action: Allow}}]", i)},
		} {
			fmt.Fprintf(&b, "{type: %s, name: %s-%d, spec: {targetRef: {kind: Mesh}, %s}}\n---\n", p.kind, p.name, i, p.rules)
		}
	}
	rs, faults := kinds.Registry().Decode("policies", []byte(b.String()))
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	return rs
}

// BenchmarkPolicies measures deriving the whole mesh and the config of proxy web with policies from
// decoded resources. The first number is the number of services, the second the number of policies.
func BenchmarkPolicies(b *testing.B) {
	for _, c := range []struct{ services, policies int }{{100, 20}, {1000, 20}, {1000, 100}, {1000, 1000}} {
		b.Run(fmt.Sprintf("%d/%d", c.services, c.policies), func(b *testing.B) {
			rs := slices.Concat(bigMesh(c.services, 0), policies(b, c.policies/4))
			slices.SortFunc(rs, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) })
			plugins := kinds.Plugins()
			b.ReportAllocs()
			for b.Loop() {
				m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, plugins, policy.Options{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				if len(p.Sealed.Resources[1]) != c.services+1 {
					b.Fatalf("got %d clusters", len(p.Sealed.Resources[1]))
				}
			}
		})
	}
}
