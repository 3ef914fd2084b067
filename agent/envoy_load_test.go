package agent_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// startEnvoy runs an Envoy as a proxy of the agent until the test ends. It returns when the Envoy
// is live.
func startEnvoy(t *testing.T, a *agent.Agent, name string, args ...string) *envoytest.Process {
	t.Helper()
	// The path is the same as that of nearside bootstrap.
	admin := filepath.Join(filepath.Dir(a.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "default."+name+".sock")
	return envoytest.Start(t, envoytest.Find(t), admin, func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: name, XDSSocket: a.Addrs().XDS,
			AdminSocket: admin})
	}, args...)
}

// freePort returns an unused port, each one once. It is below the ports that systems choose
// themselves: otherwise, another process could get it before the test uses it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 23000 + int((firstPort+nextPort.Add(1))%7000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			agenttest.Do(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Processes of tests begin at different ports.
var (
	firstPort = rand.Uint32()
	nextPort  atomic.Uint32
)

// serveText responds to every request with a text until the test ends. It returns the port.
func serveText(t *testing.T, protocols *http.Protocols, text string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, text)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// flow is a group of clients that send requests continuously, each on one connection for as long as
// the connection lasts.
type flow struct {
	requests, connections atomic.Int64
	want                  atomic.Pointer[expectation]
	clients               int
	failures              sync.Map
	cancel                context.CancelFunc
	done                  sync.WaitGroup
}

// expectation is the status of successful requests; 0 means any.
type expectation struct {
	status int64
	seen   sync.WaitGroup // clients whose requests still have an older expectation
}

// startFlow starts clients that send requests to a port of this host until stop.
func startFlow(t *testing.T, port, clients int) *flow {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &flow{cancel: cancel, clients: clients}
	l.want.Store(l.newExpectation(http.StatusOK))
	for range clients {
		transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			l.connections.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}
		l.done.Go(func() {
			defer transport.CloseIdleConnections()
			var last *expectation
			for ctx.Err() == nil {
				want := l.want.Load()
				if want != last {
					last = want
					want.seen.Done()
				}
				resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
				l.requests.Add(1)
				if err != nil {
					l.failures.Store(err.Error(), true)
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want.status != 0 && int64(resp.StatusCode) != want.status {
					l.failures.Store(fmt.Sprintf("%d %s, want %d", resp.StatusCode, body, want.status), true)
				}
			}
		})
	}
	return l
}

// more waits for n more requests.
func (l *flow) more(t *testing.T, n int64) {
	t.Helper()
	until := l.requests.Load() + n
	agenttest.Eventually(t, fmt.Sprintf("%d requests more", n), func() bool { return l.requests.Load() >= until })
}

// expect sets the expected status of requests that start after this call. It returns when all
// requests with an older expectation have ended, so that a later change cannot affect one. The
// clients must run.
func (l *flow) expect(status int64) {
	e := l.newExpectation(status)
	l.want.Store(e)
	e.seen.Wait()
}

func (l *flow) newExpectation(status int64) *expectation {
	e := &expectation{status: status}
	e.seen.Add(l.clients)
	return e
}

// stop stops the clients and reports failures.
func (l *flow) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.done.Wait()
	l.failures.Range(func(what, _ any) bool { t.Errorf("a request failed: %v", what); return true })
	t.Logf("%d requests", l.requests.Load())
}
