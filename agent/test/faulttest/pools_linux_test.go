package faulttest_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pool prepares the agents of a pool.
func pool(t *testing.T, names ...string) (all []*node) {
	for i, name := range names {
		n := newNode(t, "node.name="+name)
		agenttest.WriteSecret(t, n.path("keyring"), strings.Repeat("A", 43)+"=\n")
		n.set = append(n.set, "gossip.bind="+n.ip+":7946", "gossip.keyringFile="+n.path("keyring"))
		if i > 0 {
			n.set = append(n.set, "gossip.join="+all[0].ip+":7946")
		}
		all = append(all, n)
	}
	return all
}

// alive waits until a node has a living member.
func (n *node) alive(t testing.TB, name string) {
	t.Helper()
	n.until(name+" is alive", func() bool {
		for line := range strings.Lines(n.command("nearside members").out) {
			if f := strings.Fields(line); f[0] == name && f[1] == "alive" {
				return true
			}
		}
		return false
	})
}

func TestLostMember(t *testing.T) {
	t.Parallel()
	all := pool(t, "a", "b")
	for _, n := range all {
		n.start()
	}
	all[0].alive(t, "b")
	row{fault: "lost member", provoke: func(t *testing.T, n *node) func() {
		all[1].kill(syscall.SIGKILL)
		n.until("b is dead", func() bool { return strings.Contains(n.command("nearside members").out, "dead") })
		return func() { all[1].start() }
	}, commands: []string{"nearside members"}, says: []string{"dead"}, problem: "peers", severity: warning}.test(t, all[0])
}

func TestEqualNames(t *testing.T) {
	t.Parallel()
	all := pool(t, "a", "a")
	for _, n := range all {
		n.start()
	}
	for _, n := range all {
		row{fault: "two nodes with one name", provoke: func(*testing.T, *node) func() { return nil }, stays: true,
			commands: []string{"nearside status"}, says: []string{"the name a", "give the node another name"}}.test(t, n)
	}
}

func TestForeignKey(t *testing.T) {
	t.Parallel()
	all := pool(t, "a", "b")
	agenttest.WriteSecret(t, all[1].path("keyring"), "B"+strings.Repeat("A", 42)+"=\n")
	for _, n := range all {
		n.start()
	}
	row{fault: "another gossip key", provoke: func(*testing.T, *node) func() { return nil }, stays: true,
		commands: []string{"nearside members", "nearside status"},
		says:     []string{"no address of gossip.join responds: check the network, the cluster name, and the keys"},
	}.test(t, all[1])
}
