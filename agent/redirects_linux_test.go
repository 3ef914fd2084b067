package agent_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// podNetwork is a network namespace with a route to the one of the test.
type podNetwork struct {
	work chan func()
	path string
}

// newPodNetwork creates a namespace with the address 10.98.0.2. The test has 10.98.0.1.
func newPodNetwork(t *testing.T) *podNetwork {
	t.Helper()
	p := &podNetwork{work: make(chan func())}
	began, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		p.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		began <- err
		for f := range p.work {
			f()
		}
	}()
	if err := <-began; err != nil {
		t.Skipf("skipped: a network namespace cannot be made: %v", err)
	}
	t.Cleanup(func() { close(p.work); <-done })
	run := func(in bool, batch string) {
		t.Helper()
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		var out []byte
		var err error
		if do := func() { out, err = cmd.CombinedOutput() }; in {
			p.do(do)
		} else {
			do()
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", batch, err, out)
		}
	}
	run(false, "link set lo up\nlink add pod0 type veth peer name eth0 netns "+p.path+
		"\naddr add 10.98.0.1/24 dev pod0\nlink set pod0 up\n")
	run(true, "link set lo up\naddr add 10.98.0.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.98.0.1\n")
	return p
}

func (p *podNetwork) do(f func()) {
	done := make(chan struct{})
	p.work <- func() { defer close(done); f() }
	<-done
}

// visits reports whether a workload of the pod gets an answer from an address.
func (p *podNetwork) visits(to string) (ok bool) {
	p.do(func() {
		if _, err := unix.SetfsuidRetUid(1234); err != nil {
			return
		}
		defer func() { _, _ = unix.SetfsuidRetUid(0) }()
		c, err := net.DialTimeout("tcp", to, agenttest.Patience)
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("x"))
		n, _ := c.Read(make([]byte, 1))
		ok = n == 1
	})
	return ok
}

// podGroup returns the path of a cgroup of a pod. It skips the test if there is no cgroup2 file
// system in which one can be made.
func podGroup(t *testing.T, uid string) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		dir := filepath.Join(root, "kubepods", "pod"+uid)
		if err := os.MkdirAll(dir, 0o755); err == nil {
			t.Cleanup(func() { _ = os.Remove(dir) })
			return dir
		}
	}
	t.Skip("skipped: no cgroup of version 2 can be made")
	return ""
}

// TestRedirectedPod runs a real Envoy in a pod. It gets its config only after the traffic of the
// pod is redirected, and connections fail rather than bypass it after it has ended.
func TestRedirectedPod(t *testing.T) {
	binary := envoytest.Find(t)
	if !agenttest.OwnNetwork(t) {
		return
	}
	const uid, server = "5e1f-test", "10.98.0.1:9000"
	group, p := podGroup(t, uid), newPodNetwork(t)
	l, err := net.Listen("tcp", server)
	agenttest.Do(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("y"))
			_ = c.Close()
		}
	}()
	dir := agenttest.ShortDir(t)
	agenttest.Write(t, dir+"/envoy", "#!/bin/sh\necho $$ > "+group+"/cgroup.procs\nexec nsenter --net="+p.path+" '"+
		binary+"' \"$@\"\n")
	agenttest.Do(t, os.Chmod(dir+"/envoy", 0o755))
	agenttest.Do(t, os.Chmod(dir, 0o755))
	a := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "intercept.pods=true")
	dataplane := func(pod string) {
		agenttest.Apply(t, a.Agent, "{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: default, name: web, labels: "+
			"{nearside.io/redirect: pod, nearside.io/pod: "+pod+"}, networking: {address: 10.98.0.2, inbound: [{port: 8080, "+
			"tags: {kuma.io/service: web}}], transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}")
	}
	dataplane("another")
	started := make(chan *envoytest.Process, 1)
	go func() { // Start returns when the Envoy has its first config
		defer close(started)
		started <- envoytest.Start(t, dir+"/envoy", filepath.Join(dir, "admin.sock"), func(admin string) ([]byte, error) {
			return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: "web", XDSSocket: a.Addrs().XDS,
				AdminSocket: admin})
		})
	}()
	synced := func() bool {
		list := a.Proxies()
		return len(list) == 1 && list[0].InSync
	}
	agenttest.Eventually(t, "the pod of the label is not that of the Envoy", func() bool {
		last := a.Last()
		for i := range last.Problems {
			if strings.Contains(last.Problems[i].Reason, "its Envoy is in the pod "+uid) {
				return true
			}
		}
		return false
	})
	if synced() {
		t.Error("the Envoy got a config")
	}
	if !p.visits(server) {
		t.Error("the pod of another Dataplane is redirected")
	}
	dataplane(uid)
	e := <-started
	if e == nil {
		t.FailNow()
	}
	agenttest.Eventually(t, "the Envoy has its config", synced)
	if !p.visits(server) {
		t.Error("the workload does not reach the server through the proxy")
	}
	code, stats := e.Admin("/stats?filter=outbound_passthrough.*cx_total")
	if code != 200 || !strings.Contains(stats, ": 1") {
		t.Errorf("the connection bypassed the proxy: %s", stats)
	}
	e.Stop()
	if p.visits(server) {
		t.Error("a connection bypasses the proxy while it is away")
	}
}
