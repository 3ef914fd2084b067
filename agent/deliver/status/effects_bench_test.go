package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// nodeMesh returns a mesh of services with two endpoints each, and local proxies that reach all of
// them. redis speaks TCP.
func nodeMesh(services, local int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	outbound := []string{`{"port":19999,"tags":{"kuma.io/service":"redis"}}`}
	inbound := func(name, address, service, protocol string, outbound string) {
		fmt.Fprintf(&b, "---\n"+`{"type":"Dataplane","mesh":"default","name":"%s","networking":{"address":"%s","inbound":`+
			`[{"port":8080,"servicePort":18080,"tags":{"kuma.io/service":"%s","kuma.io/protocol":"%s"}}]%s}}`+"\n",
			name, address, service, protocol, outbound)
	}
	inbound("redis", "10.8.0.1", "redis", "tcp", "")
	for i := range services {
		for e := range 2 {
			inbound(fmt.Sprintf("svc-%d-%d", i, e), fmt.Sprintf("10.%d.%d.%d", 1+e, i/250, i%250), fmt.Sprintf("svc-%d", i),
				"http", "")
		}
		outbound = append(outbound, fmt.Sprintf(`{"port":%d,"tags":{"kuma.io/service":"svc-%d"}}`, 20000+i, i))
	}
	for k := range local {
		inbound(fmt.Sprintf("web-%d", k), fmt.Sprintf("10.9.%d.%d", k/250, k%250+1), "web", "http",
			`,"outbound":[`+strings.Join(outbound, ",")+`]`)
	}
	return b.String()
}

// nodePolicies returns n policies with an effect, and m without: retries of HTTP requests to redis.
func nodePolicies(n, m int) string {
	var b strings.Builder
	for i := range n {
		target := fmt.Sprintf(`{"kind":"MeshService","name":"svc-%d"}`, i)
		if i == 0 {
			target = `{"kind":"Mesh"}`
		}
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshCircuitBreaker","mesh":"default","name":"c-%d","spec":{"targetRef":`+
			`{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"connectionLimits":{"maxConnections":%d}}}]}}`+"\n", i, target, 100+i)
	}
	for i := range m {
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshRetry","mesh":"default","name":"without-%d","spec":{"targetRef":{"kind":"Mesh"},`+
			`"to":[{"targetRef":{"kind":"MeshService","name":"redis"},"default":{"http":{"numRetries":%d}}}]}}`+"\n", i, i+1)
	}
	return b.String()
}

// BenchmarkEffects reports the time until the effects of 20 policies and of 5 without effect are
// known, in a mesh of 1,000 services and 300 proxies that reach all of them.
func BenchmarkEffects(b *testing.B) {
	s := agenttest.Memory(b)
	agenttest.ByAPI(b, s, nodeMesh(1000, 300)+nodePolicies(20, 5))
	r := reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher()})
	r.Pass()
	for b.Loop() {
		t := &status.Tracker{Registry: kinds.Registry(), Store: s, Last: r.Last}
		began, n, asked := time.Now(), 0, 0
		for n < 5 && asked < 60 {
			n = len(t.Lacking(b.Context()))
			asked++
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "known-ms")
		b.ReportMetric(float64(asked), "questions")
		began = time.Now()
		t.Lacking(b.Context())
		b.ReportMetric(float64(time.Since(began).Microseconds()), "cached-µs")
	}
}
