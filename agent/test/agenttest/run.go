package agenttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// Running is an agent with separate directories.
type Running struct {
	*agent.Agent
	t    testing.TB
	Dir  string
	Logs *Logs
	Stop func() error // stops the agent and returns the result of Run
}

func (r *Running) Api() *client.Client { return client.New(r.Addrs().API, Patience) }

// Want waits until the store contains exactly these meshes.
func (r *Running) Want(meshes string) {
	r.t.Helper()
	changed, stop := r.Store().Watch()
	defer stop()
	Await(r.t, "the store holds "+meshes, changed, func() bool { return Held(r.Store()) == meshes })
}

// Ask opens a delta stream that subscribes to all clusters.
func (r *Running) Ask(n *core.Node,
	has map[string]string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	r.t.Helper()
	conn, err := grpc.NewClient("unix://"+r.Addrs().XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	r.t.Cleanup(func() { cancel(); conn.Close() })
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	Do(r.t, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: draft.TypeCluster,
		ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has}))
	return s
}

// Begin creates an agent below dir and starts it, without waiting. done gets the result of Run.
func Begin(t testing.TB, dir string, d agent.Deps, set ...string) (r *Running, done <-chan error) {
	t.Helper()
	cfg, _, faults := config.Load(Options(dir, set...))
	if faults != nil {
		t.Fatal(faults)
	}
	r = &Running{t: t, Dir: dir, Logs: NewLogs()}
	d.Log = r.Logs.Logger()
	if d.Notify == nil {
		d.Notify = func(string) {}
	}
	a, err := agent.New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	r.Agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx); close(ended) }()
	r.Stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		_ = r.Stop()
		secrettest.Agent(t, dir, r.Logs.String())
	})
	return r, ended
}

func Options(dir string, set ...string) config.LoadOptions {
	return config.LoadOptions{Dir: dir, UID: func() int { return 1000 }, Hostname: "node-1", Set: append(
		[]string{"paths.run=run", "paths.state=state", "paths.logs=logs", "resources.dir=resources", "dns.listen="}, set...)}
}

// Up runs an agent and waits until it serves.
func Up(t testing.TB, dir string, d agent.Deps, set ...string) *Running {
	t.Helper()
	r, done := Begin(t, dir, d, set...)
	select {
	case <-r.Ready():
		return r
	case err := <-done:
		t.Fatalf("the agent did not start: %v", err)
	case <-time.After(Patience):
		t.Fatal("the agent did not start in time")
	}
	return nil
}

// Refused runs an agent that must fail to start, and returns the error.
func Refused(t *testing.T, dir string, set ...string) string {
	t.Helper()
	r, done := Begin(t, dir, agent.Deps{}, set...)
	select {
	case <-r.Ready():
		t.Fatal("the agent has started")
	case err := <-done:
		if err == nil {
			t.Fatal("the agent ended without an error")
		}
		return err.Error()
	case <-time.After(Patience):
		t.Fatal("the agent neither started nor refused")
	}
	return ""
}

// Next receives one response as "name ... -removed ...", acknowledges it, and records the versions.
func Next(t *testing.T, s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient,
	versions map[string]string) string {
	t.Helper()
	resp, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, x := range resp.Resources {
		out = append(out, x.Name)
		versions[x.Name] = x.Version
	}
	for _, n := range resp.RemovedResources {
		out = append(out, "-"+n)
		delete(versions, n)
	}
	Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}))
	return strings.Join(out, " ")
}

// WebFile returns the mesh and proxy web with outbounds to services.
func WebFile(services ...string) string {
	var b strings.Builder
	b.WriteString("---\ntype: Mesh\nname: default\n---\ntype: Dataplane\nmesh: default\nname: web\nnetworking:\n" +
		"  address: 10.0.0.1\n  inbound: [{port: 80, tags: {kuma.io/service: web}}]\n  outbound:\n")
	for i, s := range services {
		fmt.Fprintf(&b, "  - {port: %d, tags: {kuma.io/service: %s}}\n", 20000+i, s)
	}
	return b.String()
}

// Dial returns a connection to the Unix socket of an agent.
func Dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// InSync waits until an agent has received all acknowledgements of a node.
func InSync(t testing.TB, a *agent.Agent, id string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond) // there is no event for acknowledgements
	defer tick.Stop()
	Await(t, id+" is in sync", tick.C, func() bool {
		return slices.ContainsFunc(a.Proxies(), func(p api.ProxyStatus) bool { return p.NodeID == id && p.InSync })
	})
}

// Gone waits until no stream with a node ID is open.
func Gone(t *testing.T, r *Running, id string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	Await(t, id+" has no stream", tick.C, func() bool {
		return !slices.ContainsFunc(r.Proxies(), func(p api.ProxyStatus) bool { return p.NodeID == id && p.Streams > 0 })
	})
}

// RunAgent starts an agent with separate directories and waits until it serves.
func RunAgent(t testing.TB, change ...func(*agent.Deps)) *agent.Agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "ns") // in some tests, t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, faults := config.Load(config.LoadOptions{Dir: dir, Hostname: "node-1", File: "",
		UID: func() int { return 1000 }, Set: []string{
			"paths.run=" + filepath.Join(dir, "run"), "paths.state=" + filepath.Join(dir, "state"),
			"paths.logs=" + filepath.Join(dir, "logs"),
			"resources.dir=" + filepath.Join(dir, "resources"), "api.socket.group=", "api.socket.mode=0600",
		}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	deps := agent.Deps{Notify: func(string) {}}
	for _, f := range change {
		f(&deps)
	}
	a, err := agent.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		os.RemoveAll(dir)
	})
	select {
	case <-a.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("the agent did not start: %v", err)
	}
	return a
}

// Apply applies documents as an operator does.
func Apply(t testing.TB, a *agent.Agent, documents string) {
	t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(documents))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	b := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: "test"}
	for _, r := range rs {
		b.Ops = append(b.Ops, store.Op{Put: r})
	}
	if _, err := a.Store().Apply(b); err != nil {
		t.Fatal(err)
	}
}

// Request sends an API request and returns status and body. URLs that start with "http://nearside"
// use the Unix socket.
func (r *Running) Request(method, url, body string, headers ...string) (int, string) {
	r.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	if strings.HasPrefix(url, "http://nearside/") {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", r.Addrs().API)
		}
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := (&http.Client{Transport: tr, Timeout: Patience}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Remove deletes a resource as an operator does.
func Remove(t testing.TB, a *agent.Agent, k resource.Key) {
	t.Helper()
	if _, err := a.Store().Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: "test",
		Ops: []store.Op{{Delete: k}}}); err != nil {
		t.Fatal(err)
	}
}
