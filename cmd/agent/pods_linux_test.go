package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// podEnvoy runs Envoy as nearside inject and the CSI driver do: as the user 5678, in a mount
// namespace with the directory of its pod, read-only, in place of the agent's run directory.
const podEnvoy = `#!/bin/sh
set -e
chown -R 5678 "$(dirname "$2")"
exec unshare -m --propagation private sh -ec '
  pod=$1 run=$2 envoy=$3
  shift 3
  mount --bind "$pod" "$run"
  mount -o remount,bind,ro,nosuid,nodev,noexec "$run"
  exec setpriv --reuid 5678 --regid 5678 --clear-groups "$envoy" "$@"' sh %s %s %s "$@"
`

// inPod returns a program that runs Envoy in a pod.
func (w *logging) inPod(uid string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "envoy-"+uid)
	text := fmt.Sprintf(podEnvoy, w.dir+"/run/pods/"+uid, w.dir+"/run", w.program())
	agenttest.Do(w.t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

// register registers a pod as the CSI driver does.
func (w *logging) register(uid, namespace, name string) {
	w.t.Helper()
	root := filepath.Join(w.dir, "run/pods")
	agenttest.Do(w.t, os.MkdirAll(w.dir+"/run", 0o755), os.MkdirAll(root, 0o750), os.Chmod(root, 0o750))
	dir := filepath.Join(root, uid)
	agenttest.Do(w.t, os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755), os.WriteFile(dir+".json.new",
		fmt.Appendf(nil, `{"uid":%q,"namespace":%q,"name":%q}`, uid, namespace, name), 0o644),
		os.Rename(dir+".json.new", dir+".json"))
}

// podDataplane returns the Dataplane of a pod as the watcher writes it.
func (w *logging) podDataplane(uid, namespace, name string, port int) string {
	return fmt.Sprintf(`apiVersion: kuma.io/v1alpha1
kind: Dataplane
mesh: default
metadata:
  name: %[2]s
  namespace: %[3]s
  labels: {kuma.io/mesh: default, k8s.kuma.io/namespace: %[3]s, nearside.io/pod: %[1]s}
spec:
  networking:
    address: 127.0.0.1
    inbound:
    - {port: %[4]d, servicePort: %[5]d, state: Ready, tags: {kuma.io/service: %[2]s_%[3]s_svc_80, kuma.io/protocol: http}}
`, uid, name, namespace, port, w.behind)
}

func podBootstrap(w *logging, node string) func(string) ([]byte, error) {
	return func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: node, XDSSocket: w.dir + "/run/xds.sock",
			AdminSocket: admin})
	}
}

// TestPodsOverTheirSockets runs an agent and the Envoys of two pods, each with only the directory
// of its pod. It checks their configs, an Envoy that claims to be the other pod, both kinds of
// access logs, also while the agent is restarted and killed, and the end of a pod.
func TestPodsOverTheirSockets(t *testing.T) {
	w := newLogging(t)
	for _, tool := range []string{"unshare", "setpriv", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: a pod needs %s: %v", tool, err)
		}
	}
	w.other = agenttest.FreePort(t)
	w.extra = []string{"xds.pods=pods", "xds.access=[]"}
	w.register("u-web", "shop", "web-0")
	w.register("u-api", "shop", "api-0")
	w.resource("web", "type: Mesh\nname: default\n---\n"+w.podDataplane("u-web", "shop", "web-0", w.port)+"---\n"+
		w.podDataplane("u-api", "shop", "api-0", w.other))
	at := agenttest.FreeAddress(t)
	c := &otelCollector{got: map[string]int{}}
	defer c.serve(t, at)()
	w.log(w.file("pods.log"), "{type: OpenTelemetry, openTelemetry: {endpoint: '"+at+"', body: '%REQ(X-SEQ)%'}}")
	w.holdSockets()
	w.start()

	start := func(uid, node string) *envoytest.Process {
		return envoytest.Start(t, w.inPod(uid), "", podBootstrap(w, node), "--file-flush-interval-msec", "100")
	}
	web, other := start("u-web", "web-0.shop"), start("u-api", "api-0.shop")
	for node, e := range map[string]*envoytest.Process{"web-0.shop": web, "api-0.shop": other} {
		w.await(node+" has the config", func() bool {
			_, dump := e.Admin("/config_dump")
			return strings.Contains(dump, w.dir+"/run/access/nearside-default."+node+"-") &&
				strings.Contains(dump, w.dir+"/run/otlp.sock")
		})
	}
	w.noProblems()
	w.requests("a", 200)
	w.exactlyOnce("pods.log", "a", 1, 200)
	w.await("the records of both pods", func() bool { return c.bodies() == 200 })

	w.refusesImpostor()
	w.privateFIFOs()

	stop := w.load("a", 1000)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		w.more(200)
		w.kill(s)
		w.more(200)
		w.start()
	}
	w.more(200)
	sent := stop()
	w.exactlyOnce("pods.log", "a", 1, sent)
	w.await("both Envoys are connected again", func() bool {
		for _, name := range []string{"web-0.shop", "api-0.shop"} {
			p, err := w.api().Proxy(t.Context(), "default", name)
			if err != nil || len(p.Clients) != 1 || !p.Clients[0].InSync {
				return false
			}
		}
		return true
	})
	w.await("all records", func() bool { return c.bodies() == int(sent) })
	w.requests("a", 100)
	w.await("the records after that", func() bool { return c.above(sent) == 100 })
	w.noProblems()

	w.resource("web", "type: Mesh\nname: default\n---\n"+w.podDataplane("u-web", "shop", "web-0", w.port))
	w.await("the agent does not know the proxy", func() bool { // otherwise it keeps its FIFOs for a minute
		s, err := w.api().Status(t.Context())
		return err == nil && slices.ContainsFunc(s.Refused.Streams, func(r api.RefusedStream) bool {
			return r.NodeID == "default.api-0.shop" && r.Cause == "unknown"
		})
	})
	agenttest.Do(t, os.Remove(w.dir+"/run/pods/u-api.json"))
	other.Stop()
	agenttest.Do(t, os.RemoveAll(w.dir+"/run/pods/u-api"))
	w.await("nothing of the pod is left", func() bool {
		left := append(w.openFiles("api-0"), w.openFiles("u-api")...)
		for _, pattern := range []string{"run/access*/*api-0*", "run/access*/.*api-0*",
			"run/pods/*u-api*"} {
			names, err := filepath.Glob(filepath.Join(w.dir, pattern))
			agenttest.Do(t, err)
			left = append(left, names...)
		}
		return len(left) == 0
	})
	w.other = 0
	before := w.sent.Load()
	w.requests("a", 50)
	w.exactlyOnce("pods.log", "a", before+1, before+50)
}

