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

// BenchmarkPool applies a policy on one of two agents and waits until a client of the other agent
// has the changed listener. It reports the median and 99th percentile of that time, and of the time
// until the write is acknowledged.
func BenchmarkPool(b *testing.B) {
	one := pooled(b, agenttest.ShortDir(b), "a", "")
	two := pooled(b, agenttest.ShortDir(b), "b", one.Addrs().Gossip.String())
	agenttest.Apply(b, one.Agent, "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "api", "10.0.0.2"))
	agenttest.Apply(b, two.Agent, "type: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 10.0.0.1\n"+
		"  inbound:\n  - port: 80\n    tags: {kuma.io/service: web}\n"+
		"  outbound:\n  - port: 10000\n    tags: {kuma.io/service: api}\n")
	listener := make(chan string, 16)
	c := newDeltaClient(b.Context(), b, two.Addrs().XDS, "default.web", func(r *discoveryv3.Resource) {
		if r.Resource.GetTypeUrl() == draft.TypeListener && strings.HasPrefix(r.Name, "outbound") {
			listener <- r.Version
		}
	})
	go c.run()
	<-listener
	api := one.Api()
	var all, acked []time.Duration
	i := 0
	for b.Loop() {
		i++
		doc := timeoutText("slow", fmt.Sprintf("%ds", 100+i))
		began := time.Now()
		if _, err := api.Apply(b.Context(), []byte(doc), false); err != nil {
			b.Fatal(err)
		}
		acked = append(acked, time.Since(began))
		<-listener
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	slices.Sort(acked)
	ms := func(list []time.Duration, percent int) float64 {
		return float64(list[min(len(list)*percent/100, len(list)-1)].Microseconds()) / 1000
	}
	b.ReportMetric(ms(all, 50), "ms-p50")
	b.ReportMetric(ms(all, 99), "ms-p99")
	b.ReportMetric(ms(acked, 50), "ack-ms-p50")
}
