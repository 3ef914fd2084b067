package changetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// drainTime is the drain time of the Envoys.
const drainTime = 5 * time.Second

// world is a mesh with three Envoys: web sends requests to two backends.
type world struct {
	t                   testing.TB
	a                   *agent.Agent
	http, grpc, tcp     int    // outbound ports of web
	web                 string // document of the client's Dataplane
	workloads, inbounds [3]int // of the backends, by protocol
	proxies             []*envoytest.Process
}

const theMesh = "{type: Mesh, name: default, labels: {nearside.io/websockets: 'true'}, " +
	"skipCreatingInitialPolicies: ['*']"

const strict = ", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}"

func newWorld(t testing.TB) *world {
	t.Helper()
	envoytest.Find(t)
	free := func() int { return agenttest.FreePort(t) }
	w := &world{t: t, a: agenttest.RunAgent(t), http: free(), grpc: free(), tcp: free()}
	w.workloads = [3]int{serveHTTP(t), serveGRPC(t), serveTCP(t)}
	w.inbounds = [3]int{free(), free(), free()}
	w.web = fmt.Sprintf("---\n{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, inbound: "+
		"[{port: %d, tags: {kuma.io/service: web}}], outbound: [{port: %d, tags: {kuma.io/service: backend}}, "+
		"{port: %d, tags: {kuma.io/service: calls}}, {port: %d, tags: {kuma.io/service: rows}}]}}\n", free(), w.http,
		w.grpc, w.tcp)
	agenttest.Apply(t, w.a, theMesh+strict+"\n"+w.web+w.backend(1, "a")+w.backend(2, "a")+
		"---\n{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}\n")
	for _, name := range []string{"web", "backend-1", "backend-2"} {
		w.proxies = append(w.proxies, w.startEnvoy(name))
	}
	return w
}

// backend returns the document of a backend.
func (w *world) backend(n int, version string) string {
	inbound := func(i int, service, protocol string) string {
		return fmt.Sprintf("{port: %d, servicePort: %d, serviceAddress: 127.0.0.1, tags: {kuma.io/service: %s, "+
			"kuma.io/protocol: %s, instance: 'i%d', version: %s}}", w.inbounds[i], w.workloads[i], service, protocol, n, version)
	}
	return fmt.Sprintf("---\n{type: Dataplane, mesh: default, name: backend-%d, networking: {address: 127.0.0.%d, "+
		"inbound: [%s, %s, %s]}}\n", n, 2+n, inbound(0, "backend", "http"), inbound(1, "calls", "grpc"),
		inbound(2, "rows", "tcp"))
}

func (w *world) startEnvoy(name string) *envoytest.Process {
	w.t.Helper()
	admin := filepath.Join(filepath.Dir(w.a.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "default."+name+".sock")
	return envoytest.Start(w.t, envoytest.Find(w.t), admin, func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: name, XDSSocket: w.a.Addrs().XDS,
			AdminSocket: admin})
	}, "--drain-time-s", strconv.Itoa(int(drainTime/time.Second)))
}

// updateTick is the time between two observations of an Envoy's listeners.
const updateTick = 50 * time.Millisecond

// observe records when an Envoy updates listeners, which begins a drain.
func (x *traffic) observe(p *envoytest.Process) {
	last, before := "", time.Now()
	x.repeat(updateTick, func() {
		began := time.Now()
		_, now := p.Admin("/stats?filter=listener_manager.listener_(in_place_updated|modified|removed)$")
		x.mu.Lock()
		defer x.mu.Unlock()
		if now != last && x.ctx.Err() == nil {
			last, x.updates = now, append(x.updates, update{before, time.Now()})
		}
		before = began
	})
}

// start starts all traffic.
func (w *world) start() *traffic {
	x := newTraffic(w.t, drainTime)
	for _, p := range w.proxies {
		x.observe(p)
	}
	x.http("HTTP", w.http, 3)
	x.grpc(w.t, w.grpc)
	x.tcp(w.tcp)
	x.webSockets(w.http)
	return x
}

// applied waits until a resource has been applied.
func (w *world) applied(kind, name string) {
	w.t.Helper()
	for range 6 {
		q := api.Wait{Type: kind, Mesh: "default", Name: name, For: api.ForApplied, Timeout: agenttest.LongestWait}
		if kind == "Mesh" {
			q.Mesh = ""
		}
		x, err := client.New(w.a.Addrs().API, agenttest.Patience).Wait(w.t.Context(), q)
		agenttest.Do(w.t, err)
		if x.State == api.StateApplied || x.State == api.StateNoEffect {
			return
		}
		w.t.Logf("%s %s: %s %s", kind, name, x.State, x.Reason)
	}
	w.t.Fatalf("%s %s has not been applied", kind, name)
}
