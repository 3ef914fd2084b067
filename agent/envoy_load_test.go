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
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
	"github.com/nearside-mesh/nearside/agent/generate"
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
	admin := filepath.Join(filepath.Dir(a.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "default."+name+".sock") // as nearside bootstrap has it
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

// serveText answers every request with a text until the test ends, and returns the port.
func serveText(t *testing.T, protocols *http.Protocols, text string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// flow is clients that send request after request, each on one connection as long as that lasts.
type flow struct {
	requests, connections, want atomic.Int64 // want is the status that counts as no failure; 0: any
	failures                    sync.Map
	cancel                      context.CancelFunc
	done                        sync.WaitGroup
}

// startFlow has clients send requests to a port of this host until stop.
func startFlow(t *testing.T, port, clients int) *flow {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &flow{cancel: cancel}
	l.want.Store(http.StatusOK)
	for range clients {
		transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			l.connections.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}
		l.done.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				want := l.want.Load()
				resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
				l.requests.Add(1)
				if err != nil {
					l.failures.Store(err.Error(), true)
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want != 0 && int64(resp.StatusCode) != want {
					l.failures.Store(fmt.Sprintf("%d %s, want %d", resp.StatusCode, body, want), true)
				}
			}
		})
	}
	return l
}

// more waits until there were some requests more.
func (l *flow) more(t *testing.T, n int64) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond) // no event tells of a request
	defer tick.Stop()
	until := l.requests.Load() + n
	agenttest.Await(t, fmt.Sprintf("%d requests more", n), tick.C, func() bool { return l.requests.Load() >= until })
}

// expect has requests that begin from now on fail where their status is another one.
func (l *flow) expect(status int64) { l.want.Store(status) }

// stop ends the clients and reports what failed.
func (l *flow) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.done.Wait()
	l.failures.Range(func(what, _ any) bool { t.Errorf("a request failed: %v", what); return true })
	t.Logf("%d requests", l.requests.Load())
}
