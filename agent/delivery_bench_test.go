package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const (
	benchServices = 1000
	benchProxies  = 50
)

// bigMesh returns a mesh of n services with two endpoints each, and local proxies with an HTTP
// outbound to every service.
func bigMesh(n, local int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	var outbound []string
	for i := range n {
		for e := range 2 {
			b.WriteString(endpoint(i, e, fmt.Sprintf("10.%d.%d.%d", 1+e, i/250, i%250)))
		}
		outbound = append(outbound, fmt.Sprintf(`{"port":%d,"tags":{"kuma.io/service":"svc-%d"}}`, 20000+i, i))
	}
	for k := range local {
		fmt.Fprintf(&b, `---`+"\n"+
			`{"type":"Dataplane","mesh":"default","name":"web-%d","networking":{"address":"10.9.0.%d",`+
			`"inbound":[{"port":8080,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],"outbound":[%s]}}`+"\n", k,
			k+1, strings.Join(outbound, ","))
	}
	return b.String()
}

func endpoint(service, n int, address string) string {
	return fmt.Sprintf(`---`+"\n"+
		`{"type":"Dataplane","mesh":"default","name":"svc-%d-%d","networking":{"address":"%s","inbound":`+
		`[{"port":8080,"servicePort":18080,"tags":{"kuma.io/service":"svc-%d","kuma.io/protocol":"http","version":"v%d"}}]}}`+
		"\n",
		service, n, address, service, n)
}

// deltaClient subscribes to all resources like Envoy, acknowledges all responses, and reports load
// assignments.
type deltaClient struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	got    func(r *discoveryv3.Resource)
	sent   atomic.Int64 // number of responses received
}

func newDeltaClient(ctx context.Context, b testing.TB, socket, id string,
	got func(*discoveryv3.Resource)) *deltaClient {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	c := &deltaClient{got: got}
	if c.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		b.Fatal(err)
	}
	node := &corev3.Node{Id: id, UserAgentName: "envoy"}
	for _, t := range []string{draft.TypeCluster, draft.TypeListener} {
		if err := c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t,
			ResourceNamesSubscribe: []string{"*"}}); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// run reads until the stream ends. Like Envoy, it subscribes to endpoints by cluster name, once
// each.
func (c *deltaClient) run() {
	subscribed := map[string]bool{}
	for {
		r, err := c.stream.Recv()
		if err != nil {
			return
		}
		c.sent.Add(1)
		ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
		if c.stream.Send(ack) != nil {
			return
		}
		var names []string
		for _, x := range r.Resources {
			if r.TypeUrl == draft.TypeCluster && strings.HasPrefix(x.Name, "svc-") && !subscribed[x.Name] {
				subscribed[x.Name] = true
				names = append(names, x.Name)
			}
			c.got(x)
		}
		if len(names) > 0 && c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeEndpoint,
			ResourceNamesSubscribe: names}) != nil {
			return
		}
	}
}

// connectAll connects the proxies and waits until each has all its listeners and endpoints.
func connectAll(ctx context.Context, b testing.TB, a *agent.Agent,
	got func(proxy int, r *discoveryv3.Resource)) []*deltaClient {
	full := make(chan struct{}, benchProxies)
	clients := make([]*deltaClient, benchProxies)
	done := make(chan struct{}, benchProxies)
	ctx, cancel := context.WithCancel(ctx)
	for k := range clients {
		want := 2*benchServices + 1 // listeners and load assignments
		count := 0
		clients[k] = newDeltaClient(ctx, b, a.Addrs().XDS, fmt.Sprintf("default.web-%d", k), func(r *discoveryv3.Resource) {
			if count < want && r.Resource.GetTypeUrl() != draft.TypeCluster {
				if count++; count == want {
					full <- struct{}{}
				}
				return
			}
			got(k, r)
		})
		go func() { clients[k].run(); done <- struct{}{} }()
	}
	b.Cleanup(func() {
		cancel()
		for range clients {
			<-done
		}
	})
	for range clients {
		<-full
	}
	return clients
}

