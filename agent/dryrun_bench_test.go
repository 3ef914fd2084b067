package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// manyDataplanes returns n Dataplanes in the common YAML form, ten per service.
func manyDataplanes(n int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	for i := range n {
		fmt.Fprintf(&b, "---\ntype: Dataplane\nmesh: default\nname: dp-%05d\nnetworking:\n  address: 10.%d.%d.%d\n"+
			"  inbound:\n  - port: 8080\n    servicePort: 18080\n    tags:\n      kuma.io/service: many-%d\n"+
			"      kuma.io/protocol: http\n",
			i, 100+i/62500, i/250%250, i%250+1, i/10)
	}
	return b.String()
}

// dryRun does the same as nearside apply --dry-run: it decodes a file and sends it to the agent.
func dryRun(ctx context.Context, a *agent.Agent, text string) (*api.Written, error) {
	return apply(ctx, a, text, true)
}

// apply does the same as nearside apply.
func apply(ctx context.Context, a *agent.Agent, text string, dryRun bool) (*api.Written, error) {
	o, faults := offline.Read([]offline.Text{{Name: "many.yaml", Data: []byte(text)}})
	if err := faults.Err(); err != nil {
		return nil, err
	}
	stream, err := o.Stream()
	if err != nil {
		return nil, err
	}
	return client.New(a.Addrs().API, agenttest.Patience).Apply(ctx, stream, dryRun, "items", "patch")
}

// BenchmarkDryRun measures a dry run of new Dataplanes from the text of a file to the response.
func BenchmarkDryRun(b *testing.B) {
	for _, n := range []int{5000, 10_000, 20_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := agenttest.RunAgent(b)
			text := manyDataplanes(n)
			before := cpu(b)
			for b.Loop() {
				w, err := dryRun(b.Context(), a, text)
				if err != nil || w.Diff == nil || len(w.Diff.Proxies) != n || len(w.Warnings) > 0 {
					b.Fatal(err, w.Warnings)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
			b.ReportMetric((cpu(b)-before).Seconds()/float64(b.N), "cpu-s")
		})
	}
}

// besideDryRuns repeats a dry run until stop is called. stop returns the number of completed dry
// runs.
func besideDryRuns(tb testing.TB, a *agent.Agent, n int) (stop func() int) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var ended atomic.Int64
	done, text := make(chan struct{}), manyDataplanes(n)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := dryRun(ctx, a, text); err != nil && ctx.Err() == nil {
				tb.Error(err)
				return
			}
			ended.Add(1)
		}
	}()
	return func() int {
		cancel()
		<-done
		return int(ended.Load())
	}
}

// BenchmarkDeliveryBesideDryRun is BenchmarkDelivery/api during consecutive dry runs of 20,000
// Dataplanes.
func BenchmarkDeliveryBesideDryRun(b *testing.B) {
	a := agenttest.RunAgent(b)
	stop := besideDryRuns(b, a, 20_000)
	deliver(b, a, func(text string) { agenttest.Apply(b, a, text) })
	b.ReportMetric(float64(stop()), "dry-runs")
}

// TestDeliveryBesideDryRun checks that changes reach a proxy while the agent is busy with dry runs.
func TestDeliveryBesideDryRun(t *testing.T) {
	a := agenttest.RunAgent(t)
	agenttest.Apply(t, a, bigMesh(3, 1))
	last, news := atomic.Pointer[string]{}, make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	c := newDeltaClient(ctx, t, a.Addrs().XDS, "default.web-0", func(r *discoveryv3.Resource) {
		if r.Name == "svc-1" && r.Resource.GetTypeUrl() == draft.TypeEndpoint {
			body := string(r.Resource.Value)
			last.Store(&body)
			news <- struct{}{}
		}
	})
	left := make(chan struct{})
	go func() { defer close(left); c.run() }()
	defer func() { cancel(); <-left }()
	stop := besideDryRuns(t, a, 1500)
	defer stop()
	for i := range 5 {
		address := fmt.Sprintf("10.7.0.%d", 101+i)
		agenttest.Apply(t, a, endpoint(1, 1, address))
		agenttest.Await(t, "the proxy has "+address, news, func() bool {
			body := last.Load()
			return body != nil && strings.Contains(*body, address)
		})
	}
}
