package agent_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestRestartSendsNothing restarts an agent on the same directories. A delta client and a
// state-of-the-world client that reconnect with their resources must receive only the next change.
func TestRestartSendsNothing(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	// One resource comes from a file, the others from the API.
	agenttest.Write(t, filepath.Join(dir, "resources", "web.yaml"), agenttest.WebFile("svc-1", "svc-2"))
	r := agenttest.Up(t, dir, agent.Deps{})
	agenttest.ByAPI(t, r.Store(), endpoint(1, 0, "10.0.0.1")+endpoint(2, 0, "10.0.0.2"))
	other := strings.NewReplacer("name: web\n", "name: other\n", "10.0.0.1", "10.0.0.9").
		Replace(agenttest.WebFile("svc-1", "svc-2"))
	agenttest.ByAPI(t, r.Store(), other[strings.Index(other, "---\ntype: Dataplane"):])

	clients := map[bool]*proxyClient{true: newProxyClient(t, &core.Node{Id: "default.web", UserAgentName: "envoy"}),
		false: newProxyClient(t, &core.Node{Id: "default.other", UserAgentName: "envoy"})}
	for delta, p := range clients {
		p.Connect(agenttest.Dial(t, r.Addrs().XDS), delta)
		p.until("all of the first config", func() bool {
			return len(p.has[draft.TypeCluster]) == 3 && len(p.has[draft.TypeEndpoint]) == 2 &&
				len(p.has[draft.TypeListener]) == 3
		})
		agenttest.InSync(t, r.Agent, p.node.Id)
	}
	agenttest.Do(t, r.Stop())

	r = agenttest.Up(t, dir, agent.Deps{})
	for delta, p := range clients {
		p.Connect(agenttest.Dial(t, r.Addrs().XDS), delta)
		agenttest.InSync(t, r.Agent, p.node.Id) // without a response
	}
	agenttest.ByAPI(t, r.Store(), endpoint(2, 0, "10.0.0.22"))
	for _, p := range clients {
		if got := p.next(); got != "ClusterLoadAssignment svc-2" {
			t.Errorf("%s: the first response after the restart is %q, want the change alone", p.node.Id, got)
		}
	}
	for _, p := range r.Proxies() {
		sent := 0
		for _, e := range p.Events {
			if e.Kind == "sent" {
				sent++
			}
		}
		if sent != 1 {
			t.Errorf("%s was sent %d responses, want 1: %+v", p.NodeID, sent, p.Events)
		}
	}
}

// TestFiftyProxies checks that each of 50 proxies receives its config and only its changes.
func TestFiftyProxies(t *testing.T) {
	const n = 50
	a := agenttest.RunAgent(t)
	var docs strings.Builder
	docs.WriteString("type: Mesh\nname: default\n" + endpoint(0, 0, "10.0.0.1"))
	for k := 1; k <= n; k++ {
		docs.WriteString(endpoint(k, 0, fmt.Sprintf("10.0.1.%d", k)))
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.9.0.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 20000, tags: {kuma.io/service: svc-0}}, "+
			"{port: %d, tags: {kuma.io/service: svc-%d}}]}}\n", k, k, 20000+k, k)
	}
	agenttest.Apply(t, a, docs.String())

	conn := agenttest.Dial(t, a.Addrs().XDS)
	clients := make([]*proxyClient, n+1)
	for k := 1; k <= n; k++ {
		p := newProxyClient(t, &core.Node{Id: fmt.Sprintf("default.web-%d", k), UserAgentName: "envoy"})
		clients[k] = p
		p.Connect(conn, k%2 == 0)
		p.until("its config", func() bool {
			return len(p.has[draft.TypeEndpoint]) == 2 && len(p.has[draft.TypeListener]) == 3
		})
		own := fmt.Sprintf("svc-%d", k)
		for url, want := range map[string][]string{
			draft.TypeCluster:  {"localhost:80", own, "svc-0"},
			draft.TypeEndpoint: {own, "svc-0"},
			draft.TypeListener: {fmt.Sprintf("inbound:10.9.0.%d:80", k), "outbound:127.0.0.1:20000",
				fmt.Sprintf("outbound:127.0.0.1:%d", 20000+k)},
		} {
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(p.has[url])); !slices.Equal(got, want) {
				t.Errorf("%s has %s %q, want %q", p.node.Id, short(url), got, want)
			}
		}
		agenttest.InSync(t, a, p.node.Id)
	}
	// After a change for one proxy and one for all, each proxy must receive only its own
	// changes, in order.
	agenttest.Apply(t, a, endpoint(7, 0, "10.0.2.7"))
	if got := clients[7].next(); got != "ClusterLoadAssignment svc-7" {
		t.Fatalf("web-7 got %q", got)
	}
	agenttest.Apply(t, a, endpoint(0, 0, "10.0.2.0"))
	for _, p := range clients[1:] {
		if got := p.next(); got != "ClusterLoadAssignment svc-0" {
			t.Errorf("%s got %q, want the change for all", p.node.Id, got)
		}
	}
}

