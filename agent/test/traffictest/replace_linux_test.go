package traffictest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// replaced is a workload with an Envoy that brings its Dataplane.
type replaced struct {
	w        *world
	t        *testing.T // of the whole test, which stops the Envoys
	n        int
	id       string
	envoy    *proxy
	workload *http.Server
}

// serve starts the workload.
func (r *replaced) serve() {
	t := r.t
	t.Helper()
	l, err := r.w.net.nodes[r.n].listen("127.0.0.1:8080")
	agenttest.Do(t, err)
	r.workload = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		wait(5 * time.Millisecond) // so that requests are in progress
		_, _ = io.WriteString(w, r.id)
	})}
	go r.workload.Serve(l)
	t.Cleanup(func() { r.workload.Close() })
}

// start starts the workload and its Envoy.
func (r *replaced) start() {
	t := r.t
	t.Helper()
	r.serve()
	name, rows := strings.TrimPrefix(r.id, "default."), ""
	if r.n == 3 { // it has a TCP service, too
		rows = `, {"port": 8082, "servicePort": 5432, "serviceAddress": "127.0.0.1", ` +
			`"tags": {"kuma.io/service": "rows", "kuma.io/protocol": "tcp"}}`
		if r.envoy == nil {
			r.w.servers.tcp(r.w.net.nodes[3], "rows", "127.0.0.1:5432")
		}
	}
	dataplane := fmt.Sprintf(`{"type": "Dataplane", "mesh": "default", "name": %q, "networking": {"address": %q, `+
		`"inbound": [{"port": 8081, "servicePort": 8080, "serviceAddress": "127.0.0.1", `+
		`"tags": {"kuma.io/service": "shop", "kuma.io/protocol": "http"}}%s]}}`, name, nodeV4(r.n), rows)
	r.envoy = startEnvoy(t, r.w.binary, r.w.net.nodes[r.n], bootstrap.Options{Mesh: "default", Name: name,
		XDSSocket: r.w.agent.Addrs().XDS, Dataplane: []byte(dataplane)}, r.id, nowhere, 30*time.Second)
}

// stop ends the Envoy and then the workload.
func (r *replaced) stop(s syscall.Signal) {
	_ = r.envoy.process.Signal(s)
	<-r.envoy.done
	r.workload.Close()
}

// drain runs "nearside drain" as the user of the Envoy, as ExecStop= does, and returns its output.
func (r *replaced) drain(t *testing.T, flags ...string) string {
	t.Helper()
	out, err := r.command(t, append([]string{"drain", "--bootstrap", r.envoy.bootstrap}, flags...)...)
	if err != nil {
		t.Fatalf("drain: %v: %s", err, out)
	}
	return out
}

func (r *replaced) command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	agenttest.Do(t, err)
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), commandLine+"="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: envoyUser, Gid: envoyUser}}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// used waits until the client's Envoy has the endpoint, and considers it healthy.
func (r *replaced) used(t *testing.T) {
	t.Helper()
	agenttest.Eventually(t, r.id+" is an endpoint", func() bool { return r.w.proxies["default.web"].uses(t, r.at()) })
}

// at returns the address of the endpoint.
func (r *replaced) at() string { return nodeV4(r.n) + ":8081" }

// httpLoad is a load of concurrent requests over persistent connections.
type httpLoad struct {
	mu     sync.Mutex
	total  int
	failed []time.Time
	last   string // reason of the last failure
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func (w *world) startHTTP(t *testing.T, clients int) *httpLoad {
	ctx, stop := context.WithCancel(t.Context())
	l := &httpLoad{stop: stop}
	for range clients {
		c := &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return w.net.nodes[2].dial(netip.MustParseAddrPort("127.0.0.1:10000"))
			}}}
		l.wg.Go(func() {
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				began := time.Now()
				resp, err := c.Get("http://shop/")
				why := fmt.Sprint(err)
				if err == nil {
					b, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					why = fmt.Sprintf("%d %s", resp.StatusCode, b)
				}
				l.mu.Lock()
				if l.total++; err != nil || resp.StatusCode != http.StatusOK {
					l.failed, l.last = append(l.failed, began), why
				}
				l.mu.Unlock()
				wait(time.Until(began.Add(10 * time.Millisecond)))
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// wait waits for a duration.
func wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func (l *httpLoad) end() { l.stop(); l.wg.Wait() }

// take returns the counts since the last call.
func (l *httpLoad) take() (total int, failed []time.Time, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total, failed, last = l.total, l.failed, l.last
	l.total, l.failed, l.last = 0, nil, ""
	return total, failed, last
}

// more waits until n more requests are sent.
func (l *httpLoad) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.total
	}
	from := count()
	agenttest.Eventually(t, "more requests", func() bool { return count() >= from+n })
}