// holdSockets runs the process that keeps FIFOs and sockets open while the agent is down.
func (w *logging) holdSockets() {
	w.t.Helper()
	path, err := exec.LookPath("nearside")
	agenttest.Do(w.t, err)
	cmd := exec.CommandContext(w.t.Context(), path, "hold", "--stay", "--dir", w.dir+"/run")
	cmd.Stdout, cmd.Stderr = w.said, w.said
	agenttest.Do(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended
}

// privateFIFOs checks that another process with the user of the Envoys cannot write to the FIFOs of
// pods, for example one with the run directory of the node as a volume.
func (w *logging) privateFIFOs() {
	w.t.Helper()
	fifos, err := filepath.Glob(w.dir + "/run/*/*-0.shop-*.fifo")
	more, moreErr := filepath.Glob(w.dir + "/run/pods/*/access/*.fifo")
	agenttest.Do(w.t, err, moreErr)
	if len(fifos) != 2 || len(more) != 2 {
		w.t.Fatalf("FIFOs: %q, %q", fifos, more)
	}
	for _, path := range append(fifos, more...) {
		cmd := exec.Command("setpriv", "--reuid", "5678", "--regid", "5678", "--clear-groups",
			"sh", "-c", `: >> "$1"`, "sh", path)
		if cmd.Run() == nil {
			w.t.Errorf("user 5678 of the node can write to %s", path)
		}
	}
}

// refusesImpostor checks that an Envoy in the pod api-0 does not get the config of web-0.
func (w *logging) refusesImpostor() {
	w.t.Helper()
	dir := filepath.Join(w.dir, "impostor")
	text, err := podBootstrap(w, "web-0.shop")(dir + "/admin.sock")
	agenttest.Do(w.t, err, os.Mkdir(dir, 0o755), os.WriteFile(dir+"/envoy.yaml", text, 0o644))
	cmd := exec.CommandContext(w.t.Context(), w.inPod("u-api"), "-c", dir+"/envoy.yaml", "--disable-hot-restart",
		"--concurrency", "1", "-l", "off")
	agenttest.Do(w.t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	const want = "pod shop/api-0 (pid "
	w.await("the agent refuses the other pod", func() bool {
		s, err := w.api().Status(w.t.Context())
		return err == nil && strings.HasPrefix(s.Refused.Peer, want) && s.Refused.NodeID == "default.web-0.shop" &&
			strings.Contains(s.Refused.Reason, "MESH.api-0.shop") && len(s.Refused.Streams) == 1 &&
			s.Refused.Streams[0].Command == "kubectl get pod -n shop api-0 -o yaml"
	})
	p, err := w.api().Proxy(w.t.Context(), "default", "web-0.shop")
	agenttest.Do(w.t, err)
	if len(p.Clients) != 1 || !p.Clients[0].InSync {
		w.t.Errorf("web-0 has the clients %+v", p.Clients)
	}
}

// openFiles returns the files with a text in their path that the agent and its holder have open.
func (w *logging) openFiles(text string) (out []string) {
	processes, err := os.ReadDir("/proc")
	agenttest.Do(w.t, err)
	for _, p := range processes {
		line, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		args := strings.Split(string(line), "\x00")
		if len(args) < 2 || args[1] != "hold" && args[1] != "run" || !strings.Contains(string(line), w.dir) {
			continue
		}
		fds, _ := filepath.Glob("/proc/" + p.Name() + "/fd/*")
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.Contains(to, text) {
				out = append(out, args[1]+": "+to)
			}
		}
	}
	return out
}
