package ads_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// BenchmarkPublish changes one endpoint in a mesh of 1000 services and waits until all 50 delta
// clients have received it.
func BenchmarkPublish(b *testing.B) {
	const services, proxies = 1000, 50
	base := &draft.Sealed{}
	names := make([]string, services)
	for i := range services {
		names[i] = fmt.Sprintf("service-%04d", i)
		for _, typeURL := range []string{cds, eds, lds} {
			rank := draft.Rank(typeURL)
			base.Resources[rank] = append(base.Resources[rank],
				resourceOf(rank, names[i], fmt.Sprintf("%s %0200d", names[i], i)))
		}
	}
	seal(base)
	changed := func(i int) *draft.Sealed {
		next := &draft.Sealed{Resources: base.Resources}
		rank := draft.Rank(eds)
		next.Resources[rank] = slices.Clone(base.Resources[rank])
		next.Resources[rank][services/2] = resourceOf(rank, names[services/2], fmt.Sprint("endpoint", i))
		return seal(next)
	}

	a := serving(b, base)
	clients := make([]*deltaClient, proxies)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := a.delta(fmt.Sprintf("default.p%d", i))
			for _, s := range []struct {
				typeURL string
				names   []string
			}{{cds, nil}, {eds, names}, {lds, nil}} {
				c.subscribe(s.typeURL, s.names...)
				c.ack(c.recv())
			}
			clients[i] = c
		})
	}
	wg.Wait()
	keys := a.Connected()
	n := 0
	for b.Loop() {
		n++
		b.StopTimer()
		cfg := changed(n)
		all := map[node.Key]rollout.Config{}
		for _, key := range keys {
			all[key] = rollout.Config{Sealed: cfg, Revision: uint64(n)}
		}
		b.StartTimer()
		for _, c := range clients {
			wg.Go(func() {
				resp := c.recv()
				if len(resp.GetResources()) != 1 {
					b.Errorf("%d resources for one change", len(resp.GetResources()))
				}
				c.ack(resp)
			})
		}
		a.Publish(all)
		wg.Wait()
	}
}

// BenchmarkRefusals is BenchmarkPublish while a peer opens refused streams as fast as it can.
func BenchmarkRefusals(b *testing.B) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	a := servingWith(b, config("EDS:e=0"), options{}, tcp)
	clients := make([]*deltaClient, 50)
	for i := range clients {
		clients[i] = a.delta(fmt.Sprintf("default.p%d", i))
		clients[i].subscribe(eds, "e")
		clients[i].wantAck("EDS e=0")
	}
	keys := a.Connected()
	var refused atomic.Int64
	var wg sync.WaitGroup
	ctx, leave := context.WithCancel(b.Context())
	for range 10 {
		conn := dialTo(b, "passthrough:///"+tcp.Addr().String())
		wg.Go(func() {
			for ctx.Err() == nil {
				str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err != nil {
					return
				}
				_ = str.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf("nobody"), TypeUrl: eds})
				if _, err := str.Recv(); status.Code(err) == codes.InvalidArgument {
					refused.Add(1)
				}
			}
		})
	}
	var durations []time.Duration
	began, before := time.Now(), refused.Load()
	for b.Loop() {
		cfg, all := config(fmt.Sprintf("EDS:e=%d", len(durations)+1)), map[node.Key]rollout.Config{}
		for _, key := range keys {
			all[key] = rollout.Config{Sealed: cfg, LastStream: everyStream}
		}
		start := time.Now()
		a.Publish(all)
		for _, c := range clients {
			c.ack(c.recv())
		}
		durations = append(durations, time.Since(start))
	}
	rate := float64(refused.Load()-before) / time.Since(began).Seconds()
	leave()
	wg.Wait()
	slices.Sort(durations)
	b.ReportMetric(rate, "refusals/s")
	b.ReportMetric(float64(durations[len(durations)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(durations[len(durations)*99/100].Microseconds())/1000, "p99-ms")
}