// TestTrafficRollingReplacement replaces three workloads behind two Envoys one after the other
// under load. With a drain, no request fails. When the Envoy is killed instead, failures end when
// its endpoint disappears, which is at once.
func TestTrafficRollingReplacement(t *testing.T) {
	w := quietWorld(t)
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	w.agent = agenttest.Up(t, dir, agent.Deps{}, "xds.socket.mode=0666",
		fmt.Sprintf(`xds.access=[{user: "%d", nodes: ["*"], bring: true, services: ["*"]}]`, envoyUser))
	w.agents = append(w.agents, w.agent)
	w.put(t, byKey(t, theMesh(strict)+permission("all", "", "", "Allow")+"---\n{type: Dataplane, mesh: default, "+
		"name: web, networking: {address: "+nodeV4(2)+", inbound: [{port: 8079, tags: {kuma.io/service: web}}], "+
		"outbound: [{port: 10000, tags: {kuma.io/service: shop}}, {port: 10001, tags: {kuma.io/service: rows}}]}}\n"))
	for n := 2; n <= 5; n++ {
		w.net.node(n, false)
	}
	var shops []*replaced
	for n := 3; n <= 5; n++ {
		r := &replaced{w: w, t: t, n: n, id: fmt.Sprintf("default.shop-%d", n)}
		shops = append(shops, r)
		r.start()
	}
	for _, r := range shops {
		r.envoy.live(t)
	}
	w.proxies["default.web"] = startEnvoy(t, w.binary, w.net.nodes[2], bootstrap.Options{Mesh: "default", Name: "web",
		XDSSocket: w.agent.Addrs().XDS}, "default.web", nowhere, time.Second)
	w.proxies["default.web"].live(t)
	for _, r := range shops {
		r.used(t)
	}
	agenttest.Eventually(t, "the client's Envoy listens", func() bool {
		c, err := w.net.nodes[2].dial(netip.MustParseAddrPort("127.0.0.1:10000"))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	load := w.startHTTP(t, 8)

	t.Run("with drain", func(t *testing.T) {
		for _, r := range shops {
			began := time.Now()
			said := r.drain(t, "--wait", "--timeout", "2m")
			t.Logf("%s drained in %d ms: %s", r.id, time.Since(began).Milliseconds(), strings.TrimSpace(said))
			if !strings.Contains(said, "is drained") {
				t.Errorf("the command says %q", said)
			}
			r.stop(syscall.SIGTERM)
			r.start()
			r.used(t)
		}
		total, failed, last := load.take()
		t.Logf("%d requests, %d failed", total, len(failed))
		if len(failed) > 0 || total < 100 {
			t.Errorf("%d of %d requests failed: %s", len(failed), total, last)
		}
	})
	t.Run("only the workload", func(t *testing.T) { // its Envoy stays
		total, rounds := 0, 0
		var failed []time.Time
		for ; total < 3000; rounds++ {
			for _, r := range shops {
				r.drain(t, "--wait", "--timeout", "2m")
				r.workload.Close()
				r.serve()
				r.drain(t, "--undo")
				r.used(t)
			}
			n, f, last := load.take()
			total, failed = total+n, append(failed, f...)
			if len(f) > 0 {
				t.Errorf("round %d: %d of %d requests failed: %s", rounds, len(f), n, last)
			}
		}
		t.Logf("%d workloads replaced: %d of %d requests failed", rounds*len(shops), len(failed), total)
	})
	t.Run("undone", func(t *testing.T) {
		r := shops[0]
		if out, err := r.command(t, "drain", "--bootstrap", shops[1].envoy.bootstrap, "--undo"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		r.drain(t, "--wait")
		if code, _, err := r.envoy.get("/ready"); err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("/ready while it drains: %d, %v", code, err)
		}
		got, err := w.agent.Api().Drain(t.Context(), "default", strings.TrimPrefix(r.id, "default."),
			api.DrainRequest{Undo: true})
		if err != nil || got.State != api.DrainUndone || got.Envoy != "" {
			t.Errorf("%+v, %v", got, err)
		}
		r.used(t)
		if code, _, err := r.envoy.get("/ready"); err != nil || code != http.StatusOK {
			t.Errorf("/ready after the drain: %d, %v", code, err)
		}
		if total, failed, last := load.take(); len(failed) > 0 {
			t.Errorf("%d of %d requests failed: %s", len(failed), total, last)
		}
	})
	t.Run("TCP", func(t *testing.T) {
		r := shops[0]
		c, err := w.net.nodes[2].dial(netip.MustParseAddrPort("127.0.0.1:10001"))
		agenttest.Do(t, err)
		defer c.Close()
		o := &open{Conn: c, r: bufio.NewReader(c)}
		if got := o.retry(); got != "rows" {
			t.Fatalf("before the drain it comes to %q", got)
		}
		agenttest.Eventually(t, "only the open connection remains", func() bool { // first there are requests, too
			out, err := r.command(t, "drain", "--bootstrap", r.envoy.bootstrap, "--wait", "--timeout", "500ms")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != command.ExitTimeout {
				t.Fatalf("with an open connection: %v: %s", err, out)
			}
			return strings.Contains(out, "has 1 active requests and TCP connections")
		})
		if got := o.retry(); got != "rows" {
			t.Errorf("while it drains, the connection comes to %q", got)
		}
		c.Close()
		if said := r.drain(t, "--wait"); !strings.Contains(said, "is drained") {
			t.Errorf("the command says %q", said)
		}
		r.drain(t, "--undo")
		r.used(t)
	})
	t.Run("killed", func(t *testing.T) {
		for _, r := range shops {
			began := time.Now()
			r.stop(syscall.SIGKILL)
			client := w.proxies["default.web"]
			agenttest.Eventually(t, r.id+" is no endpoint", func() bool { return !client.uses(t, r.at()) })
			load.more(t, 50) // until the worker of the client's Envoy knows
			gone := time.Now()
			r.start()
			r.used(t)
			load.more(t, 200)
			total, failed, last := load.take()
			late := 0
			for _, at := range failed {
				if at.After(gone) {
					late++
				}
			}
			t.Logf("%s was killed, and was no endpoint after %v: %d of %d requests failed", r.id, gone.Sub(began),
				len(failed), total)
			if late > 0 || gone.Sub(began) > followWithin {
				t.Errorf("after %v it was no endpoint, and %d later requests failed: %s", gone.Sub(began), late, last)
			}
		}
	})
}
