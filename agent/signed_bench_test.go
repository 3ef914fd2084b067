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

// BenchmarkSigned applies a policy on one of two agents, with and without the key of an operator in
// turn, and waits until a client of the other agent has the changed listener. It reports the median
// time of both, and the median of their differences in pairs. The signed write includes its two
// requests.
func BenchmarkSigned(b *testing.B) {
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
	api, alice := one.Api(), trustKey("alice")
	i := 0
	write := func(signed bool) time.Duration {
		i++
		text := timeoutText("slow", fmt.Sprintf("%ds", 100+i))
		began := time.Now()
		var err error
		if signed {
			_, err = api.WriteSigned(b.Context(), alice, signedPut(b, text))
		} else {
			_, err = api.Apply(b.Context(), []byte(text), false)
		}
		agenttest.Do(b, err)
		<-listener
		return time.Since(began)
	}
	var plain, signed, more []time.Duration
	for b.Loop() {
		p, s := write(false), write(true)
		plain, signed, more = append(plain, p), append(signed, s), append(more, s-p)
	}
	median := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(plain), "plain-ms")
	b.ReportMetric(median(signed), "signed-ms")
	b.ReportMetric(median(more), "difference-ms")
}
