package faulttest_test

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestStarts tests agents that cannot start.
func TestStarts(t *testing.T) {
	t.Parallel()
	running := newNode(t).start()
	used, err := net.ListenPacket("udp", running.ip+":15053")
	agenttest.Do(t, err)
	defer used.Close()
	for fault, x := range map[string]struct {
		set  string
		says []string
	}{
		"unknown key":              {"xds.scoket.path=x", []string{"xds.scoket", "xds.socket"}},
		"unknown value":            {"log.level=loud", []string{"log.level", "one of debug, info, warn, error"}},
		"upstream without address": {"dns.upstreams=nowhere", []string{`dns.upstreams[0]: "nowhere" is not an IP address`}},
		"pool without key": {"gossip.bind=$IP:7946",
			[]string{"gossip.keyringFile: is required", "nearside keyring generate"}},
		"address of the resolver in use": {"dns.listen=" + used.LocalAddr().String(),
			[]string{"dns.listen: " + used.LocalAddr().String() + " cannot be opened: another process listens on it"}},
		"directories of a running agent": {"paths.run=" + running.path("run"),
			[]string{"pid", "another agent"}},
	} {
		t.Run(fault, func(t *testing.T) {
			n := newNode(t, x.set)
			n.set[len(n.set)-1] = n.local(x.set)
			n.begin()
			<-n.ended
			agenttest.Contains(t, n.log.String(), x.says...)
			if code := n.cmd.ProcessState.ExitCode(); code == 0 {
				t.Error("the exit code is 0")
			}
			if strings.HasPrefix(x.set, "paths.run") {
				return
			}
			agenttest.Contains(t, n.command("nearside status").text, "no agent answers at "+n.path("run", "nearside.sock"))
		})
	}
}

// TestDirectories tests agents that run, but lack a directory.
func TestDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t, "resources.dir=/nowhere")
	n.start()
	row{fault: "missing resource directory", provoke: func(*testing.T, *node) func() { return nil }, stays: true,
		commands: []string{"nearside status"}, says: []string{"/nowhere", "resources.dir"}}.test(t, n)
	n.kill(syscall.SIGTERM)

	m := newNode(t)
	agenttest.Write(t, m.path("file"), "")
	m.set = append(m.set, "paths.state="+m.path("file"))
	m.begin()
	m.until("the agent answers", func() bool { return !strings.Contains(m.command("nearside status").text, "no agent") })
	agenttest.Contains(t, m.command("nearside status").text, "NOT READY", "FAIL state: ", m.path("file"),
		"is not a directory", "move it away, or set paths.state")
	m.kill(syscall.SIGTERM)
}