// BenchmarkDelivery changes one endpoint in a mesh of 1000 services and waits until the last of 50
// delta clients has the change. It reports the median and 99th percentile of the time since the
// start of the write, and the number of responses per change. Changes are API writes, or saved
// files while each transaction of the disk takes 50 ms.
func BenchmarkDelivery(b *testing.B) {
	b.Run("api", func(b *testing.B) {
		a := agenttest.RunAgent(b)
		deliver(b, a, func(text string) { agenttest.Apply(b, a, text) })
	})
	b.Run("wrong-tokens", func(b *testing.B) {
		a := agenttest.RunAgent(b)
		rate := flood(b, a)
		deliver(b, a, func(text string) { agenttest.Apply(b, a, text) })
		b.ReportMetric(rate(), "wrong/s")
	})
	b.Run("slow-disk", func(b *testing.B) {
		a := agenttest.RunAgent(b, func(d *agent.Deps) {
			d.Sync = func() error { <-time.After(50 * time.Millisecond); return nil }
		})
		dir := a.Config().Resources.Dir[0].Path
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		deliver(b, a, func(text string) {
			if err := os.WriteFile(filepath.Join(dir, "svc-7-1.yaml"), []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// flood opens up to 10,000 streams per second over thirty connections with invalid tokens, which
// fail only at the signature check. The returned function reports the number of refused streams per
// second.
func flood(b *testing.B, a *agent.Agent) (rate func() float64) {
	b.Helper()
	keys := token.Open(filepath.Join(a.Config().Paths.State, token.Dir), nil, nil)
	good, err := keys.Create(token.Claims{Audience: token.AudienceXDS, Subject: "x", Mesh: "default", Name: "*"},
		time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	wrong := "Bearer " + good[:len(good)-8] + "AAAAAAAA"
	ctx, stop := context.WithCancel(b.Context())
	due, refused := make(chan struct{}, 100), atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range 10 {
				select {
				case due <- struct{}{}:
				default:
				}
			}
		}
	})
	for range 30 {
		conn, err := grpc.NewClient("unix://"+a.Addrs().XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		wg.Go(func() {
			ctx := metadata.AppendToOutgoingContext(ctx, "authorization", wrong)
			for {
				select {
				case <-ctx.Done():
					return
				case <-due:
				}
				s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err != nil {
					continue
				}
				if _, err := s.Recv(); err != nil && ctx.Err() == nil {
					refused.Add(1)
				}
			}
		})
	}
	b.Cleanup(func() { stop(); wg.Wait() })
	began := time.Now()
	return func() float64 { return float64(refused.Load()) / time.Since(began).Seconds() }
}

// deliver measures changes of endpoint svc-7-1, which the mesh does not have yet.
func deliver(b *testing.B, a *agent.Agent, change func(text string)) {
	b.Helper()
	agenttest.Apply(b, a, strings.Replace(bigMesh(benchServices, benchProxies), endpoint(7, 1, "10.2.0.7"), "", 1))
	arrived := make(chan struct{}, benchProxies)
	clients := connectAll(b.Context(), b, a, func(_ int, r *discoveryv3.Resource) {
		if r.Name == "svc-7" {
			arrived <- struct{}{}
		}
	})
	responses := func() (n int64) {
		for _, c := range clients {
			n += c.sent.Load()
		}
		return n
	}
	before := responses()
	var times []time.Duration
	for b.Loop() {
		i := len(times)
		began := time.Now()
		change(endpoint(7, 1, fmt.Sprintf("10.7.%d.%d", i/250%250, 1+i%250)))
		for range clients {
			<-arrived
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(times[len(times)/2]), "median-ms")
	b.ReportMetric(ms(times[len(times)*99/100]), "p99-ms")
	b.ReportMetric(float64(responses()-before)/float64(len(times)), "responses/op")
}
