package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// realEnvoy is the path of an Envoy; the test is skipped where there is none.
func realEnvoy(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("ENVOY_BIN"); path != "" {
		return path
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("there is no Envoy: set ENVOY_BIN or put envoy on PATH")
	}
	return path
}

// envoyProxy is an Envoy that runs as a proxy of an agent.
type envoyProxy struct {
	stop   func() // and waits
	client *http.Client
}

// startEnvoy runs an Envoy as a proxy of the agent, at the latest until the test ends, and returns when it is live.
func startEnvoy(t *testing.T, a *agent.Agent, name string) *envoyProxy {
	t.Helper()
	dir := agenttest.ShortDir(t)
	admin := filepath.Join(dir, "admin.sock")
	boot, err := generate.Bootstrap(generate.BootstrapOptions{Mesh: "default", Name: name, XDSSocket: a.Addrs().XDS, AdminSocket: admin})
	if err != nil {
		t.Fatal(err)
	}
	agenttest.Write(t, dir+"/envoy.yaml", string(boot))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, realEnvoy(t), "-c", dir+"/envoy.yaml", "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning", "--log-path", dir+"/envoy.log")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &envoyProxy{
		stop: sync.OnceFunc(func() { cancel(); _ = cmd.Wait() }), // it was killed
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", admin)
		}}},
	}
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			text, _ := os.ReadFile(dir + "/envoy.log")
			t.Logf("Envoy's log:\n%s", text)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond) // Envoy tells nobody when it is live
	defer tick.Stop()
	agenttest.Await(t, "Envoy is live", tick.C, func() bool {
		status, _ := e.admin("/ready")
		return status == http.StatusOK
	})
	return e
}

// admin asks the admin interface, and returns the status and the body; 0 where it does not answer.
func (e *envoyProxy) admin(path string) (int, string) {
	resp, err := e.client.Get("http://envoy" + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestRoutesChangeUnderLoad adds, changes and removes a MeshHTTPRoute while requests go through a real Envoy on connections
// that are kept: none fails, though Envoy drains its listeners for 600 s and clusters come and go.
func TestRoutesChangeUnderLoad(t *testing.T) {
	realEnvoy(t)
	a := agenttest.RunAgent(t)
	var docs strings.Builder
	docs.WriteString("{type: Mesh, name: default, skipCreatingInitialPolicies: ['*']}\n")
	for _, version := range []string{"v1", "v2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true) // as between the proxies of a mesh
		s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, version) })}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: backend-%s, networking: {address: 127.0.0.1, inbound: [{port: %d, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: %[1]s}}]}}\n",
			version, l.Addr().(*net.TCPAddr).Port)
	}
	port := freePort(t)
	fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, inbound: [{port: %d, tags: {kuma.io/service: web}}], outbound: [{port: %d, tags: {kuma.io/service: backend}}]}}\n", freePort(t), port)
	agenttest.Apply(t, a, docs.String())
	startEnvoy(t, a, "web")

	var requests, connections atomic.Int64
	var failures sync.Map
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range 10 {
		transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			connections.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}
		done.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
				requests.Add(1)
				if err != nil {
					failures.Store(err.Error(), true)
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					failures.Store(fmt.Sprintf("%d %s", resp.StatusCode, body), true)
				}
			}
		})
	}
	tick := time.NewTicker(5 * time.Millisecond) // no event tells of an acknowledgement
	defer tick.Stop()
	// pass waits until Envoy has other routes than before, and some requests more.
	routes := ""
	pass := func() {
		agenttest.Await(t, "Envoy has acknowledged other routes", tick.C, func() bool {
			for _, p := range a.Proxies() {
				for _, s := range p.Types {
					if p.InSync && s.TypeURL == draft.TypeRoute && s.AckedVersion != routes {
						routes = s.AckedVersion
						return true
					}
				}
			}
			return false
		})
		until := requests.Load() + 200
		agenttest.Await(t, "200 requests more", tick.C, func() bool { return requests.Load() >= until })
	}
	pass()
	route := resource.Key{Kind: "MeshHTTPRoute", Mesh: "default", Name: "split"}
	for range 3 {
		for _, weights := range [][2]int{{50, 50}, {90, 10}} {
			agenttest.Apply(t, a, fmt.Sprintf(`{type: MeshHTTPRoute, mesh: default, name: split, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {type: PathPrefix, value: /}}],
  default: {backendRefs: [{kind: MeshServiceSubset, name: backend, weight: %d, tags: {version: v1}}, {kind: MeshServiceSubset, name: backend, weight: %d, tags: {version: v2}}]}}]}]}}`, weights[0], weights[1]))
			pass()
		}
		agenttest.Remove(t, a, route)
		pass()
	}
	stop()
	done.Wait()
	failures.Range(func(what, _ any) bool { t.Errorf("a request failed: %v", what); return true })
	if n := connections.Load(); n != 10 {
		t.Errorf("%d connections of 10 clients: a change of routes has closed some", n)
	}
	t.Logf("%d requests", requests.Load())
}
