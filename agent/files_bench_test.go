package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkManyFiles changes, removes, and adds one Dataplane in a directory with 5,000 other files
// of MeshServices, and waits until a client has the endpoints. It reports the median and maximum of
// each.
func BenchmarkManyFiles(b *testing.B) {
	a := agenttest.RunAgent(b)
	dir := a.Config().Resources.Dir[0].Path
	agenttest.Do(b, os.MkdirAll(dir, 0o755))
	write := func(name, text string) {
		agenttest.Write(b, filepath.Join(dir, "."+name), text)
		agenttest.Do(b, os.Rename(filepath.Join(dir, "."+name), filepath.Join(dir, name)))
	}
	for i := range 5000 {
		write(fmt.Sprintf("shop.s-%d.service.yaml", i), fmt.Sprintf("{apiVersion: kuma.io/v1alpha1, kind: MeshService, "+
			"metadata: {name: s-%d, namespace: shop}, spec: {selector: {dataplaneTags: {app: s-%d, k8s.kuma.io/namespace: "+
			"shop}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}, status: {vips: [{ip: 10.96.%d.%d}]}}\n", i, i,
			i/250, 1+i%250))
	}
	pod := func(state string) {
		write("shop.pod.yaml", "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: pod, namespace: shop}, "+
			"spec: {networking: {address: 10.0.0.9, inbound: [{port: 8080, state: "+state+", tags: {kuma.io/service: svc-7, "+
			"kuma.io/protocol: http, app: s-7, k8s.kuma.io/namespace: shop}}]}}}\n")
	}
	pod("Ready")
	write("web.yaml", "{type: Mesh, name: default}\n---\n{type: Dataplane, name: web-0, networking: {address: 10.0.0.1, "+
		"inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 20000, tags: {kuma.io/service: svc-7}}]}}\n")
	endpoints := make(chan int, 1000)
	c := newDeltaClient(b.Context(), b, a.Addrs().XDS, "default.web-0", func(r *discoveryv3.Resource) {
		if r.Resource.GetTypeUrl() != draft.TypeEndpoint {
			return
		}
		n, load := 0, &endpointv3.ClusterLoadAssignment{}
		if r.Resource.UnmarshalTo(load) == nil {
			for _, l := range load.Endpoints {
				n += len(l.LbEndpoints)
			}
		}
		endpoints <- n
	})
	go c.run()
	await := func(want int) {
		for n := range endpoints {
			if n == want {
				return
			}
		}
	}
	await(1)
	steps := []struct {
		name string
		make func()
		want int
		all  []time.Duration
	}{
		{"unready", func() { pod("NotReady") }, 0, nil},
		{"ready", func() { pod("Ready") }, 1, nil},
		{"removed", func() { agenttest.Do(b, os.Remove(filepath.Join(dir, "shop.pod.yaml"))) }, 0, nil},
		{"added", func() { pod("Ready") }, 1, nil},
	}
	for b.Loop() {
		for i := range steps {
			began := time.Now()
			steps[i].make()
			await(steps[i].want)
			steps[i].all = append(steps[i].all, time.Since(began))
		}
	}
	for _, s := range steps {
		slices.Sort(s.all)
		b.ReportMetric(float64(s.all[len(s.all)/2].Microseconds())/1000, s.name+"-median-ms")
		b.ReportMetric(float64(s.all[len(s.all)-1].Microseconds())/1000, s.name+"-max-ms")
	}
}
