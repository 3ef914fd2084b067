package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// podCommand runs nearside in a pod, as its Envoy.
const podCommand = `mount --bind "$1" "$2" && exec setpriv --reuid 5678 --regid 5678 --clear-groups "$0" ` +
	`drain --bootstrap "$3" --wait --timeout 2m`

// drained is an instance of a service in a pod.
type drained struct {
	uid, name string
	envoy     *envoytest.Process
	bootstrap string
	served    atomic.Int64
	held      atomic.Int64  // requests in progress that wait for free
	free      chan struct{} // closed when they get their responses
}

// serve starts the workload, and returns its port.
func (d *drained) serve(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d.served.Add(1)
		if r.URL.Path == "/held" {
			d.held.Add(1)
			<-d.free
			d.held.Add(-1)
		}
		_, _ = io.WriteString(rw, d.name)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// TestPodsDrain drains the Envoys of two pods under load, one by the operator of the node and one
// over the socket of its pod. Requests in progress end, new ones go to the other pod, and none
// fails.
func TestPodsDrain(t *testing.T) {
	w := newLogging(t)
	for _, tool := range []string{"unshare", "setpriv", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: a pod needs %s: %v", tool, err)
		}
	}
	w.extra = []string{"xds.pods=pods", "xds.access=[]"}
	// The requests in progress may take longer than the default of 15 s.
	const long = "[{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 2m}}}]"
	out, docs := agenttest.FreePort(t), "type: Mesh\nname: default\n---\ntype: MeshTimeout\nmesh: default\nname: long\n"+
		"spec: {targetRef: {kind: Mesh}, to: "+long+", from: "+long+"}\n"
	shops := []*drained{{uid: "u-0", name: "api-0"}, {uid: "u-1", name: "api-1"}}
	for _, d := range shops {
		d.free = make(chan struct{})
		w.behind = d.serve(t)
		w.register(d.uid, "shop", d.name)
		pod := w.podDataplane(d.uid, "shop", d.name, agenttest.FreePort(t))
		docs += "---\n" + strings.ReplaceAll(pod, d.name+"_shop_", "api_shop_")
	}
	w.register("u-web", "shop", "web-0")
	docs += "---\n" + w.podDataplane("u-web", "shop", "web-0", w.port) +
		fmt.Sprintf("    outbound: [{port: %d, tags: {kuma.io/service: api_shop_svc_80}}]\n", out)
	w.resource("web", docs)
	w.start()
	for _, d := range shops {
		d.bootstrap = w.dir + "/" + d.name + ".yaml"
		d.envoy = envoytest.Start(t, w.inPod(d.uid), "", func(admin string) ([]byte, error) {
			text, err := podBootstrap(w, d.name+".shop")(admin)
			agenttest.Do(t, err, os.WriteFile(d.bootstrap, text, 0o644))
			return text, err
		})
	}
	envoytest.Start(t, w.inPod("u-web"), "", podBootstrap(w, "web-0.shop"))

	client := &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	get := func(path string) (string, error) {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", out, path))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, b)
		}
		return string(b), err
	}
	w.await("both pods are endpoints", func() bool {
		_, err := get("/")
		return err == nil && shops[0].served.Load() > 0 && shops[1].served.Load() > 0
	})

	var total, failed atomic.Int64
	call := func(path string) {
		total.Add(1)
		if _, err := get(path); err != nil {
			failed.Add(1)
			t.Error(err)
		}
	}
	ended := make(chan struct{})
	var load, held sync.WaitGroup
	stop := sync.OnceFunc(func() { close(ended); load.Wait() })
	defer stop()
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					call("/")
				}
			}
		})
	}
	more := func(d *drained) { // d serves the load
		t.Helper()
		until := d.served.Load() + 100
		w.await("requests to "+d.name, func() bool { return d.served.Load() >= until })
	}
	hold := func(d *drained) {
		t.Helper()
		for d.held.Load() == 0 {
			before, answered := shops[0].held.Load()+shops[1].held.Load(), make(chan struct{})
			held.Go(func() { defer close(answered); call("/held") })
			w.await("a request in progress, or one answered by an instance that holds none any more", func() bool {
				select {
				case <-answered:
					return true
				default:
					return shops[0].held.Load()+shops[1].held.Load() > before
				}
			})
		}
	}
	socket := []string{"NEARSIDE_SOCKET=" + w.dir + "/run/nearside.sock"}

	byOperator, own := shops[0], shops[1]
	hold(byOperator)
	command := func(want string, args ...string) {
		t.Helper()
		var said, errs strings.Builder
		code := Main(append([]string{"drain", "api-0.shop"}, args...), nil, &said, &errs, socket)
		// The endpoints have left, but the agent cannot reach the admin socket of a pod.
		if code != 1 || !strings.Contains(said.String(), want) ||
			!strings.Contains(errs.String(), "the agent cannot reach it") {
			t.Errorf("drain %v: exit code %d: %s%s", args, code, said.String(), errs.String())
		}
	}
	command("3 proxies acknowledged that its endpoints are gone", "--timeout", patience.String())
	at := byOperator.served.Load()
	more(own)
	if n := byOperator.served.Load() - at; n > 4 { // those on their way, one for each client
		t.Errorf("%d new requests after the drain", n)
	}
	if byOperator.held.Load() == 0 {
		t.Error("the request in progress has ended")
	}
	close(byOperator.free)
	w.await("the response", func() bool { return byOperator.held.Load() == 0 })
	command("is in service again", "--undo")
	more(byOperator)

	hold(own)
	path, err := exec.LookPath("nearside")
	agenttest.Do(t, err)
	program, err := os.ReadFile(path)
	agenttest.Do(t, err, os.WriteFile(w.dir+"/nearside", program, 0o755))
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "--propagation", "private", "sh", "-ec", podCommand,
		w.dir+"/nearside", w.dir+"/run/pods/"+own.uid, w.dir+"/run", own.bootstrap)
	var answer strings.Builder
	cmd.Stdout, cmd.Stderr = &answer, &answer
	agenttest.Do(t, cmd.Start())
	w.await("the endpoint of the pod has left", func() bool {
		n := own.served.Load()
		more(byOperator)
		return own.served.Load() == n
	})
	if own.held.Load() == 0 {
		t.Error("the request in progress has ended")
	}
	close(own.free)
	if err := cmd.Wait(); err != nil || !strings.Contains(answer.String(), "is drained") {
		t.Errorf("drain in the pod: %v: %s", err, answer.String())
	}
	held.Wait()
	agenttest.Do(t, own.envoy.Signal(syscall.SIGTERM))
	<-own.envoy.Ended()
	more(byOperator)
	stop()
	t.Logf("%d requests, %d failed", total.Load(), failed.Load())
}
