package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// effectless returns n policies without effect: retries of HTTP requests to services that speak
// TCP. Each selects all proxies.
func effectless(n int) string {
	var b strings.Builder
	b.WriteString(`---` + "\n" + `{"type":"Dataplane","mesh":"default","name":"redis","networking":{"address":"10.8.0.1",` +
		`"inbound":[{"port":6379,"tags":{"kuma.io/service":"redis","kuma.io/protocol":"tcp"}}]}}` + "\n")
	for i := range n {
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshRetry","mesh":"default","name":"without-%d","spec":{"targetRef":{"kind":"Mesh"},`+
			`"to":[{"targetRef":{"kind":"MeshService","name":"redis"},"default":{"http":{"numRetries":%d}}}]}}`+"\n", i, i+1)
	}
	return b.String()
}

// BenchmarkEffects has 300 connected proxies that reach 1,000 services, 20 policies, and 5 policies
// without effect. It reports the time of a status after a change of a policy, until the effects of
// all policies are known, and the median of further ones. It also reports the CPU time of 150
// changes of an endpoint at 10 per second, each pair of which is without and with a status and the
// metrics, as of a monitoring system that asks every 15 s.
func BenchmarkEffects(b *testing.B) {
	const services, proxies = benchServices, 300
	a := newStormAgent(b, services, proxies)
	a.write("policies.yaml", benchPolicies(20)+effectless(5))
	a.start(nil)
	a.ask(http.MethodGet, "/readyz", "")
	c := newCrowdOfClients(b, a, services, proxies)
	arrived := make(chan struct{}, 4*proxies)
	c.got = func(_ int, typeURL string, names []string) {
		if typeURL == draft.TypeEndpoint && len(names) == 1 && names[0] == "svc-7" {
			arrived <- struct{}{}
		}
	}
	c.connect(0, proxies)
	c.await(proxies, 5*time.Minute)
	<-time.After(time.Second) // acknowledgements
	n := 0
	endpoints := func(k int) {
		for range k {
			n++
			a.ask(http.MethodPost, "/v1/apply", endpoint(7, 2, fmt.Sprintf("10.7.%d.%d", n/250, 1+n%250)))
			for range proxies {
				<-arrived
			}
		}
	}
	var known, times []time.Duration
	a.profile(20)
	for b.Loop() {
		n++
		began := time.Now()
		a.ask(http.MethodPost, "/v1/apply", fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"edited","spec":`+
			`{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"%ds"}}]}}`+"\n", n))
		for s := statusOf(b, a); s.Unexamined > 0 || without(s) < 5; s = statusOf(b, a) {
		}
		known = append(known, time.Since(began))
		for range 5 {
			began = time.Now()
			statusOf(b, a)
			times = append(times, time.Since(began))
		}
	}
	var ratios []float64
	for range 5 {
		used := a.cpu()
		endpoints(150)
		alone := a.cpu() - used
		used = a.cpu()
		endpoints(75)
		statusOf(b, a)
		a.ask(http.MethodGet, "/metrics", "")
		endpoints(75)
		ratios = append(ratios, float64(a.cpu()-used)/float64(alone))
	}
	slices.Sort(known)
	slices.Sort(times)
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(known[len(known)/2]), "known-ms")
	b.ReportMetric(ms(times[len(times)/2]), "status-ms")
	b.ReportMetric(ratios[len(ratios)/2], "cpu-ratio")
}

func statusOf(b *testing.B, a *stormAgent) *api.Status {
	var s api.Status
	agenttest.Do(b, json.Unmarshal([]byte(a.ask(http.MethodGet, "/v1/status", "")), &s))
	return &s
}

// without returns the number of policies without effect.
func without(s *api.Status) (n int) {
	for _, p := range s.Problems {
		if p.Check == api.ClassNoEffect && strings.Contains(p.Resource, "/without-") {
			n++
		}
	}
	return n
}