// TestLateNodeIsServed connects a proxy before its Dataplane exists.
func TestLateNodeIsServed(t *testing.T) {
	a := agenttest.RunAgent(t)
	agenttest.Apply(t, a, "type: Mesh\nname: default\n")
	p := newProxyClient(t, &core.Node{Id: "default.web"})
	p.Connect(agenttest.Dial(t, a.Addrs().XDS), true)
	agenttest.Eventually(t, "the status says that the node is unknown", func() bool {
		all := a.Proxies()
		return len(all) == 1 && all[0].NodeID == "default.web" && all[0].State == api.StateUnknown
	})
	agenttest.Apply(t, a, agenttest.DataplaneText("default", "web", "10.0.0.1"))
	if got := p.next(); got != "Cluster localhost:80" {
		t.Errorf("got %q", got)
	}
}

// TestIgnoredInboundIsServed checks that a Dataplane whose only inbound is ignored gets a
// certificate and a config in a mesh with mTLS.
func TestIgnoredInboundIsServed(t *testing.T) {
	a := agenttest.RunAgent(t)
	agenttest.Apply(t, a, secureMesh("ca")+"---\n{type: Dataplane, mesh: default, name: web, "+
		"networking: {address: 10.0.0.1, inbound: [{port: 80, state: Ignored, tags: {kuma.io/service: web}}]}}\n")
	p := newProxyClient(t, &core.Node{Id: "default.web"})
	p.Connect(agenttest.Dial(t, a.Addrs().XDS), true)
	if got := p.next(); got != "Cluster localhost:80 nearside:nobody" {
		t.Errorf("got %q", got)
	}
}

// nodeParts holds the components of an agent that serve proxies, connected as in the agent, on an
// in-memory network so that tests can use synctest.
type nodeParts struct {
	store *store.Store
	conn  *grpc.ClientConn
}

func startParts(t *testing.T) *nodeParts {
	s := agenttest.Memory(t)
	var r *reconcile.Reconciler
	envoys := metadata.New(metadata.Options{Registry: kinds.Registry(), Store: s, Changed: func() { r.Trigger() }})
	proxies := rollout.New(rollout.Options{Changed: func() { r.Trigger() }})
	server := ads.NewServer(proxies, ads.ServerOptions{Handler: envoys, Metadata: metadata.Fields()})
	r = reconcile.New(reconcile.Options{Store: s, Publisher: proxies, Problems: envoys.Problems,
		Sidecars: envoys.Sidecars, Awaited: envoys.Awaited})
	r.Pass()
	proxies.Ready()

	ctx, cancel := context.WithCancel(context.Background())
	l := bufconn.Listen(1 << 20)
	ended := make(chan error, 3)
	go func() { ended <- server.Serve(ctx, l) }()
	go func() { envoys.Run(ctx); ended <- nil }()
	go func() { r.Run(ctx); ended <- nil }()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	agenttest.Do(t, err)
	t.Cleanup(func() {
		conn.Close()
		cancel()
		for range 3 {
			agenttest.Do(t, <-ended)
		}
	})
	return &nodeParts{store: s, conn: conn}
}

// TestUnknownNodeIsTold checks that a node that stays unknown receives an error with the remedy,
// and is served immediately when it reconnects after the remedy.
func TestUnknownNodeIsTold(t *testing.T) {
	for _, delta := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := startParts(t)
			agenttest.ByAPI(t, n.store, agenttest.Meshes("default"))
			p := newProxyClient(t, &core.Node{Id: "default.web"})
			p.Connect(n.conn, delta)
			began := time.Now()
			_, err := p.recv()
			if status.Code(err) != codes.NotFound {
				t.Fatalf("ended with %v, want NotFound", err)
			}
			for _, want := range []string{`"default.web"`, `Dataplane named "web"`, `mesh "default"`, "metadata"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %s", err, want)
				}
			}
			if elapsed := time.Since(began); elapsed > 15*time.Second {
				t.Errorf("told after %s; Envoy waits 15 s for its first config", elapsed)
			}
			agenttest.ByAPI(t, n.store, agenttest.DataplaneText("default", "web", "10.0.0.1"))
			p.Connect(n.conn, delta)
			began = time.Now()
			if got := p.next(); got != "Cluster localhost:80" {
				t.Errorf("got %q", got)
			}
			if elapsed := time.Since(began); elapsed > time.Second {
				t.Errorf("served after %s", elapsed)
			}
			p.end()
		})
	}
}

