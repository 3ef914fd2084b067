package change_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// wide returns a mesh with 20 policies, the services, and the proxies. Each proxy has its own
// service and an outbound to each of the services.
func wide(tb testing.TB, services, proxies int) *resource.Set {
	tb.Helper()
	var b strings.Builder
	b.WriteString("{type: Mesh, name: default}\n---\n")
	var outbound []string
	for i := range services {
		fmt.Fprintf(&b, "{type: Dataplane, mesh: default, name: svc-%d, networking: {address: 10.1.%d.%d, "+
			"inbound: [{port: 8080, tags: {kuma.io/service: svc-%d, kuma.io/protocol: http}}]}}\n---\n", i, i/250, i%250, i)
		outbound = append(outbound, fmt.Sprintf("{port: %d, tags: {kuma.io/service: svc-%d}}", 20000+i, i))
	}
	for i := range proxies {
		fmt.Fprintf(&b, "{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.9.0.%d, "+
			"inbound: [{port: 8080, tags: {kuma.io/service: web-%d, kuma.io/protocol: http}}], outbound: [%s]}}\n---\n",
			i, i+1, i, strings.Join(outbound, ", "))
	}
	for i := range 5 {
		to := "{kind: Mesh}"
		if i > 0 {
			to = fmt.Sprintf("{kind: MeshService, name: svc-%d}", i)
		}
		for kind, rules := range map[string]string{
			"MeshTimeout": fmt.Sprintf("to: [{targetRef: %s, default: {connectionTimeout: %ds, http: {requestTimeout: 9s}}}]",
				to, i+1),
			"MeshCircuitBreaker": fmt.Sprintf("to: [{targetRef: %s, default: {connectionLimits: {maxConnections: %d}}}]",
				to, i+1),
			"MeshAccessLog": fmt.Sprintf("to: [{targetRef: %s, default: {backends: [{type: File, "+
				"file: {path: /var/log/mesh/%d.log}}]}}]", to, i),
			"MeshTrafficPermission": fmt.Sprintf("from: [{targetRef: {kind: MeshSubset, tags: {version: v%d}}, "+
				"default: {action: Allow}}]", i),
		} {
			fmt.Fprintf(&b, "{type: %s, mesh: default, name: p-%d, spec: {targetRef: {kind: Mesh}, %s}}\n---\n", kind, i, rules)
		}
	}
	return resource.NewSet(decode(tb, b.String()))
}

// everywhere returns n policies that change every cluster and listener of each proxy.
func everywhere(tb testing.TB, n int) []*resource.Resource {
	tb.Helper()
	kinds := []string{
		"MeshTimeout, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 77s, " +
			"http: {requestTimeout: 78s}}}], from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1h}}]}",
		"MeshCircuitBreaker, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 77}}}]}",
		"MeshRetry, spec: {to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 3}}}]}",
		"MeshAccessLog, spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, " +
			"file: {path: /var/log/new.log}}]}}]}",
		"MeshFaultInjection, spec: {targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, " +
			"default: {http: [{abort: {httpStatus: 503, percentage: 5}}]}}]}",
	}
	var b strings.Builder
	for _, k := range kinds[:n] {
		kind, spec, _ := strings.Cut(k, ",")
		fmt.Fprintf(&b, "{type: %s, mesh: default, name: a-new-one, %s}\n---\n", kind, strings.TrimSpace(spec))
	}
	return decode(tb, b.String())
}

// BenchmarkCompare measures comparing 50 proxies with 100 services each, for different numbers of
// new policies.
func BenchmarkCompare(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := wide(b, 100, 50)
			m, err := newMesh(set, "default", nil)
			if err != nil {
				b.Fatal(err)
			}
			var connected []generate.ProxyID
			for i := range 50 {
				connected = append(connected,
					generate.ProxyID{Mesh: "default", Name: fmt.Sprintf("web-%d", i), Flavor: node.FlavorEnvoy})
			}
			c := change.Question{Set: set, Put: everywhere(b, n), NewMesh: newMesh,
				Meshes: map[string]*generate.Mesh{"default": m}, Connected: connected}
			b.ReportAllocs()
			for b.Loop() {
				d, err := diffFor(context.Background(), c)
				if err != nil {
					b.Fatal(err)
				}
				if len(d.Proxies) != 50 || d.Proxies[49].Truncated {
					b.Fatalf("%d proxies", len(d.Proxies))
				}
			}
		})
	}
}
