package agent_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// bystander measures how long changes take to reach client 0 during other load.
type bystander struct {
	a       *stormAgent
	arrived chan time.Time
	n       int
	times   []time.Duration
}

func newBystander(a *stormAgent, c *crowdOfClients) *bystander {
	s := &bystander{a: a, arrived: make(chan time.Time, 1000)}
	c.got = func(k int, typeURL string, names []string) {
		if k == 0 && typeURL == draft.TypeEndpoint && slices.Contains(names, "svc-7") {
			s.arrived <- time.Now()
		}
	}
	return s
}

// change changes an endpoint over the API.
func (s *bystander) change() {
	s.n++
	began := time.Now()
	s.a.ask(http.MethodPost, "/v1/apply", endpoint(7, 2, fmt.Sprintf("10.7.%d.%d", s.n/250, 1+s.n%250)))
	at := <-s.arrived
	s.times = append(s.times, at.Sub(began))
}

func (s *bystander) report(b *testing.B, what string) {
	slices.Sort(s.times)
	if len(s.times) == 0 {
		b.Fatal("no change was measured")
	}
	b.ReportMetric(ms(s.times[len(s.times)/2]), what+"p50-ms")
	b.ReportMetric(ms(s.times[len(s.times)*95/100]), what+"p95-ms")
	b.ReportMetric(ms(s.times[len(s.times)-1]), what+"max-ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkStorm connects 300 proxies with 1,000 services each at the same time. In the case cold,
// the agent has just started. In the other case one proxy is connected before, and the benchmark
// measures the delivery of its changes meanwhile. The case tenth is cold with a tenth of a core and
// 50 proxies.
func BenchmarkStorm(b *testing.B) {
	const services, proxies = benchServices, 300
	b.Run("cold", func(b *testing.B) { cold(b, services, proxies, nil) })
	b.Run("beside", func(b *testing.B) {
		a := newStormAgent(b, services, proxies)
		a.start(nil)
		a.ask(http.MethodGet, "/readyz", "")
		c := newCrowdOfClients(b, a, services, proxies)
		s := newBystander(a, c)
		c.connect(0, 1)
		c.await(1, time.Minute)
		for range 10 {
			s.change()
		}
		s.times = nil
		for b.Loop() {
			began, used := time.Now(), a.cpu()
			a.profile(30)
			c.connect(1, proxies)
			for c.served.Load() < proxies {
				s.change()
				<-time.After(50 * time.Millisecond)
			}
			b.ReportMetric(time.Since(began).Seconds(), "served-s")
			b.ReportMetric((a.cpu() - used).Seconds(), "cpu-s")
		}
		n, why := a.refused()
		if n > 0 {
			b.Log(why)
		}
		b.ReportMetric(float64(n), "refused")
		s.report(b, "change-")
	})
	b.Run("tenth", func(b *testing.B) { cold(b, services, 50, newCPUGroup(b, 10)) })
}

func cold(b *testing.B, services, proxies int, group *controlGroup) {
	a := newStormAgent(b, services, proxies)
	for b.Loop() {
		c := newCrowdOfClients(b, a, services, proxies)
		c.connect(0, proxies)
		began := time.Now()
		a.start(group)
		a.profile(30)
		c.await(proxies, 15*time.Minute)
		b.ReportMetric(time.Since(began).Seconds(), "served-s")
		b.ReportMetric(a.cpu().Seconds(), "cpu-s")
		n, why := a.refused()
		if n > 0 || c.refusals.Load() > 0 {
			b.Logf("%s%d refusals at clients, the last: %s", why, c.refusals.Load(), c.reason())
		}
		b.ReportMetric(float64(max(int64(n), c.refusals.Load())), "refused")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkPolicyEdit edits a policy for all outbounds of 20 proxies with 1,000 services each, over
// the API and in a file. It reports the agent's CPU time, the bytes that it allocates, and the time
// until the last proxy has all changes. In the case "one" the policy selects a single service. In
// the cases "own" each proxy has its own outbound addresses.
func BenchmarkPolicyEdit(b *testing.B) {
	for _, to := range []string{"all", "one"} {
		for _, by := range []string{"api", "file"} {
			b.Run(to+"-"+by, func(b *testing.B) { policyEdit(b, to, by, newStormAgent(b, benchServices, 20)) })
			b.Run(to+"-"+by+"-own", func(b *testing.B) {
				policyEdit(b, to, by, newStormAgentWith(b, benchServices, 20, ownAddress))
			})
		}
	}
}

func policyEdit(b *testing.B, to, by string, a *stormAgent) {
	const services, proxies = benchServices, 20
	target := `{"kind":"Mesh"}`
	if to == "one" {
		target = `{"kind":"MeshService","name":"svc-7"}`
	}
	edit := func(n int) string {
		return fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"edited","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"connectionTimeout":"%ds"}}]}}`+"\n", target, 1+n)
	}
	a.start(nil)
	a.ask(http.MethodGet, "/readyz", "")
	c := newCrowdOfClients(b, a, services, proxies)
	changed := make(chan string, 100*proxies)
	c.got = func(_ int, typeURL string, names []string) {
		if typeURL == draft.TypeCluster && slices.Contains(names, "svc-7") {
			changed <- typeURL
		}
	}
	c.connect(0, proxies)
	c.await(proxies, 5*time.Minute)
	n := 0
	change := func() {
		n++
		if by == "api" {
			a.ask(http.MethodPost, "/v1/apply", edit(n))
		} else {
			a.write("policy.yaml", edit(n))
		}
		for range proxies {
			<-changed
		}
	}
	change()
	<-time.After(time.Second) // acknowledgements
	allocated, used, edits := a.allocated(), a.cpu(), 0
	a.profile(20)
	var waited time.Duration
	for b.Loop() {
		at := time.Now()
		change()
		waited += time.Since(at)
		edits++
		<-time.After(300 * time.Millisecond)
	}
	used = a.cpu() - used
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(used.Seconds()/float64(edits), "cpu-s/edit")
	b.ReportMetric((a.allocated()-allocated)/float64(edits)/1e6, "MB/edit")
	b.ReportMetric(ms(waited)/float64(edits), "last-ms")
}

// BenchmarkLast changes one endpoint in a mesh of 1,000 services over the API, and reports the time
// until the last of 20, 50, and 300 connected proxies has the change. The agent is a separate
// process. It shares the machine with the clients.
func BenchmarkLast(b *testing.B) {
	const services = benchServices
	for _, proxies := range []int{20, 50, 300} {
		b.Run(fmt.Sprint(proxies), func(b *testing.B) {
			a := newStormAgent(b, services, proxies)
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
			a.profile(15)
			n, used := 0, a.cpu()
			var times []time.Duration
			for b.Loop() {
				n++
				began := time.Now()
				a.ask(http.MethodPost, "/v1/apply", endpoint(7, 2, fmt.Sprintf("10.7.%d.%d", n/250, 1+n%250)))
				for range proxies {
					<-arrived
				}
				times = append(times, time.Since(began))
				<-time.After(50 * time.Millisecond)
			}
			slices.Sort(times)
			b.ReportMetric(ms(times[len(times)/2]), "median-ms")
			b.ReportMetric(ms(times[len(times)*99/100]), "p99-ms")
			b.ReportMetric((a.cpu()-used).Seconds()*1000/float64(n), "cpu-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
