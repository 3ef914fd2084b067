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

// nodePolicies returns 25 policies of 4 kinds. The name of the first one about all services is the
// last, so that it does not override the others. Those about HTTP to redis have no effect.
func nodePolicies() string {
	var b strings.Builder
	add := func(kind, name, to, conf string) {
		fmt.Fprintf(&b, "---\n"+`{"type":"%s","mesh":"default","name":"%s","spec":{"targetRef":{"kind":"Mesh"},`+
			`"to":[{"targetRef":%s,"default":{%s}}]}}`+"\n", kind, name, to, conf)
	}
	service := func(name string, i int) string { return fmt.Sprintf(`{"kind":"MeshService","name":"%s-%d"}`, name, i) }
	for i := range 5 {
		target := service("svc", i)
		if i == 0 {
			target = `{"kind":"Mesh"}`
		}
		add("MeshCircuitBreaker", fmt.Sprint("c-", 9-i), target,
			fmt.Sprintf(`"connectionLimits":{"maxConnections":%d}`, 100+i))
		add("MeshTimeout", fmt.Sprint("t-", 9-i), target, fmt.Sprintf(`"http":{"requestTimeout":"%ds"}`, 3+i))
		add("MeshRetry", fmt.Sprint("r-", 9-i), target, fmt.Sprintf(`"http":{"numRetries":%d}`, 3+i))
		add("MeshHealthCheck", fmt.Sprint("h-", 9-i), target, fmt.Sprintf(`"interval":"%ds","tcp":{}`, 3+i))
	}
	for i := range 3 {
		add("MeshRetry", fmt.Sprint("without-", i), `{"kind":"MeshService","name":"redis"}`,
			fmt.Sprintf(`"http":{"numRetries":%d}`, i+1))
	}
	for i := range 2 {
		add("MeshTimeout", fmt.Sprint("without-", i), `{"kind":"MeshService","name":"redis"}`,
			fmt.Sprintf(`"http":{"requestTimeout":"%ds"}`, i+1))
	}
	return b.String()
}

// BenchmarkEffects reports the time until the effects of 25 policies, at least 5 of which have
// none, are known in a mesh of 1,000 services and 300 proxies that reach all of them.
func BenchmarkEffects(b *testing.B) {
	s := agenttest.Memory(b)
	agenttest.ByAPI(b, s, nodeMesh(1000, 300)+nodePolicies())
	r := reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher()})
	r.Pass()
	for b.Loop() {
		t := &status.Tracker{Registry: kinds.Registry(), Store: s, Last: r.Last}
		began, questions := time.Now(), 1
		for t.Status(b.Context(), status.View{Whole: true}).Unexamined > 0 {
			questions++
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "known-ms")
		b.ReportMetric(float64(questions), "questions")
		if n := len(t.Lacking(b.Context())); n < 5 {
			b.Fatalf("%d policies have no effect, want at least 5", n)
		}
		began = time.Now()
		t.Status(b.Context(), status.View{Whole: true})
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "status-ms")
		began = time.Now()
		t.Lacking(b.Context())
		b.ReportMetric(float64(time.Since(began).Microseconds()), "cached-µs")
	}
}
