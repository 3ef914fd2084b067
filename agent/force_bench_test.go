package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkPolicyInForce applies a policy or an endpoint over the API in a mesh with mTLS, 100
// services, and one proxy. It reports the median time until the proxy has the change, and the CPU
// time of all of it.
func BenchmarkPolicyInForce(b *testing.B) {
	const policy = "{type: %s, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, %s}}"
	for _, c := range []struct {
		name, typ string
		document  func(i int) string
	}{
		{"MeshTimeout", draft.TypeCluster, func(i int) string {
			return fmt.Sprintf(policy, "MeshTimeout",
				fmt.Sprintf("to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds}}]", i))
		}},
		{"MeshTrafficPermission", draft.TypeListener, func(i int) string {
			return fmt.Sprintf(policy, "MeshTrafficPermission", fmt.Sprintf(
				"from: [{targetRef: {kind: MeshSubset, tags: {kuma.io/service: c%d}}, default: {action: Allow}}]", i))
		}},
		{"Dataplane", draft.TypeEndpoint, func(i int) string {
			return endpoint(7, 2, fmt.Sprintf("10.7.%d.%d", i/250, 1+i%250))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := agenttest.RunAgent(b)
			agenttest.Apply(b, a, strings.Replace(bigMesh(100, 1), "name: default", "name: default\nmtls:\n  "+
				"enabledBackend: ca\n  backends:\n  - {name: ca, type: builtin}", 1))
			arrived := make(chan struct{}, 100_000)
			client := newDeltaClient(b.Context(), b, a.Addrs().XDS, "default.web-0", func(r *discoveryv3.Resource) {
				if r.Resource.GetTypeUrl() == c.typ {
					arrived <- struct{}{}
				}
			})
			go client.run()
			agenttest.InSync(b, a, "default.web-0")
			var times []time.Duration
			before := cpu(b)
			for b.Loop() {
				for len(arrived) > 0 {
					<-arrived
				}
				<-time.After(40 * time.Millisecond) // a change soon after another one waits
				began := time.Now()
				document := c.document(1 + len(times))
				done := make(chan error, 1)
				go func() {
					_, err := apply(b.Context(), a, document, false)
					done <- err
				}()
				<-arrived
				times = append(times, time.Since(began))
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric((cpu(b)-before).Seconds()*1000/float64(len(times)), "cpu-ms")
		})
	}
}
