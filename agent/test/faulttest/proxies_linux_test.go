package faulttest_test

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const inspectWeb = "nearside inspect dataplane web --type=status"

// proxyRows are faults of Envoys, of their bootstraps, and of their resources.
var proxyRows = []row{
	{fault: "bind address in use", provoke: func(t *testing.T, n *node) func() {
		l, err := net.Listen("tcp", n.ip+":10080")
		agenttest.Do(t, err)
		t.Cleanup(n.envoy(t, 0, "--name web").kill)
		return func() { l.Close(); n.synced("default", "web") }
	}, commands: []string{inspectWeb, "nearside status"},
		says: []string{"cannot bind '$IP:10080': Address already in use", "the cause is on the host of the Envoy, " +
			"not in a policy: " + `find the process that listens there with "ss -lntp 'sport = :10080'" and stop it`},
		problem: "rejected", severity: serious},
	{fault: "two Envoys with one node id", provoke: func(t *testing.T, n *node) func() {
		e := n.envoy(t, 0, "--name web")
		n.synced("default", "web")
		f := n.envoy(t, 0, "--name web")
		return func() { f.kill(); e.kill() }
	}, commands: []string{"nearside status"}, says: []string{"2 Envoys use the node id default.web"},
		problem: "rejected", severity: serious},
	{fault: "killed Envoy", provoke: func(t *testing.T, n *node) func() {
		e := n.envoy(t, 0, "--name web")
		n.synced("default", "web")
		e.kill()
		return nil
	}, commands: []string{inspectWeb}, says: []string{"web: disconnected: its Envoy of uid 0 (pid "}},
	{fault: "refused user", provoke: func(t *testing.T, n *node) func() {
		return n.envoy(t, 4242, "--name web").kill
	}, commands: []string{"nearside status"}, stays: true,
		says:    []string{`uid 4242 (pid `, `may not use the node id "default.web"`, "uid: 4242"},
		problem: "stream-refused", severity: serious},
	{fault: "unknown node id", provoke: func(t *testing.T, n *node) func() { return n.envoy(t, 0, "--name wep").kill },
		commands: []string{"nearside status"},
		says: []string{`node id "default.wep" asks for a Dataplane that does not exist; apply it, or fix the node id in ` +
			`the bootstrap`}, problem: "unknown-node", severity: warning},
	{fault: "unknown mesh",
		provoke:  func(t *testing.T, n *node) func() { return n.envoy(t, 0, "--name web --mesh defalt").kill },
		commands: []string{"nearside status"},
		says:     []string{`node id "defalt.web" asks for a Dataplane that does not exist`},
		problem:  "unknown-node", severity: warning},
	{fault: "deleted dataplane", provoke: func(t *testing.T, n *node) func() {
		n.apply("{type: Dataplane, mesh: default, name: gone, networking: {address: $IP, inbound: [{port: 81, " +
			"servicePort: 82, tags: {kuma.io/service: gone}}]}}")
		e := n.envoy(t, 0, "--name gone")
		n.synced("default", "gone")
		n.command("nearside delete dataplane gone")
		return e.kill
	}, commands: []string{"nearside inspect dataplane gone --type=status"},
		says: []string{`node id "default.gone" asks for a Dataplane that does not exist`}, problem: "unknown-node",
		severity: warning},
	{fault: "inbound that forwards to itself", apply: "{type: Dataplane, mesh: default, name: self, networking: " +
		"{address: 127.0.0.1, inbound: [{port: 8099, tags: {kuma.io/service: self, kuma.io/protocol: http}}]}}",
		warning:  "it forwards to itself: the proxy listens on 127.0.0.1:8099 and forwards there",
		commands: []string{"nearside status"}, says: []string{"set servicePort to the port of the workload"},
		problem: ofOne, severity: warning},
	{fault: "file with a fault", provoke: func(t *testing.T, n *node) func() {
		n.file("fault.yaml", policy("MeshTimeout", "t", to(everything, "{connectionTimeot: 3s}")))
		return func() { agenttest.Do(t, os.Remove(n.path("resources", "fault.yaml"))) }
	}, commands: []string{"nearside get meshtimeout t", "nearside status"},
		says: []string{`fault.yaml:2: document 1 (MeshTimeout/default/t): spec.to[0].default.connectionTimeot: unknown field`,
			`did you mean "connectionTimeout"?`},
		problem: "file-fault", severity: serious},
	{fault: "resource in two files", provoke: func(t *testing.T, n *node) func() {
		n.file("twice.yaml", "{type: Mesh, name: default}")
		return func() { agenttest.Do(t, os.Remove(n.path("resources", "twice.yaml"))) }
	}, commands: []string{"nearside status"}, says: []string{"twice.yaml", "managed by", "base.yaml"},
		problem: "file-conflict", severity: serious},
	{fault: "change of a resource in a file", provoke: func(t *testing.T, n *node) func() {
		n.write(n.path("mesh.yaml"), "{type: Mesh, name: default}")
		return nil
	}, commands: []string{"nearside apply -f $DIR/mesh.yaml"}, code: 1,
		says: []string{"Mesh/default belongs to file:$DIR/resources/base.yaml", "edit $DIR/resources/base.yaml"}},
}

// TestProxies tests faults of Envoys.
func TestProxies(t *testing.T) {
	t.Parallel()
	n := newNode(t, "xds.socket.mode=0666")
	n.file("base.yaml", base)
	n.start()
	for _, r := range proxyRows {
		t.Run(r.fault, func(t *testing.T) { r.test(t, n) })
	}
}

// TestKilledAgent tests the commands without an agent. The Envoy keeps its config.
func TestKilledAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.file("base.yaml", base)
	n.start()
	e := n.envoy(t, 0, "--name web")
	n.synced("default", "web")
	n.kill(syscall.SIGKILL)
	for _, line := range []string{"status", "check", "inspect dataplanes", "wait mesh/default --timeout 1s",
		"apply -f $DIR/resources", "explain policy meshtimeout/t --dataplane web", "dns lookup web.mesh A"} {
		row{fault: "killed agent, " + line, down: true, provoke: func(*testing.T, *node) func() { return nil },
			commands: []string{"nearside " + line}, code: 69,
			says: []string{"no agent answers at $DIR/run/nearside.sock: connect: connection refused", "hint: "}}.test(t, n)
	}
	conn, err := net.Dial("tcp", n.ip+":10080")
	if err != nil {
		t.Fatalf("the Envoy does not serve without the agent: %v", err)
	}
	conn.Close()
	select {
	case <-e.ended:
		t.Error("the Envoy has ended")
	default:
	}
	n.start()
	n.synced("default", "web")
}

// TestStoppedEnvoy tests an Envoy that acknowledges nothing.
func TestStoppedEnvoy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.file("base.yaml", base)
	n.start()
	e := n.envoy(t, 0, "--name web")
	n.synced("default", "web")
	row{fault: "stopped Envoy", provoke: func(t *testing.T, n *node) func() {
		e.signal(syscall.SIGSTOP)
		n.apply(policy("MeshTimeout", "late", to(everything, threes)))
		n.until("the agent lists the Envoy", func() bool {
			return strings.Contains(n.command("nearside status").text, "pending since")
		})
		return func() { e.signal(syscall.SIGCONT) }
	}, commands: []string{"nearside wait meshtimeout/late --timeout 1s"}, code: 3,
		says:    []string{"default/web: it has not acknowledged the response sent at"},
		problem: "pending", severity: warning}.test(t, n)
}
