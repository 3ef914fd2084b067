package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stormSize returns the load of the storm tests. STORM=full selects the full load.
func stormSize() (services, proxies, hasty int, stall time.Duration) {
	if os.Getenv("STORM") == "full" {
		return 1000, 300, 2000, 5 * time.Second
	}
	return 20, 30, 200, time.Second
}

const stormPatience = 2 * time.Minute

// nobodyRefused fails the test if the agent ended a stream.
func (c *crowdOfClients) nobodyRefused(a *stormAgent) {
	c.t.Helper()
	n, lines := a.refused()
	if n > 0 || c.refusals.Load() > 0 {
		c.t.Errorf("%d streams were ended by the agent, and %d clients refused, the last since: %s\n%s",
			n, c.refusals.Load(), c.reason(), lines)
	}
}

// TestStorm connects many clients at the same time. Meanwhile changes must reach a client that is
// already connected. In the end all clients must have everything, and no stream may be refused.
// Streams that connect and disconnect immediately must leak nothing.
func TestStorm(t *testing.T) {
	services, proxies, hasty, _ := stormSize()
	a := newStormAgent(t, services, proxies)
	a.start(nil)
	a.ask(http.MethodGet, "/readyz", "")
	c := newCrowdOfClients(t, a, services, proxies)
	arrived := make(chan string, 1000)
	c.got = func(k int, typeURL string, names []string) {
		if k == 0 && typeURL == draft.TypeEndpoint {
			arrived <- strings.Join(names, " ")
		}
	}
	c.connect(0, 1)
	c.await(1, stormPatience)
	n := 0
	change := func() {
		t.Helper()
		n++
		a.ask(http.MethodPost, "/v1/apply", endpoint(7, 2, fmt.Sprintf("10.7.0.%d", n)))
		select {
		case got := <-arrived:
			if got != "svc-7" {
				t.Errorf("a change of svc-7 has sent %s", got)
			}
		case <-time.After(stormPatience):
			t.Fatal("a change has not reached the proxy that is connected")
		}
	}
	c.connect(1, proxies)
	for c.served.Load() < int64(proxies) && n < 200 {
		change()
	}
	for len(c.full) < proxies-1 {
		<-time.After(time.Millisecond)
	}
	c.nobodyRefused(a)

	conn, err := grpc.NewClient("unix://"+a.socket("xds.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	agenttest.Do(t, err)
	defer conn.Close()
	var wg sync.WaitGroup
	for i := range hasty {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err == nil {
				_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("default.web-%d", i%proxies),
					UserAgentName: "envoy"}, TypeUrl: draft.TypeCluster, ResourceNamesSubscribe: []string{"*"}})
			}
		})
	}
	wg.Wait()
	change()
	if !strings.Contains(a.ask(http.MethodGet, "/metrics", ""),
		fmt.Sprintf("nearside_xds_connected_proxies %d\n", proxies)) {
		t.Errorf("not all %d proxies are connected any more", proxies)
	}
}

// TestStormUnderQuota is TestStorm's start with a tenth of a core. It is slower, but no stream may
// be refused.
func TestStormUnderQuota(t *testing.T) {
	services, proxies, _, _ := stormSize()
	proxies = min(proxies, 50)
	if services < 100 {
		services, proxies = 5, 10
	}
	group := newCPUGroup(t, 10)
	a := newStormAgent(t, services, proxies)
	c := newCrowdOfClients(t, a, services, proxies)
	a.start(group)
	c.connect(0, proxies)
	c.await(proxies, stormPatience)
	c.nobodyRefused(a)
}

// TestStormOnStalledDisk stalls each transaction of the disk. File resources must be served and
// updated meanwhile.
func TestStormOnStalledDisk(t *testing.T) {
	services, proxies, _, stall := stormSize()
	proxies = min(proxies, 50)
	a := newStormAgent(t, services, proxies)
	c := newCrowdOfClients(t, a, services, proxies)
	arrived := make(chan struct{}, 1000)
	c.got = func(k int, typeURL string, names []string) {
		if k == 0 && typeURL == draft.TypeEndpoint && slices.Contains(names, "svc-7") {
			arrived <- struct{}{}
		}
	}
	a.start(nil, stormEnv+"_STALL="+stall.String())
	c.connect(0, proxies)
	c.await(proxies, stormPatience)
	for n := range 3 {
		a.write("one.yaml", endpoint(7, 2, fmt.Sprintf("10.7.0.%d", 1+n)))
		select {
		case <-arrived:
		case <-time.After(stormPatience):
			t.Fatal("a change has not arrived")
		}
	}
	c.nobodyRefused(a)
}

// TestStormOfKills kills the agent at different points of its start and of the following storm. In
// the end all clients must have everything, and all acknowledged API writes must exist.
func TestStormOfKills(t *testing.T) {
	services, proxies, _, _ := stormSize()
	a := newStormAgent(t, services, proxies)
	c := newCrowdOfClients(t, a, services, proxies)
	kept := 0
	for i, after := range []time.Duration{20, 60, 150, 300} {
		a.start(nil)
		if i == 0 {
			c.connect(0, proxies)
		}
		a.ask(http.MethodGet, "/readyz", "")
		a.ask(http.MethodPost, "/v1/apply",
			fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"kept-%d","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"%ds"}}]}}`, i, 1+i))
		kept++
		<-time.After(after * time.Millisecond)
		a.kill()
	}
	c.epoch.Add(1)
	a.start(nil)
	c.await(proxies, stormPatience)
	for i := range kept {
		a.ask(http.MethodGet, fmt.Sprintf("/meshes/default/meshtimeouts/kept-%d", i), "")
	}
	c.nobodyRefused(a)
}
