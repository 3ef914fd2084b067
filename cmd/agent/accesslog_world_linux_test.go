package main

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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// logging runs an agent as a process, the Envoy of a dataplane, and a workload that answers each
// request with a text.
type logging struct {
	t      *testing.T
	dir    string
	port   int      // of the inbound
	other  int      // port of the inbound of another Envoy, which gets every other request; 0: none
	uid    int      // of the Envoy
	extra  []string // settings of the agent
	sent   atomic.Int64
	mu     sync.Mutex
	open   map[int64]bool // guarded by mu: numbers of the requests that are not answered
	served *http.Server
	behind int          // port of the service
	slow   atomic.Int32 // number of requests that the service leaves unanswered

	agent *exec.Cmd
	said  *lockedBuffer
	envoy *envoytest.Process
}

// newLogging prepares the environment. It does not start the agent or the Envoy.
func newLogging(t *testing.T) *logging {
	t.Helper()
	envoytest.Find(t)
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent that gives FIFOs to Envoys runs as root")
	}
	w := &logging{t: t, dir: agenttest.ShortDir(t), said: &lockedBuffer{}, open: map[int64]bool{}}
	w.port = agenttest.FreePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	w.served = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.slow.Add(1)
			<-r.Context().Done()
		}
		io.WriteString(rw, "ok")
	})}
	go w.served.Serve(l)
	t.Cleanup(func() { w.served.Close() })
	w.behind = l.Addr().(*net.TCPAddr).Port
	agenttest.Do(t, os.Chmod(w.dir, 0o755), os.MkdirAll(w.dir+"/resources", 0o755), os.MkdirAll(w.dir+"/logs", 0o750))
	w.resource("web", fmt.Sprintf("type: Mesh\nname: default\n---\ntype: Dataplane\nmesh: default\nname: web\n"+
		"networking:\n  address: 127.0.0.1\n  inbound: [{port: %d, servicePort: %d, tags: {kuma.io/service: web, "+
		"kuma.io/protocol: http}}]\n", w.port, w.behind))
	t.Cleanup(func() {
		w.kill(syscall.SIGTERM)
		w.endHolder()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", w.said)
		}
	})
	return w
}

// resource writes a resource file, or removes it if text is empty.
func (w *logging) resource(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "resources", name+".yaml")
	if text == "" {
		agenttest.Do(w.t, os.Remove(path))
		return
	}
	agenttest.Write(w.t, path+".new", text)
	agenttest.Do(w.t, os.Rename(path+".new", path))
}

// Each line contains the number of the request, padding, and an end marker that shows that it is
// complete.
const format = "{type: Plain, plain: '%REQ(X-SEQ)% %RESPONSE_CODE% %RESPONSE_FLAGS% "

var filler = strings.Repeat("p", 230)

// log writes a policy with these backends.
func (w *logging) log(backends ...string) {
	w.t.Helper()
	w.resource("log", "type: MeshAccessLog\nmesh: default\nname: all\nspec:\n  targetRef: {kind: Mesh}\n  from:\n"+
		"  - targetRef: {kind: Mesh}\n    default:\n      backends:\n      - "+strings.Join(backends, "\n      - ")+"\n")
}

// file returns a backend that writes to a rotated file.
func (w *logging) file(name string) string {
	return "{type: File, file: {path: " + w.dir + "/logs/" + name + ", rotation: {maxFileSize: 1, maxFiles: 0}, format: " +
		format + filler + " $'}}}"
}

// tcp returns a backend that sends to a collector.
func (w *logging) tcp(address string) string {
	return "{type: Tcp, tcp: {address: '" + address + "', format: " + format + filler + " $'}}}"
}

func (w *logging) api() *client.Client {
	return client.New(w.dir+"/run/nearside.sock", agenttest.Patience)
}

// args returns the command line of the agent.
func (w *logging) args() []string {
	args := []string{"run", "--set", "paths.run=" + w.dir + "/run", "--set", "paths.state=" + w.dir + "/state",
		"--set", "paths.logs=" + w.dir + "/logs",
		"--set", "resources.dir=" + w.dir + "/resources", "--set", "api.socket.group=", "--set", "xds.socket.group=",
		"--set", "dns.listen=", "--set", "xds.socket.mode=0666", "--set", "node.name=n",
		"--set", fmt.Sprintf("xds.access=[{user: %d, nodes: [default.*]}]", w.uid)}
	for _, set := range w.extra {
		args = append(args, "--set", set)
	}
	return args
}

