package faulttest_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// tmpfs mounts a file system of 4 MiB on a directory of the node.
func (n *node) tmpfs(name string) {
	n.t.Helper()
	if os.Getuid() != 0 {
		n.t.Skip("skipped: only root can mount")
	}
	agenttest.Do(n.t, os.MkdirAll(n.path(name), 0o755))
	if err := syscall.Mount("tmpfs", n.path(name), "tmpfs", 0, "size=4m"); err != nil {
		n.t.Skipf("skipped: no tmpfs can be mounted here: %v", err)
	}
	n.t.Cleanup(func() {
		n.kill(syscall.SIGKILL)
		_ = syscall.Unmount(n.path(name), syscall.MNT_DETACH)
	})
}

// fill writes to a file system until it is full. remove frees the space.
func (n *node) fill(t testing.TB, name string) (remove func()) {
	t.Helper()
	f, err := os.Create(n.path(name, "ballast"))
	agenttest.Do(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { agenttest.Do(t, os.Remove(f.Name())) }
}

// request sends a request to the inbound of web.
func (n *node) request() {
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + n.ip + ":10080")
	if err == nil {
		resp.Body.Close()
	}
}

// logged is a MeshAccessLog whose lines the agent writes.
var logged = "---\n{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, from: " +
	"[{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: $DIR/logs/access/x.log, rotation: " +
	"{maxFileSize: 10}, format: {type: Plain, plain: '%PATH%" + strings.Repeat("x", 2000) + "'}}}]}}]}}\n"

func TestDisks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.file("base.yaml", base+logged)
	n.tmpfs("state")
	n.tmpfs("logs")
	n.start()
	n.envoy(t, 0, "--name web")
	n.synced("default", "web")
	for _, r := range []row{
		{fault: "full disk of the state", provoke: func(t *testing.T, n *node) func() {
			free := n.fill(t, "state")
			// The file grows only occasionally, so some writes still fit into it.
			big := n.path("big.yaml")
			n.write(big, "{type: MeshTimeout, mesh: default, name: big, labels: {x: "+strings.Repeat("y", 60)+"}, spec: "+
				to(everything, threes)+"}")
			n.until("a write fails", func() bool {
				n.run("", "delete", "-f", big)
				return n.run("", "apply", "-f", big).code != 0
			})
			return func() { free(); n.run("", "delete", "-f", big) }
		}, commands: []string{"nearside apply -f $DIR/big.yaml"}, code: 1,
			says: []string{"no space left on device"}, problem: "state", severity: serious},
		{fault: "full disk of the logs", provoke: func(t *testing.T, n *node) func() {
			free := n.fill(t, "logs")
			n.until("a line is late", func() bool {
				n.request()
				return strings.Contains(n.command("nearside status").text, "1 access log on it cannot be written")
			})
			return free
		}, commands: []string{"nearside status"}, says: []string{"$DIR/logs has 0 MiB left"},
			warning: "free space; 1 access log on it cannot be written", problem: "space", severity: warning},
		{fault: "missing directory of logs", provoke: func(t *testing.T, n *node) func() {
			agenttest.Do(t, os.RemoveAll(n.path("logs", "access")), os.WriteFile(n.path("logs", "access"), nil, 0o600))
			n.request()
			return func() { agenttest.Do(t, os.Remove(n.path("logs", "access"))); n.request() }
		}, commands: []string{"nearside status"}, says: []string{"$DIR/logs/access"},
			warning: "$DIR/logs/access was removed or replaced, and cannot be opened again", problem: "access-logs",
			severity: warning, stays: true},
	} {
		t.Run(r.fault, func(t *testing.T) { r.test(t, n) })
	}
}

// TestFullDiskOfEnvoy tests a log file that the Envoy opens itself. A full disk does not prevent it
// from opening the file, so it acknowledges the config, and its writes fail.
func TestFullDiskOfEnvoy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.file("base.yaml", base)
	n.tmpfs("disk")
	n.start()
	agenttest.Do(t, os.MkdirAll(n.path("run", "envoy", "0"), 0o700))
	n.envoy(t, 0, "--name web --admin-socket "+n.path("run", "envoy", "0", "default.web.sock"))
	n.synced("default", "web")
	n.fill(t, "disk")
	row{fault: "full disk of a log of Envoy", provoke: func(t *testing.T, n *node) func() {
		n.apply(policy("MeshAccessLog", "direct", "{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: "+
			"{backends: [{type: File, file: {path: $DIR/disk/x.log}}]}}]}"))
		n.until("the policy is rejected", func() bool {
			n.request()
			return strings.Contains(n.get(t, "/metrics"), `nearside_policies{kind="MeshAccessLog",state="rejected"} 1`)
		})
		return nil
	}, commands: []string{"nearside get meshaccesslog direct -o wide", "nearside wait meshaccesslog/direct"}, code: 2,
		says:    []string{"file $DIR/disk/x.log: ", "writes to it fail and lines are lost: filesystem.write_failed is "},
		warning: "MeshAccessLog/default/direct loses lines in $DIR/disk/x.log now",
		problem: "lost-lines", severity: warning, stays: true}.test(t, n)
}