// TestEnvoyIsAnEndpoint checks that a Dataplane brought by an Envoy is an endpoint of its service
// until the grace time after the end of its stream. A connected proxy whose Dataplane is deleted
// must become unknown.
func TestEnvoyIsAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startParts(t)
		agenttest.ByAPI(t, n.store, agenttest.WebFile("brought"))
		watcher := newProxyClient(t, &core.Node{Id: "default.web", UserAgentName: "envoy"})
		var addresses []string
		// changed receives responses until one contains endpoints.
		changed := func(want ...string) {
			t.Helper()
			for {
				resp, err := watcher.delta.Recv()
				agenttest.Do(t, err)
				agenttest.Do(t,
					watcher.delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}))
				if resp.TypeUrl != draft.TypeEndpoint {
					continue
				}
				addresses = nil
				for _, r := range resp.Resources {
					var a endpointv3.ClusterLoadAssignment
					agenttest.Do(t, r.Resource.UnmarshalTo(&a))
					for _, group := range a.Endpoints {
						for _, e := range group.LbEndpoints {
							addresses = append(addresses, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
						}
					}
				}
				slices.Sort(addresses)
				if !slices.Equal(addresses, want) {
					t.Fatalf("endpoints %q, want %q", addresses, want)
				}
				return
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var err error
		watcher.delta, err = discoveryv3.NewAggregatedDiscoveryServiceClient(n.conn).DeltaAggregatedResources(ctx)
		agenttest.Do(t, err)
		agenttest.Do(t, watcher.delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: watcher.node, TypeUrl: draft.TypeEndpoint,
			ResourceNamesSubscribe: []string{"brought"}}))
		changed()

		guest := newProxyClient(t, &core.Node{Id: "default.brought",
			Metadata: agenttest.Metadata(t, agenttest.DataplaneText("default", "brought", "10.7.0.1"))})
		guest.Connect(n.conn, true)
		if got := guest.next(); got != "Cluster localhost:80" {
			t.Errorf("the guest got %q", got)
		}
		changed("10.7.0.1")
		guest.end()
		gone := time.Now()
		changed()
		if elapsed := time.Since(gone); elapsed < 30*time.Second || elapsed > 31*time.Second {
			t.Errorf("gone after %s, want the grace time of 30 s", elapsed)
		}

		// The Envoy reconnects with another Dataplane, which remains over a short disconnection.
		guest.node.Metadata = agenttest.Metadata(t, agenttest.DataplaneText("default", "brought", "10.7.0.2"))
		guest.Connect(n.conn, false)
		changed("10.7.0.2")
		guest.end()
		time.Sleep(29 * time.Second)
		guest.node.Metadata = agenttest.Metadata(t, agenttest.DataplaneText("default", "brought", "10.7.0.3"))
		guest.Connect(n.conn, false)
		changed("10.7.0.3")
		guest.end()

		// The Dataplane of the other proxy is deleted.
		_, err = n.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
			Ops: []store.Op{{Delete: resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}}}})
		agenttest.Do(t, err)
		for err == nil {
			_, err = watcher.delta.Recv()
		}
		if status.Code(err) != codes.NotFound {
			t.Errorf("the deleted proxy ended with %v", err)
		}
	})
}

// TestConnectDuringPass checks that a proxy that connects during a pass is served by the next pass
// without a change of the store, and that a proxy without a config due to an internal error does
// not make the loop spin.
func TestConnectDuringPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web")
		started, gate := make(chan struct{}), make(chan struct{})
		blocked := false
		r := reconcile.New(reconcile.Options{Store: s, Publisher: p,
			Generate: func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
				if in.Name == "web" {
					if !blocked {
						blocked = true
						close(started)
						<-gate
					}
					panic("boom")
				}
				return generate.Generate(in, prev, memo)
			}})
		go r.Run(t.Context())
		<-started
		p.Connect("default.web", "default.other")
		r.Trigger()
		close(gate)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if p.Has["default.other"] == nil {
			t.Fatal("the proxy that came during a pass has no config")
		}
		if n := p.Take(); n != 2 {
			t.Errorf("%d passes, want 2", n)
		}
		time.Sleep(time.Hour)
		if n := p.Take(); n != 0 {
			t.Errorf("%d passes without a trigger", n)
		}
	})
}