// start starts the agent and waits until it serves.
func (w *logging) start() {
	w.t.Helper()
	path, err := exec.LookPath("nearside")
	agenttest.Do(w.t, err)
	cmd := exec.Command(path, w.args()...)
	cmd.Stdout, cmd.Stderr = w.said, w.said
	agenttest.Do(w.t, cmd.Start())
	w.agent = cmd
	w.await("the agent answers", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		h, err := w.api().Ready(ctx)
		return err == nil && h.Status == "ok"
	})
}

// kill ends the agent with a signal.
func (w *logging) kill(s syscall.Signal) {
	if w.agent == nil {
		return
	}
	_ = w.agent.Process.Signal(s)
	_ = w.agent.Wait()
	w.agent = nil
}

// endHolder ends the process that holds the FIFOs.
func (w *logging) endHolder() {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && args[1] == "hold" && strings.Contains(string(line), w.dir) {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
	}
}

// program returns an Envoy that other users than root can run.
func (w *logging) program() string {
	own := w.dir + "/envoy"
	if _, err := os.Stat(own); err != nil {
		program, err := os.ReadFile(envoytest.Find(w.t))
		agenttest.Do(w.t, err, os.WriteFile(own, program, 0o755))
	}
	return own
}

// startEnvoy starts the Envoy of the dataplane.
func (w *logging) startEnvoy() {
	w.t.Helper()
	path := envoytest.Find(w.t)
	if w.uid != 0 {
		path = w.program()
	}
	admin := fmt.Sprintf("%s/run/envoy/%d/default.web.sock", w.dir, w.uid)
	w.envoy = envoytest.StartAs(w.t, w.uid, path, admin, func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: "web", XDSSocket: w.dir + "/run/xds.sock",
			AdminSocket: admin})
	}, "--file-flush-interval-msec", "100")
}

// await polls cond until it is true.
func (w *logging) await(what string, cond func() bool) {
	w.t.Helper()
	agenttest.Eventually(w.t, what, cond)
}

// inSync waits until the Envoy has acknowledged a config for which cond holds, and has rejected
// nothing.
func (w *logging) inSync(cond func(config string) bool) {
	w.t.Helper()
	w.await("the Envoy has the config", func() bool {
		p, err := w.api().Proxy(w.t.Context(), "default", "web")
		if err != nil || len(p.Clients) != 1 || !p.Clients[0].InSync {
			return false
		}
		for _, x := range p.Clients[0].Types {
			if x.NACK != nil {
				w.t.Fatalf("the Envoy has rejected %s: %s", x.TypeURL, x.NACK.Reason)
			}
		}
		_, dump := w.envoy.Admin("/config_dump")
		return cond(dump)
	})
}

// noProblems fails the test if status has problems, for example an omitted access log. The open
// socket of xDS, by which Envoys of other users connect, is a weakened default.
func (w *logging) noProblems() {
	w.t.Helper()
	s, err := w.api().Status(w.t.Context())
	agenttest.Do(w.t, err)
	for _, p := range s.Problems {
		if p.Check == "access" {
			continue
		}
		w.t.Errorf("problem: %s: %s", p.Resource, p.Reason)
	}
}

// hold keeps the FIFOs open while the agent is down, if the agent has no holder for them.
func (w *logging) hold() {
	w.t.Helper()
	s, err := w.api().Status(w.t.Context())
	agenttest.Do(w.t, err)
	if len(s.Holders) == 0 {
		w.t.Fatal("the agent has no FIFOs")
	}
	if s.Holders[""] == 0 {
		return
	}
	w.t.Log("the agent has no holder of its own: the test keeps the FIFOs open")
	fifos, err := filepath.Glob(w.dir + "/run/access/*.fifo")
	agenttest.Do(w.t, err)
	for _, path := range fifos {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		agenttest.Do(w.t, err)
		w.t.Cleanup(func() { f.Close() })
	}
}
